#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Make docs/man/weir-knobs.7, the list of all knobs, from src/base/knobs.def.

usage: tools/knobs.py [--check]   --check: write nothing; fail if the page is stale
"""
import os
import re
import sys

SOURCE, PAGE = "src/base/knobs.def", "docs/man/weir-knobs.7"
ROW = re.compile(r'^KNOB_(INT|BOOL|ENUM|PROC)\((STACK|PROCESS), \w+, "([^"]+)",(?: (.*),)? '
                 r'"((?:[^"\\]|\\.)*)"\)$')
GROUP = re.compile(r"^/\* --- (.*) --- \*/$")

HEAD = """\
.\\" SPDX-License-Identifier: BSD-2-Clause
.\\" Made by tools/knobs.py from src/base/knobs.def: do not edit.
.Dd November 30, 2026
.Dt WEIR-KNOBS 7
.Os
.Sh NAME
.Nm weir-knobs
.Nd what can be set on a Weir stack
.Sh DESCRIPTION
Knobs are set when a command makes its stack
.Pq Fl -set Ar name Ns = Ns Ar value ,
on a running one by
.Xr weir-sysctl 1 ,
and by a program with
.Fn weir_sysctl_set .
Each stack has its own; those marked
.Qq process
are one for all stacks of a process.
Names that FreeBSD has too mean the same.
After the name stand the default and what is allowed.
"""
TAIL = """\
.Sh SEE ALSO
.Xr weir 1 ,
.Xr weir-sysctl 1 ,
.Xr weir-link 7
"""


def number(text):
    text = text.replace("INT64_C", "")
    if not re.fullmatch(r"[0-9<()* +-]+", text):
        raise ValueError(f"not a number: {text}")
    return int(eval(text))  # pylint: disable=eval-used  # of digits and operators alone


def allowed(kind, rest):
    """The part of an entry behind the name."""
    if kind == "PROC":
        return ""
    if kind == "BOOL":
        return f"{number(rest)} (0 or 1)"
    if kind == "ENUM":
        index, words = re.fullmatch(r'(\d+), "([^"]+)"', rest).groups()
        words = words.split("|")
        return f"{words[int(index)]} ({', '.join(words[:-1])} or {words[-1]})"
    default, least, most = (number(v) for v in rest.split(", "))
    return f"{default} ({least} to {most})"


def roff(text):
    """As text of a page: a macro's name at the start of a line would be one."""
    text = text.replace('\\"', '"').replace("\\", "\\e")
    return "\\&" + text if text[:1] in ".'" else text


def page():
    out, rows = [HEAD], 0
    open_list = False
    with open(SOURCE, encoding="utf-8") as f:
        for number_of_line, line in enumerate(f, 1):
            if m := GROUP.match(line):
                out.append((".El\n" if open_list else "") + f".Ss {m[1]}\n.Bl -tag -width Ds\n")
                open_list = True
            elif m := ROW.match(line.rstrip("\n")):
                kind, scope, name, rest, doc = m.groups()
                about = allowed(kind, rest) + (" process" if scope == "PROCESS" else "")
                out.append(f".It Va {name}" + (f" No {about.strip()}" if about else "") +
                           f"\n{roff(doc)}.\n")
                rows += 1
            elif line.startswith("KNOB_"):
                raise ValueError(f"{SOURCE}:{number_of_line}: not understood")
    return "".join(out) + ".El\n" + TAIL, rows


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    text, rows = page()
    if "--check" in sys.argv[1:]:
        try:
            with open(PAGE, encoding="utf-8") as f:
                if f.read() == text:
                    return 0
        except FileNotFoundError:
            pass
        print(f"{PAGE} is stale: run tools/knobs.py")
        return 1
    with open(PAGE, "w", encoding="utf-8") as f:
        f.write(text)
    print(f"{rows} knobs")
    return 0


sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Make docs/cases.md, the table of known faults of TCP stacks and the tests that cover them.

tests/cases.tsv holds the rows (id, area, behaviour, source). A test names those it covers in a
comment right above it that reads "case: ID", or "case: ID, ID". A row without a test has its reason
in tests/cases-open.tsv (id, reason).

usage: tools/cases.py [--check]   --check: write nothing; fail if the table is stale
Exit status 1 when a row has neither test nor reason, has both, or an id is unknown.
"""
import os
import re
import sys

TABLE = "docs/cases.md"
TAG = re.compile(r"case: ((?:[A-Z]{3}-\d{3})(?:,? +[A-Z]{3}-\d{3})*)")
CUT = re.compile(r"\bcase:$")
ID = re.compile(r"[A-Z]{3}-\d{3}")
FUNCTION = re.compile(r"^(?:static )?(?:void|int|def) (?:\*?)(\w+)\(")
SUFFIXES = (".c", ".py", ".sh", ".pkt")


def read_tsv(path):
    with open(path, encoding="utf-8") as f:
        return [line.rstrip("\n").split("\t") for line in f][1:]


def scan():
    """id -> list of (file, function or ""), and what is wrong with tags."""
    found, problems = {}, []
    for root, dirs, files in os.walk("tests"):
        dirs.sort()
        for name in sorted(files):
            if not name.endswith(SUFFIXES):
                continue
            path = os.path.join(root, name)
            with open(path, encoding="utf-8") as f:
                lines = f.read().splitlines()
            for i, line in enumerate(lines):
                if CUT.search(line):
                    problems.append(f"{path}:{i + 1}: the tag goes on over the end of the line")
                for tag in TAG.finditer(line):
                    below = (FUNCTION.match(text) for text in lines[i + 1:i + 8])
                    function = next((m[1] for m in below if m), "")
                    for case in ID.findall(tag[1]):
                        if (path, function) not in found.setdefault(case, []):
                            found[case].append((path, function))
    return found, problems


def cell(text):
    return text.replace("|", "\\|")


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    rows = read_tsv("tests/cases.tsv")
    reasons = dict(read_tsv("tests/cases-open.tsv"))
    tests, problems = scan()
    known = {row[0] for row in rows}
    problems += [f"unknown id {i}" for i in sorted((set(reasons) | set(tests)) - known)]
    out = ["<!-- SPDX-License-Identifier: BSD-2-Clause -->",
           "# Known faults, and the tests against them", "",
           "Made by tools/cases.py from tests/cases.tsv, tests/cases-open.tsv and the tests: "
           "do not edit.", "",
           f"{sum(row[0] in tests for row in rows)} of {len(rows)} rows have a test.", "",
           "| id | area | behaviour | source | covered by |", "|---|---|---|---|---|"]
    for row in rows:
        ident, area, behaviour, source = row
        if ident in tests and ident in reasons:
            problems.append(f"{ident} has a test: drop its reason from tests/cases-open.tsv")
        if ident in tests:
            by = "<br>".join(path + (":" + fn if fn else "") for path, fn in tests[ident])
        elif ident in reasons:
            by = "none: " + reasons[ident]
        else:
            by = ""
            problems.append(f"{ident} ({area}) has neither test nor reason")
        out.append("| " + " | ".join(cell(c) for c in (ident, area, behaviour, source, by)) + " |")
    text = "\n".join(out) + "\n"
    if "--check" in sys.argv[1:]:
        try:
            with open(TABLE, encoding="utf-8") as f:
                stale = f.read() != text
        except FileNotFoundError:
            stale = True
        if stale:
            problems.append(f"{TABLE} is stale: run tools/cases.py")
    else:
        with open(TABLE, "w", encoding="utf-8") as f:
            f.write(text)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


sys.exit(main())

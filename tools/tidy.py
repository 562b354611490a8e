#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Style as a test: a line "pass|fail|skip NAME[: why]" for each rule, what breaks it above.

usage: tools/tidy.py [BUILD-DIR]   (build/ by default; its objects are looked at by the symbol rule)
"""
import os
import re
import shutil
import subprocess
import sys

# A layer may include what stands before it; those in one list are peers (a socket call drives the
# stack).
LAYERS = [["base"], ["buf"], ["wire"], ["ip"], ["udp", "tcp", "socket", "stack"], ["link"],
          ["measure"], ["runtime"], ["packetdrill", "sim", "cli"]]
RANK = {name: i for i, names in enumerate(LAYERS) for name in names}
CORE = ["base", "buf", "wire", "ip", "udp", "tcp", "socket", "stack"]
# What the core must not know: clocks, threads, the allocator, I/O.
FORBIDDEN = re.compile(
    r"^(malloc|calloc|realloc|reallocarray|free|posix_memalign|aligned_alloc|strdup|v?asprintf|"
    r"time|clock|clock_\w+|gettimeofday|nanosleep|usleep|sleep|"
    r"pthread_\w+|thrd_\w+|mtx_\w+|cnd_\w+|syscall|sched_\w+|futex\w*|"
    r"read|readv|write|writev|pread\w*|pwrite\w*|open\w*|close|dup\d?|pipe\d?|fcntl\w*|ioctl|"
    r"mmap\w*|munmap|"
    r"socket|connect|accept\d?|bind|listen|send\w*|recv\w*|shutdown|poll|ppoll|select|epoll_\w+|"
    r"eventfd\w*|"
    r"printf|fprintf|vfprintf|puts|putchar|fputs|fputc|fwrite|fopen\w*|fclose|stdout|stderr|perror|"
    r"getrandom|getentropy|arc4random\w*|rand|random|randombytes\w*|getenv|system|fork|exec\w*)$")
LINE_MAX, FILE_MAX = 100, 800

bad = 0


def rule(name, problems, skip=None):
    global bad
    for p in problems[:50]:
        print(f"  {p}")
    if skip:
        print(f"skip {name}: {skip}")
    elif problems:
        bad = 1
        print(f"fail {name}: {len(problems)} found")
    else:
        print(f"pass {name}")


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read().splitlines()


def all_files(*suffixes):
    roots = ("src", "include", "tests", "tools", "bench", "examples")
    return sorted(os.path.join(d, f) for root in roots for d, _, files in os.walk(root)
                  for f in files if f.endswith(suffixes) and "__pycache__" not in d)


def check_format(files):
    if not shutil.which("clang-format"):
        return rule("clang-format", [], "clang-format is not installed")
    r = subprocess.run(["clang-format", "--dry-run", "-Werror", *files], capture_output=True,
                       text=True)
    wrong = sorted({line.split(":")[0] for line in r.stderr.splitlines()
                    if "clang-format-violations" in line})
    rule("clang-format", [f"{f}: run clang-format -i" for f in wrong] or r.stderr.splitlines()[:5])


def check_spdx(files):
    def marked(path):
        return any("SPDX-License-Identifier: BSD-2-Clause" in line for line in read(path)[:2])
    rule("licence lines", [f"{f}: no SPDX line" for f in files if not marked(f)])


def check_lines(files):
    rule("line length", [f"{f}:{i}: {len(line)} columns" for f in files
                         for i, line in enumerate(read(f), 1) if len(line) > LINE_MAX])


def layer_of(path):
    part = path.split("/")[1]
    return part.split(".")[0]


def check_includes(files):
    problems = []
    for f in files:
        if not f.startswith("src/"):
            continue
        mine = layer_of(f)
        for i, line in enumerate(read(f), 1):
            m = re.match(r'#include "([^"]+)"', line)
            if not m or m[1].startswith("weir/"):
                continue
            if os.path.exists(os.path.join(os.path.dirname(f), m[1])):
                continue
            theirs = m[1].split("/")[0].split(".")[0]
            if theirs not in RANK:
                problems.append(f"{f}:{i}: what is {m[1]}?")
            elif RANK[theirs] > RANK[mine]:
                problems.append(f"{f}:{i}: {mine} includes {theirs} upwards")
    rule("layers", problems)


def check_symbols(build):
    libs = [os.path.join(build, "src", f"libweir_{name}.a") for name in CORE]
    if not all(os.path.exists(lib) for lib in libs):
        return rule("core symbols", [], f"{build}/ is not built")
    problems = []
    for lib in libs:
        r = subprocess.run(["nm", "-u", lib], capture_output=True, text=True)
        for line in r.stdout.splitlines():
            symbol = line.split()[-1] if line.split() else ""
            if FORBIDDEN.match(symbol):
                problems.append(f"{lib}: uses {symbol}")
    rule("core symbols", sorted(set(problems)))


def check_dead(files, build):
    uses = [os.path.join(build, "build.ninja"),
            os.path.join(build, "meson-info", "intro-tests.json")]
    if not all(os.path.exists(f) for f in uses):
        return rule("no dead file", [], f"{build}/ is not set up")
    used = "\n".join("\n".join(read(f)) for f in uses)
    rule("no dead file", [f"{f}: nothing uses it" for f in files
                          if f.endswith(".c") and "/" + os.path.basename(f) not in used])


def check_made(name, tool):
    """What a tool has made is what it would make now."""
    r = subprocess.run([sys.executable, tool, "--check"], stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True)
    rule(name, r.stdout.splitlines() if r.returncode else [])


def check_map():
    """What docs/rfc-map.md names exists: `path/file.c:function`, and directories of scripts."""
    problems = []
    for i, line in enumerate(read("docs/rfc-map.md"), 1):
        for path, name in re.findall(r"`([\w/]+\.c):(\w+)`", line):
            real = os.path.join("tests" if path.startswith(("unit/", "sim/")) else "src", path)
            text = "\n".join(read(real)) if os.path.exists(real) else ""
            if not re.search(rf"^\w[^;\n=]*\b{name}\(", text, re.M):
                problems.append(f"docs/rfc-map.md:{i}: no {name}() in {real}")
        for path in re.findall(r"`([\w-]+/)`", line):
            if path not in ("src/", "tests/") and not os.path.isdir("tests/conformance/pkt/" + path):
                problems.append(f"docs/rfc-map.md:{i}: no tests/conformance/pkt/{path}")
    rule("RFC map", problems)


def report_lengths(files):
    for f in files:
        n = len(read(f))
        if n > FILE_MAX:
            print(f"  note: {f} has {n} lines, more than {FILE_MAX}")


def check_locks():
    """docs/locks.md lists every class of locks by the name it has in the source, and no other."""
    named = {m[1]: f for f in all_files(".c") if f.startswith("src/")
             for m in re.finditer(r"^(?:static )?LOCK_CLASS(?:_BRIEF)?\(\w+, \"(\w+)\"\)",
                                  "\n".join(read(f)), re.M)}
    listed = {m[1] for line in read("docs/locks.md")
              for m in [re.match(r"\| \d+ \| `(\w+)`", line)] if m}
    rule("table of locks", [f"{named[n]}: {n} is not in docs/locks.md"
                            for n in sorted(named.keys() - listed)] +
         [f"docs/locks.md: no lock is named {n}" for n in sorted(listed - named.keys())])


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    c = all_files(".c", ".h")
    scripts = all_files(".sh", ".py", ".def", "meson.build")
    check_format(c)
    check_spdx(c + scripts)
    check_lines(c)
    check_includes(c)
    check_symbols(build)
    check_dead(c, build)
    check_made("table of cases", "tools/cases.py")
    check_made("page of knobs", "tools/knobs.py")
    check_map()
    check_locks()
    report_lengths(c)
    return bad


sys.exit(main())

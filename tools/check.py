#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Build in every way, run every test and style check, sum up.

The last line is always "N passed, N failed, N skipped". A cmocka program counts as the tests in it,
any other test as one. What cannot run here (a tool is missing, no privilege) is skipped; with
CI=true in the environment a skip is a failure. Exit status 0 when nothing failed.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time

THREADED = re.compile(r"^base/(lock|owner)|^buf/(pool|sockbuf)|^runtime/|threads")

passed = failed = skipped = 0


def note(verdict, name, detail=""):
    """Count one result and, unless it passed, say so."""
    global passed, failed, skipped
    if verdict == "skip" and os.environ.get("CI") == "true":
        verdict, detail = "fail", detail + " (skipped, which CI does not allow)"
    if verdict == "pass":
        passed += 1
    elif verdict == "skip":
        skipped += 1
        print(f"SKIP {name}: {detail}")
    else:
        failed += 1
        print(f"FAIL {name}: {detail}")


def run(argv, **kw):
    return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", **kw)


def build(kind):
    """True when the build of this kind stands without a warning."""
    if kind in ("tsan", "clang") and not shutil.which("clang"):
        note("skip", f"build {kind}", "clang is not installed")
        return False
    started = time.monotonic()
    r = run(["tools/build.sh", kind])
    if r.returncode:
        lines = [line for line in r.stdout.splitlines() if not re.match(r"\[\d+/\d+\]", line)]
        print("\n".join("  " + line for line in lines)[-20000:])
    note("pass" if r.returncode == 0 else "fail", f"build {kind}", "see above")
    print(f"build {kind}: {time.monotonic() - started:.0f} s", flush=True)
    return r.returncode == 0


def last_line(text):
    lines = [line for line in (text or "").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def count_test(kind, t):
    """Count one entry of meson's log; cmocka's own summary says how many tests it stands for."""
    global passed
    name = f"{t['name']} ({kind})"
    output = (t.get("stdout") or "") + "\n" + (t.get("stderr") or "")
    if t["result"] in ("SKIP",):
        note("skip", name, last_line(output) or "said so")
        return
    if t["result"] == "OK":
        inner = sum(int(n) for n in re.findall(r"^\[  PASSED  \] (\d+) test\(s\)\.", output, re.M))
        passed += max(inner, 1)
        for skip in re.findall(r"^\[  SKIPPED \] (\d+) test\(s\)", output, re.M):
            for _ in range(int(skip)):
                note("skip", name, "one of its tests was skipped")
        return
    print("\n".join("  " + line for line in output.splitlines()[-60:]))
    note("fail", name, f"{t['result']} after {t['duration']:.1f} s")


def test(kind, directory, *selection):
    log = os.path.join(directory, "meson-logs", "testlog.json")
    if os.path.exists(log):
        os.remove(log)
    started = time.monotonic()
    r = run(["meson", "test", "-C", directory, "--no-rebuild", "--quiet", *selection])
    if not os.path.exists(log):
        if "No suitable tests" not in r.stdout and "No tests defined" not in r.stdout:
            print(r.stdout[-5000:])
            note("fail", f"tests {kind}", "meson test did not run")
        return
    with open(log, encoding="utf-8", errors="replace") as f:
        for line in f:
            count_test(kind, json.loads(line))
    print(f"tests {kind}: {time.monotonic() - started:.0f} s", flush=True)


def threaded(directory):
    """Names of the tests that use threads: those of suite "threads" and those that are known to."""
    r = run(["meson", "introspect", "--tests", directory])
    try:
        tests = json.loads(r.stdout)
    except ValueError:
        return []
    return [t["name"] for t in tests
            if "threads" in " ".join(t["suite"]) or THREADED.search(t["name"])]


def style():
    r = run([sys.executable, "tools/tidy.py", "build"])
    for line in r.stdout.splitlines():
        m = re.match(r"(pass|fail|skip) ([^:]+)(?:: (.*))?$", line)
        if m:
            note(m[1], f"style {m[2]}", m[3] or "")
        else:
            print(line)
    if r.returncode not in (0, 1):
        note("fail", "style", "tidy.py broke")


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    os.environ["WEIR_RESULTS"] = "off"
    os.environ.setdefault("ASAN_OPTIONS", "abort_on_error=1:detect_leaks=1")
    os.environ.setdefault("UBSAN_OPTIONS", "halt_on_error=1:abort_on_error=1:print_stacktrace=1")
    os.environ.setdefault("TSAN_OPTIONS", "halt_on_error=1")
    if build("release"):
        test("release", "build")
        style()
    if build("asan"):
        test("asan", "build-asan", "--no-suite", "interop", "--timeout-multiplier", "5")
    if build("tsan"):
        test("tsan", "build-tsan", "--timeout-multiplier", "10", *threaded("build-tsan"))
    build("clang")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


sys.exit(main())

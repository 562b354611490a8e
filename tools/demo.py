#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Measure Weir and the kernel by turns; print the medians and their ratio.

usage: tools/demo.py ROUNDS SECONDS
"""
import json
import statistics
import subprocess
import sys

TESTS = [("TCP_STREAM", ["-m", "131072"], "throughput_mbps", "Gbit/s", 1e-3),
         ("TCP_RR", [], "transactions_per_s", "thousand/s", 1e-3),
         ("TCP_CRR", [], "transactions_per_s", "thousand/s", 1e-3)]


def measure(test, options, stack, seconds):
    argv = ["build/weir", "bench", test, *options, "-l", seconds, "--stack", stack, "-J"]
    r = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    if r.returncode:
        sys.exit(f"demo: {' '.join(argv)}: exit status {r.returncode}\n{r.stderr or r.stdout}")
    return json.loads(r.stdout)


def main():
    rounds, seconds = int(sys.argv[1]), sys.argv[2]
    print(f"\n   {'test':<12}{'unit':<12}{'weir':>10}{'kernel':>10}{'weir/kernel':>14}", flush=True)
    for test, options, field, unit, factor in TESTS:
        got = {"weir": [], "kernel": []}
        for i in range(rounds):
            for stack in ("weir", "kernel") if i % 2 == 0 else ("kernel", "weir"):
                got[stack].append(measure(test, options, stack, seconds)[field] * factor)
        weir, kernel = statistics.median(got["weir"]), statistics.median(got["kernel"])
        ratio = f"{weir / kernel:.2f}" if kernel else "-"
        print(f"   {test:<12}{unit:<12}{weir:>10.1f}{kernel:>10.1f}{ratio:>14}", flush=True)


main()

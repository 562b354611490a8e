#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Weir over the memory link against the kernel's loopback and against the machine, interleaved.

Each round measures all contenders of a test one after the other, in an order that turns; what is
told is the median of the rounds' ratios with the lowest and the highest, beside what is wanted.
Default knobs, CUBIC on both stacks, a core for each end. Wants two cores that nobody else uses.

  stream        128 KB writes: the kernel, and two bare copies between the same cores (in the same
                run, best of 5)
  rr            1 byte: the kernel blocking and spinning with an end on each core, blocking with both
                ends on one; best is the fastest of those in the same round
  crr           connect, request, response, close
  streams-16, streams-1000   the total against one stream's, and Jain's index of fairness

usage: memory.py WEIR [-n ROUNDS] [-l SECONDS] [-t TEST[,TEST]...] [-J]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

WARM_UP = 0.3
KERNEL = ("--stack", "kernel")

args = None


def bench(test, *options):
    out = subprocess.run([args.weir, "bench", test, "-l", str(args.l), "-O", str(WARM_UP), "-J", *options],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"memory.py: bench {test} {' '.join(options)}: {out.stderr}")
    d = json.loads(out.stdout)
    if not d["bytes"]:
        sys.exit(f"memory.py: bench {test} {' '.join(options)}: nothing arrived in {args.l} s")
    return d


def rate(d):
    return d["transactions_per_s"] if "RR" in d["test"] else d["throughput_mbps"]


def one_core():
    return ("-T", str(min(os.sched_getaffinity(0))))


# Contenders: {name: (bench test, options...)}. Rows: (of what, against what, wanted) by functions of
# a round's documents; against None: a figure of its own.
def ratio(a, b, wanted):
    return b, lambda r: rate(r[a]), lambda r: rate(r[b]), wanted


def many(n):
    name = f"{n} streams"
    return ({"one stream": ("TCP_STREAM",), name: ("TCP_STREAM", "-P", str(n))},
            [ratio(name, "one stream", 0.85),
             ("fairness", lambda r: rate(r[name]), None, 0.95, lambda r: r[name]["fairness"])])


RR = {"weir": ("TCP_RR",), "kernel, across cores": ("TCP_RR", *KERNEL),
      "kernel, spinning": ("TCP_RR", *KERNEL, "--spin"), "kernel, one core": ("TCP_RR", *KERNEL, *one_core())}
TESTS = {
    "stream": ({"weir": ("TCP_STREAM", "--limit"), "kernel": ("TCP_STREAM", *KERNEL)},
               [ratio("weir", "kernel", 3),
                ("two bare copies", lambda r: rate(r["weir"]), lambda r: r["weir"]["limit"]["throughput_mbps"], 0.6)]),
    "rr": (RR,
           [ratio("weir", "kernel, across cores", 15), ratio("weir", "kernel, spinning", None),
            ratio("weir", "kernel, one core", None),
            ("kernel, best", lambda r: rate(r["weir"]), lambda r: max(rate(r[k]) for k in RR if k != "weir"), 4)]),
    "crr": ({"weir": ("TCP_CRR",), "kernel": ("TCP_CRR", *KERNEL)}, [ratio("weir", "kernel", 10)]),
    "streams-16": many(16),
    "streams-1000": many(1000),
}


def measure(name):
    contenders, rows = TESTS[name]
    rounds = []
    for i in range(args.n):
        order = list(contenders)
        turn = i % len(order)
        rounds.append({k: bench(*contenders[k]) for k in order[turn:] + order[:turn]})
        if sys.stderr.isatty():
            print(f"{name}: round {i + 1} of {args.n}", end="\r", file=sys.stderr)
    return [summary(name, rounds, *row) for row in rows]


def summary(name, rounds, against, ours, other, wanted, share=None):
    share = share or (lambda r: ours(r) / other(r))
    shares = sorted(share(r) for r in rounds)
    middle = statistics.median(shares)
    return {"test": name, "weir": statistics.median(map(ours, rounds)), "against": against,
            "other": statistics.median(map(other, rounds)) if other else None, "ratio": middle,
            "lowest": shares[0], "highest": shares[-1], "wanted": wanted,
            "holds": middle >= wanted if wanted else None, "unit": "trans/s" if "rr" in name else "Mbit/s"}


def show(r):
    other = f"{r['other']:9.0f}" if r["other"] is not None else 9 * " "
    wanted = f"  wanted {r['wanted']:<5} {'holds' if r['holds'] else 'DOES NOT HOLD'}" if r["wanted"] else ""
    digits = 4 if r["against"] == "fairness" else 2
    print(f"{r['test']:13} {r['weir']:9.0f} {r['unit']:7}  {r['against']:21} {other}  {r['ratio']:6.{digits}f} "
          f"({r['lowest']:.{digits}f} to {r['highest']:.{digits}f}){wanted}", flush=True)


def parse():
    p = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].strip())
    p.add_argument("weir")
    p.add_argument("-n", type=int, default=5)
    p.add_argument("-l", type=float, default=1)
    p.add_argument("-t", default=",".join(TESTS))
    p.add_argument("-J", action="store_true")
    a = p.parse_args()
    a.weir = os.path.abspath(a.weir)
    a.t = a.t.split(",")
    for t in a.t:
        if t not in TESTS:
            p.error(f"{t}: no such test; there are {', '.join(TESTS)}")
    if a.n < 1 or a.l <= 0:
        p.error("at least one round, of more than no time")
    return a


def main():
    global args
    args = parse()
    everything = []
    for name in args.t:
        rows = measure(name)
        everything += rows
        for r in rows if not args.J else ():
            show(r)
    if args.J:
        json.dump(everything, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Weir over a packet or TAP link against the kernel over a veth pair, interleaved.

Makes two network namespaces, joined by pairs of veth interfaces that are alike: the kernel's TCP at
both ends of one, Weir at the far end of another. Each round measures all contenders of a test one
after the other, in an order that turns; what is told is the median of the rounds' ratios with their
spread. The near end is the kernel's TCP with CUBIC always. Needs root.

  packet   MTU 1500, offloads of all interfaces off, as on a wire; RR and CRR with a Weir that spins,
           and against a bare reflector (packet_reflector), which answers segments without a TCP:
           what a packet socket can reach at all
  tap      superframes; against a veth pair with its offloads, and against a bare pump (tap_pump),
           which moves superframes between TAP and the kernel's TCP with no more of a TCP of its own
           than that takes

usage: links.py WEIR [--pump TAP_PUMP] [--reflector PACKET_REFLECTOR] [-n ROUNDS] [-l SECONDS] [-t TEST[,TEST]...] [-J]
"""
import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

CLONE_NEWNET = 0x40000000
SIOCETHTOOL = 0x8946
# ETHTOOL_S*: checksums received and sent, scatter-gather stays, TSO, GSO, GRO
OFFLOADS = {"rx": 0x15, "tso": 0x1f, "gso": 0x24, "gro": 0x2c}
POLL = ["--set", "machdep.cpu_idle_hlt=0"]
PACKET_LINK = "packet:p1,addr=10.2.0.2/24"
TAP_LINK = "tap:wt0,addr=10.3.0.2/24"

args = None
far = None  # a process that holds the far namespace


def run(*argv):
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def in_far(*argv):
    return ("nsenter", "-t", str(far.pid), "-n", *argv)


def offloads(name, on):
    """Inside the namespace that has the interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for command in OFFLOADS.values():
            value = ctypes.create_string_buffer(struct.pack("II", command, on))
            request = struct.pack("16sP", name.encode(), ctypes.addressof(value))
            with contextlib.suppress(OSError):
                fcntl.ioctl(s, SIOCETHTOOL, request + bytes(16))


def pair(near, other, net, on, kernel_at_far=True):
    run("ip", "link", "add", near, "mtu", "1500", "type", "veth", "peer", "name", other, "mtu",
        "1500", "netns", str(far.pid))
    run("ip", "addr", "add", f"10.{net}.0.1/24", "dev", near)
    run("ip", "link", "set", near, "up")
    if kernel_at_far:
        run(*in_far("ip", "addr", "add", f"10.{net}.0.2/24", "dev", other))
    run(*in_far("ip", "link", "set", other, "up"))
    if not on:
        offloads(near, 0)
        run(*in_far(sys.executable, os.path.abspath(__file__), "--offloads-off", other))


def isolate():
    global far
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or libc.unshare(CLONE_NEWNET) != 0:
        sys.exit("links.py: no privilege to make network namespaces")
    run("ip", "link", "set", "lo", "up")
    far = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE)
    while os.readlink(f"/proc/{far.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
        time.sleep(0.01)
    pair("k0", "k1", 1, False)
    pair("p0", "p1", 2, False, kernel_at_far=False)
    pair("v0", "v1", 4, True)
    run("ip", "tuntap", "add", "wt0", "mode", "tap")
    run("ip", "addr", "add", "10.3.0.1/24", "dev", "wt0")
    run("ip", "link", "set", "wt0", "up")


@contextlib.contextmanager
def server(prefix, *argv, host):
    log = tempfile.TemporaryFile("w+")
    child = subprocess.Popen([*prefix, args.weir, "server", *argv], stdin=subprocess.DEVNULL,
                             stdout=log, stderr=log)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                socket.create_connection((host, 12866), timeout=1).close()
                break
            if child.poll() is not None:
                break
            time.sleep(0.02)
        if child.poll() is not None:
            log.seek(0)
            sys.exit(f"links.py: weir server ended: {log.read()}")
        yield
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def bench(test, host, prefix, *argv):
    with server(prefix, *argv, host=host):
        out = subprocess.run([args.weir, "bench", test, "-H", host, "--stack", "kernel", "-l",
                              str(args.l), "-J"], stdin=subprocess.DEVNULL, capture_output=True,
                             text=True)
    if out.returncode:
        sys.exit(f"links.py: bench {test} -H {host}: {out.stderr}")
    result = json.loads(out.stdout)
    value = result["transactions_per_s"] if "RR" in test else result["throughput_mbps"]
    return float(value)


def kernel_off(test):
    return bench(test, "10.1.0.2", in_far(), "--stack", "kernel")


def kernel_on(test):
    return bench(test, "10.4.0.2", in_far(), "--stack", "kernel")


def packet(test):
    return bench(test, "10.2.0.2", in_far(), "--link", PACKET_LINK)


def packet_polling(test):
    return bench(test, "10.2.0.2", in_far(), "--link", PACKET_LINK, *POLL)


def tap(test):
    return bench(test, "10.3.0.2", (), "--link", TAP_LINK)


def tap_polling(test):
    return bench(test, "10.3.0.2", (), "--link", TAP_LINK, *POLL)


def pump(test):
    direction = {"TCP_STREAM": "in", "TCP_MAERTS": "out"}[test]
    out = subprocess.run([args.pump, "wt0", direction, str(args.l)], stdin=subprocess.DEVNULL,
                         capture_output=True, text=True)
    if out.returncode:
        sys.exit(f"links.py: pump: {out.stderr}")
    return float(out.stdout)


def reflector(test):
    mode = {"TCP_RR": "rr", "TCP_CRR": "crr"}[test]
    serve = subprocess.Popen([*in_far(args.reflector, "serve", "p1", "10.2.0.2"), mode],
                             stdin=subprocess.DEVNULL)
    try:
        out = subprocess.run([args.reflector, mode, "10.2.0.2", str(args.l)], capture_output=True,
                             stdin=subprocess.DEVNULL, text=True)
    finally:
        serve.kill()
        serve.wait()
    if out.returncode:
        sys.exit(f"links.py: reflector: {out.stderr}")
    return float(out.stdout)


# name: (test, the one in question, what it is compared with: (name, function, wanted ratio)...)
TESTS = {
    "packet-out": ("TCP_MAERTS", packet, ("kernel", kernel_off, 1.0)),
    "packet-in": ("TCP_STREAM", packet, ("kernel", kernel_off, 1.1)),
    "packet-rr": ("TCP_RR", packet_polling, ("kernel", kernel_off, 1.4),
                  ("reflector", reflector, None)),
    "packet-crr": ("TCP_CRR", packet_polling, ("kernel", kernel_off, 1.8),
                   ("reflector", reflector, None)),
    "packet-rr-sleeping": ("TCP_RR", packet, ("kernel", kernel_off, None)),
    "packet-crr-sleeping": ("TCP_CRR", packet, ("kernel", kernel_off, None)),
    "tap-out": ("TCP_MAERTS", tap, ("kernel", kernel_on, 0.45), ("pump", pump, 0.8)),
    "tap-in": ("TCP_STREAM", tap, ("kernel", kernel_on, 0.45), ("pump", pump, 0.8)),
    "tap-rr": ("TCP_RR", tap, ("kernel", kernel_on, None)),
    "tap-crr": ("TCP_CRR", tap, ("kernel", kernel_on, None)),
}


def measure(name):
    test, ours, *others = TESTS[name]
    built = {pump: args.pump, reflector: args.reflector}
    others = [o for o in others if built.get(o[1], True)]
    contenders = [("weir", ours), *((o[0], o[1]) for o in others)]
    values = {label: [] for label, _ in contenders}
    for i in range(args.n):
        turn = i % len(contenders)
        for label, function in contenders[turn:] + contenders[:turn]:
            values[label].append(function(test))
        print(f"{name}: round {i + 1} of {args.n}", end="\r", file=sys.stderr)
    rows = []
    for label, _, wanted in others:
        ratios = sorted(a / b for a, b in zip(values["weir"], values[label]))
        rows.append({"test": name, "weir": statistics.median(values["weir"]), "against": label,
                     "other": statistics.median(values[label]), "ratio": statistics.median(ratios),
                     "lowest": ratios[0], "highest": ratios[-1], "wanted": wanted,
                     "unit": "trans/s" if "RR" in test else "Mbit/s"})
    return rows


def parse():
    p = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].strip())
    p.add_argument("weir")
    p.add_argument("--pump")
    p.add_argument("--reflector")
    p.add_argument("-n", type=int, default=5)
    p.add_argument("-l", type=float, default=2)
    p.add_argument("-t", default=",".join(TESTS))
    p.add_argument("-J", action="store_true")
    a = p.parse_args()
    a.weir = os.path.abspath(a.weir)
    for tool, name in ("pump", "tap_pump"), ("reflector", "packet_reflector"):
        beside = os.path.join(os.path.dirname(a.weir), "tests/bench", name)
        if not getattr(a, tool) and os.path.exists(beside):
            setattr(a, tool, beside)
    a.t = a.t.split(",")
    for t in a.t:
        if t not in TESTS:
            p.error(f"{t}: no such test; there are {', '.join(TESTS)}")
    return a


def main():
    global args
    if sys.argv[1:2] == ["--offloads-off"]:
        offloads(sys.argv[2], 0)
        return
    args = parse()
    for tool in ("ip", "nsenter", "unshare"):
        if not shutil.which(tool):
            sys.exit(f"links.py: {tool} is not installed")
    isolate()
    everything = []
    try:
        for name in args.t:
            for r in measure(name):
                everything.append(r)
                if not args.J:
                    wanted = f", wanted {r['wanted']}" if r["wanted"] else ""
                    print(f"{r['test']:20} {r['weir']:9.0f} {r['unit']}, {r['against']} "
                          f"{r['other']:9.0f}: {r['ratio']:.2f} ({r['lowest']:.2f} to "
                          f"{r['highest']:.2f}{wanted})", flush=True)
    finally:
        far.stdin.close()
        far.wait()
    if args.J:
        json.dump(everything, sys.stdout, indent=1)
        print()


if __name__ == "__main__":
    main()

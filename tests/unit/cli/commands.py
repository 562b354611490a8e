#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Goal: the commands of `weir` keep their contract: exit codes, valid JSON, sums that agree, bytes that arrive.
Bound: each test lasts under two seconds of measuring; the kernel's loopback and Weir's memory link, no privilege."""

import errno
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

WEIR = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "weir"
TIMEOUT = 60


def weir(*args, **kw):
    return subprocess.run([WEIR, *map(str, args)], capture_output=True, timeout=TIMEOUT, **kw)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Running:
    """A command that says "listening" on standard error when it is ready."""

    def __init__(self, *args, ready=b"listening", **kw):
        self.p = subprocess.Popen([WEIR, *map(str, args)], stderr=subprocess.PIPE, **kw)
        line = self.p.stderr.readline()
        assert ready in line, line

    def __enter__(self):
        return self.p

    def __exit__(self, *_):
        if self.p.poll() is None:
            self.p.kill()
        for f in (self.p.stdin, self.p.stdout, self.p.stderr):
            if f and not f.closed:
                f.close()
        self.p.wait()


def strict_json(text):
    def refuse(name):
        raise ValueError("not JSON: " + name)
    return json.loads(text, parse_constant=refuse)


class Usage(unittest.TestCase):
    def test_help_and_version(self):
        r = weir("--help")
        self.assertEqual(r.returncode, 0)
        commands = re.findall(r"^  (\w+) ", r.stdout.decode(), re.M)
        self.assertIn("bench", commands)
        for c in commands:
            h = weir(c, "--help")
            self.assertEqual(h.returncode, 0, c)
            self.assertTrue(h.stdout.startswith(b"usage: weir " + c.encode()), c)
            self.assertEqual(h.stderr, b"")
        self.assertRegex(weir("--version").stdout, rb"^weir \d")

    def test_mistakes(self):
        for line in ("", "nosuch", "bench", "bench NOSUCH", "bench TCP_RR -l x", "server", "server --link mem",
                     "server -p 0 --stack kernel", "nc", "nc host", "nc --stack kernel host 0", "nc -l 1",
                     "serve", "serve /", "serve --stack kernel / /", "copy a", "copy --link tap:x a b",
                     "sysctl", "sysctl -w x", "netstat -q", "tcpdrop", "sysctl --control"):
            r = weir(*line.split())
            self.assertEqual(r.returncode, 2, line)
            self.assertEqual(r.stdout, b"", line)
            self.assertNotEqual(r.stderr, b"", line)

    def test_what_can_be_meant_nowhere(self):
        """A link, a knob, a value or a congestion control that there is not is usage; what this
        machine does not have or allow is a failure."""
        for line in ("bench TCP_RR", "copy a b", "serve /", "server", "nc -l 80"):
            link = "mem" if line.split()[0] in ("bench", "copy") else "tap:nosuch0"
            good = ["--link", link + ",addr=10.1.1.1/24"]
            for options, why in ((["--link", link + ",delay=x"], "delay"),
                                 (["--link", link + ",nosuch=1"], "nosuch"),
                                 (good + ["--set", "no.such=1"], "no.such"),
                                 (good + ["--set", "net.inet.tcp.msl=x"], "type"),
                                 (good + ["--set", "net.inet.tcp.msl=0"], "range"),
                                 *([] if line == "server" else
                                   [(good + ["--cc", "nosuch"], "newreno|cubic")])):
                r = weir(*line.split(), *options)
                self.assertEqual(r.returncode, 2, (line, options, r.stderr))
                self.assertEqual(r.stdout, b"", (line, options))
                self.assertIn(why.encode(), r.stderr, (line, options))
        r = weir("serve", "/nosuch", "--link", "tap:x,addr=10.1.1.1/24")
        self.assertEqual(r.returncode, 1, r.stderr)
        r = weir("bench", "TCP_RR", "--stack", "kernel", "-l", "0.1", "--cc", "nosuch")
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"congestion control nosuch", r.stderr)

    def test_full_disk_is_an_error(self):
        with open("/dev/full", "w") as full:
            r = subprocess.run([WEIR, "--help"], stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT)
        self.assertEqual(r.returncode, 1)


class Bench(unittest.TestCase):
    def check(self, d, test, stack):
        self.assertEqual((d["test"], d["stack"]), (test, stack))
        self.assertEqual(sum(i["bytes"] for i in d["intervals"]), d["bytes"])
        self.assertEqual(d["intervals"][0]["start"], 0)
        for a, b in zip(d["intervals"], d["intervals"][1:]):
            self.assertEqual(a["end"], b["start"])
        self.assertAlmostEqual(d["intervals"][-1]["end"], d["seconds"])
        self.assertGreater(d["bytes"], 0)
        stream = test in ("TCP_STREAM", "TCP_MAERTS", "TCP_SENDFILE")
        if stream:
            self.assertAlmostEqual(d["throughput_mbps"], d["bytes"] * 8e-6 / d["seconds"], delta=0.01)
            self.assertIsNone(d["transactions_per_s"])
        else:
            self.assertGreater(d["transactions_per_s"], 0)
            self.assertIsNone(d["throughput_mbps"])
            self.assertGreater(d["latency_us"]["max"], 0)
        for side in ("local_pct", "remote_pct"):
            self.assertTrue(0 <= d["cpu"][side] <= 100 * os.cpu_count(), d["cpu"])

    # case: MEA-013
    # case: MEA-017
    def test_every_test_on_both_stacks(self):
        for stack in ("weir", "kernel"):
            for test in ("TCP_STREAM", "TCP_MAERTS", "TCP_RR", "TCP_CRR"):
                for streams in (1, 3):
                    with self.subTest(stack=stack, test=test, streams=streams):
                        for seconds in (0.3, 3, 10):  # where others keep the processors busy
                            r = weir("bench", test, "--stack", stack, "-l", seconds, "-i", seconds / 3,
                                     "-O", 0.05, "-P", streams, "-J")
                            self.assertEqual(r.returncode, 0, r.stderr)
                            d = strict_json(r.stdout)
                            if d["bytes"] and d["transactions_per_s"] != 0:
                                break
                        self.check(d, test, stack)
                        self.assertEqual(d["streams"], streams)

    def test_many_streams(self):
        """More streams than threads: every test on both stacks; a thousand at once; each has its part in the sum."""
        runs = [(stack, test, 20) for stack in ("weir", "kernel")
                for test in ("TCP_STREAM", "TCP_MAERTS", "TCP_SENDFILE", "TCP_RR", "TCP_CRR")]
        runs += [("weir", "TCP_STREAM", 1000), ("weir", "TCP_CRR", 1000), ("kernel", "TCP_RR", 1000)]
        small = tempfile.NamedTemporaryFile()
        small.write(bytes(300000))
        small.flush()
        for stack, test, streams in runs:
            with self.subTest(stack=stack, test=test, streams=streams):
                extra = ("-F", small.name) if test == "TCP_SENDFILE" else ()
                for seconds in (0.3, 3, 10):
                    r = weir("bench", test, "--stack", stack, "-l", seconds, "-P", streams, "-J", *extra)
                    self.assertEqual(r.returncode, 0, r.stderr)
                    d = strict_json(r.stdout)
                    if d["bytes"] and all(s["bytes"] for s in d["per_stream"]):
                        break
                self.check(d, test, stack)
                each = d["per_stream"]
                self.assertEqual(len(each), streams)
                self.assertTrue(all(s["bytes"] for s in each))
                self.assertEqual(sum(s["bytes"] for s in each), d["bytes"])
                jain = d["bytes"] ** 2 / (streams * sum(s["bytes"] ** 2 for s in each))
                self.assertAlmostEqual(d["fairness"], jain, delta=1e-9)
                if "RR" in test:
                    self.assertEqual(d["bytes"], 2 * d["transactions"])
                    self.assertGreater(d["latency_us"]["count"], 0)

    # case: MEA-014
    def test_datagrams(self):
        """Sizes from nothing to over the MTU; intervals add up; the receiver's counts stay in their bounds."""
        for stack in ("weir", "kernel"):
            for test, args in (("UDP_STREAM", ("-m", 32)), ("UDP_STREAM", ("-m", 20000, "-P", 2, "--verify")),
                               ("UDP_RR", ("-r", "0,0")), ("UDP_RR", ("-r", "1,4000", "-P", 3))):
                with self.subTest(stack=stack, test=test, args=args):
                    rate = ("-b", "5M") if test == "UDP_STREAM" else ()
                    for seconds in (0.3, 3, 10):
                        r = weir("bench", test, "--stack", stack, "-l", seconds, "-i", seconds / 3, "-O", 0.05, "-J", *rate, *args)
                        self.assertEqual(r.returncode, 0, r.stderr)
                        d = strict_json(r.stdout)
                        if d["udp"].get("received", d["transactions"]):
                            break
                    self.assertEqual(sum(i["bytes"] for i in d["intervals"]), d["bytes"])
                    if test == "UDP_RR":
                        self.assertGreater(d["transactions"], 0)
                        continue
                    self.assertEqual(d["bytes"], d["udp"]["received"] * d["message_bytes"])
                    for o in (d["udp"], *(i["udp"] for i in d["intervals"])):
                        self.assertTrue(all(o[k] >= 0 for k in ("sent", "received", "lost", "reordered", "duplicates")))
                        self.assertTrue(o["lost_pct"] is None or 0 <= o["lost_pct"] <= 100)

    def test_lost_datagrams(self):
        """A request that is lost is sent again; without anything received the share of loss is null."""
        d = strict_json(weir("bench", "UDP_RR", "-l", 2, "-J", "--link", "mem,loss=5%,seed=3").stdout)
        self.assertGreater(d["transactions"], 0)
        self.assertGreater(d["udp"]["retried"], 0)
        r = weir("bench", "UDP_STREAM", "--stack", "kernel", "-H", "127.0.0.1", "-p", free_port(), "-l", 1, "-J")
        self.assertEqual(r.returncode, 1)
        self.assertTrue(strict_json(r.stdout)["error"])

    def test_verify(self):
        for args in (("TCP_STREAM",), ("TCP_MAERTS", "-P", 6), ("TCP_STREAM", "-m", 1), ("UDP_STREAM", "-b", "10M")):
            r = weir("bench", *args, "-l", 0.2, "--verify", "-J")
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIs(strict_json(r.stdout)["verify"], True)

    def test_streams_are_told_in_text(self):
        for streams, listed in ((3, True), (20, True), (100, False)):
            out = weir("bench", "TCP_STREAM", "-l", 0.2, "-P", streams).stdout.decode()
            self.assertRegex(out, r"(?m)^Fairness \(Jain's index\): [01]\.\d{4}$")
            self.assertRegex(out, r"(?m)^Each stream, 10\^9bits/s:  lowest [0-9.]+ .* highest [0-9.]+$")
            self.assertEqual(len(re.findall(r"\[ *\d+\] +[0-9.]+ MB +[0-9.]+", out)), streams if listed else 0)
        self.assertNotIn("Fairness", weir("bench", "TCP_STREAM", "-l", 0.1).stdout.decode())

    def test_the_comparison_with_the_loopback(self):
        """The benchmark of the memory link has each of its rows, with figures that agree."""
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench/memory.py")
        for seconds in (0.2, 1, 5):  # where others keep the processors busy
            r = subprocess.run([sys.executable, script, WEIR, "-n", "1", "-l", str(seconds), "-J"], capture_output=True, timeout=150)
            if r.returncode == 0:
                break
        self.assertEqual(r.returncode, 0, r.stderr)
        rows = {(x["test"], x["against"]): x for x in strict_json(r.stdout)}
        self.assertEqual(set(rows), {
            ("stream", "kernel"), ("stream", "two bare copies"), ("rr", "kernel, across cores"), ("rr", "kernel, spinning"),
            ("rr", "kernel, one core"), ("rr", "kernel, best"), ("crr", "kernel"), ("streams-16", "one stream"),
            ("streams-16", "fairness"), ("streams-1000", "one stream"), ("streams-1000", "fairness")})
        for x in rows.values():
            if x["other"]:
                self.assertAlmostEqual(x["ratio"], x["weir"] / x["other"])
            self.assertEqual(x["holds"], x["ratio"] >= x["wanted"] if x["wanted"] else None)
        rr = [v["other"] for (test, against), v in rows.items() if test == "rr" and against != "kernel, best"]
        self.assertEqual(rows["rr", "kernel, best"]["other"], max(rr))
        for bad in (("-t", "nosuch"), ("-n", "0"), ("-l", "0")):
            self.assertEqual(subprocess.run([sys.executable, script, WEIR, *bad], capture_output=True).returncode, 2)

    def test_bad_numbers_of_streams(self):
        for bad in ("0", "-1", "2049", "1k", "x", "", "99999999999999999999"):
            r = weir("bench", "TCP_STREAM", "-P", bad)
            self.assertEqual(r.returncode, 2)
            self.assertIn(b"is not a number of streams from 1 to 2048", r.stderr)
            self.assertEqual(r.stdout, b"")

    def test_descriptors_run_out(self):
        """An end that cannot have so many sockets says so, and ends."""
        r = subprocess.run(["bash", "-c", 'ulimit -n 100 && exec "$0" "$@"', WEIR, "bench", "TCP_RR", "--stack", "kernel", "-P", "200",
                            "-l", "1", "-J"], capture_output=True, timeout=TIMEOUT)
        self.assertEqual(r.returncode, 1)
        self.assertIn(os.strerror(errno.EMFILE), strict_json(r.stdout)["error"])

    # case: MEA-044
    # case: MEA-046
    def test_a_point_for_each_step(self):
        """Slow link with delay: no step is missing, and the steps have a place in absolute time."""
        before = time.time()
        r = weir("bench", "TCP_STREAM", "-l", 1, "-i", 0.1, "-J", "--link", "mem,delay=28ms,rate=10Mbit")
        self.assertEqual(r.returncode, 0, r.stderr)
        d = strict_json(r.stdout)
        self.assertEqual(len(d["intervals"]), 10)
        for a, b in zip(d["intervals"], d["intervals"][1:]):
            self.assertEqual(a["end"], b["start"])
            self.assertGreater(b["end"], b["start"])
        self.assertEqual(sum(i["bytes"] for i in d["intervals"]), d["bytes"])
        self.assertLessEqual(before, d["start_time"])
        self.assertLessEqual(d["start_time"] + d["seconds"], time.time())

    def test_limit_and_locks(self):
        """The limit and the locks are in the result only when asked for."""
        r = weir("bench", "TCP_STREAM", "-l", 0.1, "-J", "--limit", "--locks")
        self.assertEqual(r.returncode, 0, r.stderr)
        d = strict_json(r.stdout)
        self.assertTrue(1 <= len(d["limit"]["runs"]) <= 5)
        self.assertEqual(max(d["limit"]["runs"]), d["limit"]["throughput_mbps"])
        self.assertAlmostEqual(d["limit"]["share_pct"], 100 * d["throughput_mbps"] / d["limit"]["throughput_mbps"], delta=0.01)
        self.assertIn("so_rcv", d["locks"])
        for lock in d["locks"].values():
            self.assertEqual(set(lock), {"contended", "spins", "blocks", "per_gb"})
            self.assertGreaterEqual(lock["contended"], lock["spins"] + lock["blocks"])
            if d["bytes"] > 0:
                self.assertAlmostEqual(lock["per_gb"], lock["contended"] * 1e9 / d["bytes"], places=3)
        plain = strict_json(weir("bench", "TCP_RR", "-l", 0.05, "-J").stdout)
        self.assertNotIn("limit", plain)
        self.assertNotIn("locks", plain)
        self.assertIsNone(strict_json(weir("bench", "TCP_RR", "-l", 0.05, "-J", "--limit").stdout)["limit"]["share_pct"])
        text = weir("bench", "TCP_STREAM", "-l", 0.05, "--limit", "--locks").stdout.decode()
        self.assertRegex(text, r"Limit: .* Mb/s at best; this is [0-9.]+ % of it")
        self.assertRegex(text, r"(?m)^so_rcv +\d+ +\d+ +\d+ +[0-9.-]+$")

    def test_pipe(self):
        for message in ("1", "128K", "200000"):
            d = strict_json(weir("bench", "PIPE", "-l", 0.1, "-m", message, "-J").stdout)
            self.assertEqual(d["test"], "PIPE")
            self.assertEqual(max(d["runs"]), d["throughput_mbps"])
        self.assertRegex(weir("bench", "PIPE", "-l", 0.05).stdout.decode(), r"best of [1-5]: [0-9.]+ 10\^6bits/s")

    def test_placements(self):
        """Cores and polling are for both stacks, and kept apart from what is measured."""
        core = sorted(os.sched_getaffinity(0))[0]
        for stack in ("weir", "kernel"):
            for args in (("-T", core), ("-T", f"{core},"), ("--spin",), *([("--stack-cpu", core)] if stack == "weir" else [])):
                r = weir("bench", "TCP_RR", "--stack", stack, "-l", 0.1, "-J", *args)
                self.assertEqual(r.returncode, 0, r.stderr)
                d = strict_json(r.stdout)
                self.assertIs(d["spin"], args == ("--spin",))
                if stack == "weir":
                    self.assertEqual(d["sysctl"].get("machdep.cpu_idle_hlt"), 0 if d["spin"] else None)

    # case: MEA-004
    # case: MEA-020
    def test_failures_are_one_document(self):
        port = free_port()
        for args in (("-H", "127.0.0.1", "-p", port), ("--cc", "nosuch")):
            r = weir("bench", "TCP_STREAM", "--stack", "kernel", "-l", 1, "-J", *args)
            self.assertEqual(r.returncode, 1)
            d = strict_json(r.stdout)
            self.assertTrue(d["error"])
            self.assertNotIn("bytes", d)
        r = weir("bench", "TCP_STREAM", "--set", "no.such.knob=1", "-J")
        self.assertEqual(r.returncode, 2)
        self.assertIn("no.such.knob", strict_json(r.stdout)["error"])

    # case: MEA-043
    def test_length_zero_until_sigint(self):
        p = subprocess.Popen([WEIR, "bench", "TCP_RR", "-l", "0", "-i", "0.1"], stdout=subprocess.PIPE)
        for line in p.stdout:  # it runs: there is an interval
            if b"Trans/sec" in line:
                break
        p.send_signal(signal.SIGINT)
        rest = p.stdout.read().decode()
        p.stdout.close()
        self.assertEqual(p.wait(TIMEOUT), 0)
        self.assertIn("per sec", rest)

    # case: MEA-005
    def test_knobs_are_recorded_and_stdout_is_json_only(self):
        r = weir("bench", "TCP_RR", "-l", 0.1, "-J", "--set", "net.inet.tcp.delacktime=39",
                 "--set-remote", "net.inet.tcp.delacktime=38", "--link", "mem,delay=1ms")
        d = strict_json(r.stdout)
        self.assertEqual(d["sysctl"]["net.inet.tcp.delacktime"], 39)
        self.assertEqual(d["sysctl_remote"]["net.inet.tcp.delacktime"], 38)
        self.assertEqual(d["link"], "mem,delay=1ms")
        self.assertGreaterEqual(d["latency_us"]["max"], 2000)

    def test_table(self):
        out = weir("bench", "TCP_STREAM", "-l", 0.2, "-i", 0.1).stdout.decode()
        self.assertRegex(out, r"(?m)^\[  1\] 0\.00-0\.\d\d sec +[\d.]+ [KMG]?Bytes +[\d.]+ [KMG]?bits/sec$")
        self.assertIn("Size   Size    Size     Time     Throughput", out)
        self.assertIn("share of one core", out)

    def test_server(self):
        port = free_port()
        with Running("server", "--stack", "kernel", "-p", port) as server:
            with socket.create_connection(("127.0.0.1", port)) as bad:
                bad.sendall(b"GET / HTTP/1.0\r\n\r\n")
                self.assertIn(b"error", bad.recv(1000))
            silent = socket.create_connection(("127.0.0.1", port))
            killed = subprocess.Popen([WEIR, "bench", "TCP_STREAM", "--stack", "kernel", "-H", "127.0.0.1", "-p", str(port),
                                       "-l", "30", "-i", "0.05"], stdout=subprocess.PIPE)
            killed.stdout.readline()
            killed.stdout.readline()
            killed.kill()
            for test in ("TCP_STREAM", "TCP_MAERTS", "TCP_RR", "TCP_CRR"):
                r = weir("bench", test, "--stack", "kernel", "-H", "127.0.0.1", "-p", port, "-l", 0.2, "-i", 0.1, "-P", 2, "-J")
                self.assertEqual(r.returncode, 0, r.stderr)
                self.check(strict_json(r.stdout), test, "kernel")
            for test, streams in (("TCP_STREAM", 1000), ("TCP_MAERTS", 20), ("TCP_RR", 20), ("TCP_CRR", 20)):
                for seconds in (0.3, 3, 10):
                    r = weir("bench", test, "--stack", "kernel", "-H", "127.0.0.1", "-p", port, "-l", seconds, "-P", streams, "-J")
                    self.assertEqual(r.returncode, 0, r.stderr)
                    d = strict_json(r.stdout)
                    if all(s["bytes"] for s in d["per_stream"]):
                        break
                self.check(d, test, "kernel")
                self.assertEqual(sum(s["bytes"] for s in d["per_stream"]), d["bytes"])
                self.assertEqual(sum(s["bytes"] > 0 for s in d["per_stream"]), streams)
            r = weir("bench", "TCP_RR", "--stack", "kernel", "-H", "127.0.0.1", "-p", port, "-l", 0.1, "-J",
                     "--set-remote", "net.inet.tcp.msl=1")
            self.assertEqual(r.returncode, 1)
            self.assertIn("kernel", strict_json(r.stdout)["error"])
            killed.wait()
            killed.stdout.close()
            silent.close()
            p = subprocess.Popen([WEIR, "bench", "TCP_STREAM", "--stack", "kernel", "-H", "127.0.0.1", "-p", str(port),
                                  "-l", "30", "-J"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            threading.Timer(0.5, server.kill).start()
            out, _ = p.communicate(timeout=TIMEOUT)
            self.assertEqual(p.returncode, 1)
            self.assertTrue(strict_json(out)["error"])


class Copy(unittest.TestCase):
    def test_copy(self):
        data = os.urandom(3_000_001)
        with tempfile.TemporaryDirectory() as d:
            src, dst = os.path.join(d, "src"), os.path.join(d, "dst")
            with open(src, "wb") as f:
                f.write(data)
            for link in ("mem", "mem,delay=1ms,loss=1%,reorder=5%:3,seed=3", "mem,mtu=9000,dup=2%,seed=4"):
                r = weir("copy", src, dst, "--link", link, "-J")
                self.assertEqual(r.returncode, 0, r.stderr)
                o = strict_json(r.stdout)
                self.assertEqual((o["bytes"], o["same"]), (len(data), True))
                self.assertEqual(o["sha256_source"], hashlib.sha256(data).hexdigest())
                with open(dst, "rb") as f:
                    self.assertEqual(f.read(), data)
            self.assertEqual(weir("copy", src, "/dev/null").returncode, 0)
            self.assertEqual(weir("copy", os.path.join(d, "none"), dst).returncode, 1)
            self.assertEqual(weir("copy", src, src).returncode, 1)
            self.assertEqual(weir("copy", src, "/dev/full").returncode, 1)
            with open(src, "wb"):
                pass
            self.assertEqual(strict_json(weir("copy", src, dst, "-J").stdout)["bytes"], 0)


class Nc(unittest.TestCase):
    def run_pair(self, there, here):
        port = free_port()
        with Running("nc", "-v", "-l", "--stack", "kernel", port, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
            results = {}
            t = threading.Thread(target=lambda: results.update(out=listener.communicate(there)[0]))
            t.start()
            r = weir("nc", "--stack", "kernel", "127.0.0.1", port, input=here)
            t.join(TIMEOUT)
            return results["out"], r.stdout, listener.returncode, r.returncode

    def test_both_directions_to_the_end(self):
        for a, b in ((b"", b""), (b"x" * 5_000_000, b"hello"), (b"hello", b"y" * 5_000_000)):
            got_there, got_here, code_there, code_here = self.run_pair(a, b)
            self.assertEqual((code_there, code_here), (0, 0))
            self.assertTrue(got_there == b and got_here == a)

    def test_refused(self):
        r = weir("nc", "--stack", "kernel", "127.0.0.1", free_port(), stdin=subprocess.DEVNULL)
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"refused", r.stderr)

    def test_peer_ends_while_input_is_idle(self):
        port = free_port()
        with Running("nc", "-v", "-l", "--stack", "kernel", port, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
            r = weir("nc", "--stack", "kernel", "127.0.0.1", port, input=b"bye")
            self.assertEqual(r.returncode, 0)
            self.assertEqual(listener.wait(TIMEOUT), 0)
            self.assertEqual(listener.stdout.read(), b"bye")


class Serve(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.data = os.urandom(2_000_000)
        with open(os.path.join(self.dir.name, "data"), "wb") as f:
            f.write(self.data)
        with open(os.path.join(self.dir.name, "a.txt"), "w") as f:
            f.write("hello")
        self.port = free_port()
        self.server = Running("serve", self.dir.name, "--stack", "kernel", "-p", self.port, "-c", 50)

    def tearDown(self):
        self.server.__exit__()
        self.dir.cleanup()

    def connect(self):
        s = socket.create_connection(("127.0.0.1", self.port), TIMEOUT)
        return s, s.makefile("rb")

    @staticmethod
    def response(f, head=False):
        status = f.readline()
        fields = {}
        while (line := f.readline().strip()):
            k, v = line.decode().split(": ", 1)
            fields[k.lower()] = v
        return int(status.split()[1]), fields, b"" if head else f.read(int(fields.get("content-length", 0)))

    def test_pipelined_on_one_connection(self):
        s, f = self.connect()
        get = b"GET /data HTTP/1.1\r\nHost: h\r\n\r\n"
        s.sendall(get * 5 + get.replace(b"GET", b"HEAD") + get.replace(b"data", b"a.txt"))
        for _ in range(5):
            status, _, body = self.response(f)
            self.assertTrue(status == 200 and body == self.data)
        self.assertEqual(self.response(f, head=True)[0], 200)
        self.assertEqual(self.response(f)[2], b"hello")
        s.close()

    def test_byte_by_byte_and_half_closed(self):
        s, f = self.connect()
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for c in b"GET /a.txt HTTP/1.1\r\nHost: h\r\n\r\n":
            s.send(bytes([c]))
        s.shutdown(socket.SHUT_WR)
        self.assertEqual(self.response(f)[2], b"hello")
        self.assertEqual(f.read(), b"")
        s.close()

    def test_refusal_reaches_a_client_that_still_sends(self):
        s, f = self.connect()
        s.sendall(b"POST /a.txt HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100000)
        status, fields, _ = self.response(f)
        self.assertEqual((status, fields["connection"]), (405, "close"))
        self.assertEqual(fields["allow"], "GET, HEAD")
        s.close()

    def test_more_clients_than_places(self):
        many = [self.connect() for _ in range(80)]
        for s, _ in many:
            s.sendall(b"GET /a.txt HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        for s, f in many:
            self.assertEqual(self.response(f)[2], b"hello")
            f.close()
            s.close()

    def test_file_that_shrinks(self):
        path = os.path.join(self.dir.name, "big")
        with open(path, "wb") as f:
            f.truncate(300_000_000)
        s, f = self.connect()
        s.sendall(b"GET /big HTTP/1.1\r\nHost: h\r\n\r\n")
        f.readline()
        os.truncate(path, 1000)
        total = sum(len(b) for b in iter(lambda: f.read(65536), b""))
        self.assertLess(total, 300_000_000)
        s.close()
        s, f = self.connect()  # and the server lives
        s.sendall(b"GET /a.txt HTTP/1.0\r\n\r\n")
        self.assertEqual(self.response(f)[0], 200)
        s.close()


class Control(unittest.TestCase):
    def test_look_into_a_running_bench(self):
        place = tempfile.gettempdir()  # a socket's path has 107 bytes at most
        with tempfile.TemporaryDirectory(dir=place if len(place) < 70 else "/tmp") as run_dir:
            env = dict(os.environ, XDG_RUNTIME_DIR=run_dir)
            self.assertEqual(weir("netstat", "-an", env=env).returncode, 1)
            p = subprocess.Popen([WEIR, "bench", "TCP_RR", "-l", "0", "-i", "0.05"], stdout=subprocess.PIPE, env=env)
            self.addCleanup(p.kill)
            for line in p.stdout:
                if b"Trans/sec" in line:
                    break
            sock = os.path.join(run_dir, "weir", "%d.sock" % p.pid)
            out = weir("--control", sock, "netstat", "-an", env=env).stdout.decode()
            self.assertRegex(out, r"(?m)^tcp4 .* ESTABLISHED bench-local$")
            self.assertRegex(out, r"(?m)^tcp4 .* LISTEN +bench-remote$")
            r = weir("sysctl", "-n", "-S", "bench-local", "net.inet.tcp.msl", env=env)
            self.assertEqual((r.returncode, r.stdout), (0, b"30000\n"))
            r = weir("sysctl", "--control", sock, "-w", "net.inet.tcp.nosuch=1", env=env)
            self.assertEqual(r.returncode, 1)
            counters = strict_json(weir("netstat", "-sJ", env=env).stdout)
            self.assertEqual([c["stack"] for c in counters], ["bench-local", "bench-remote"])
            self.assertEqual(counters[0]["counters"]["tcp.connects"], 1)
            self.assertEqual(weir("tcpdrop", "-s", "ESTABLISHED", env=env).returncode, 0)
            p.stdout.read()
            p.stdout.close()
            self.assertEqual(p.wait(TIMEOUT), 1)
            self.assertEqual(os.listdir(os.path.join(run_dir, "weir")), [])


if __name__ == "__main__":
    unittest.main(verbosity=1)

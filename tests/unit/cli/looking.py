#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Goal: weir tcpdump, weir metrics, weir netstat -e and the USDT probes say what a running instance does, in forms that the
tools they are for read; clients that vanish harm nothing. Bound: a stream over a slow memory link. Tools that are not there
are skipped, but for CI; nothing depends on how fast anything comes."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

WEIR = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "weir"
SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))
PATIENCE = 30


def tool(name):
    """The path of a tool; the test is skipped without it, unless this is CI."""
    path = shutil.which(name)
    if path is None and not os.environ.get("CI"):
        raise unittest.SkipTest(f"{name} is not installed")
    assert path, f"{name} is needed"
    return path


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="weir-looking-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.env = dict(os.environ, XDG_RUNTIME_DIR=self.dir)
        self.p = subprocess.Popen([WEIR, "bench", "TCP_STREAM", "-l", "0", "--link", "mem,rate=100Mbit", "--set",
                                   "kern.cputime=ticks"], env=self.env, stdout=subprocess.DEVNULL)
        self.addCleanup(self.stop)
        self.path = os.path.join(self.dir, "weir", f"{self.p.pid}.sock")
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            r = self.weir("netstat", "-J", "-e", "-t", "ESTABLISHED")
            if r.returncode == 0 and any(c.get("sent_bytes", 0) > 100000 for c in json.loads(r.stdout)):
                return
            time.sleep(0.05)
        self.fail("no stream")

    def stop(self):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGINT)
            self.p.wait(PATIENCE)

    def weir(self, *args, text=True):
        return subprocess.run([WEIR, *map(str, args)], capture_output=True, timeout=120, text=text, env=self.env)

    def good(self, *args, text=True):
        r = self.weir(*args, text=text)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def counter(self, name):
        return sum(s["counters"][name] for s in json.loads(self.good("netstat", "-s", "-J")))


def blocks(data):
    """(type, body) of each block of pcapng; both lengths are checked."""
    at = 0
    while at < len(data):
        kind, size = struct.unpack_from("=II", data, at)
        assert size % 4 == 0 and 12 <= size <= len(data) - at, (at, size)
        assert struct.unpack_from("=I", data, at + size - 4)[0] == size
        yield kind, data[at + 8:at + size - 4]
        at += size


class Tcpdump(Case):
    def test_file_is_whole(self):
        path = os.path.join(self.dir, "a.pcapng")
        self.good("tcpdump", "-c", 50, "-w", path, "tcp")
        with open(path, "rb") as f:
            all_blocks = list(blocks(f.read()))
        kinds = [k for k, _ in all_blocks]
        self.assertEqual(kinds[0], 0x0a0d0d0a)
        self.assertEqual(kinds.count(6), 50)
        self.assertEqual(kinds.count(1), kinds.count(5))  # each interface has its statistics
        self.assertEqual(kinds[-1], 5)
        seen = 0
        for kind, body in all_blocks:
            if kind == 1:
                seen += 1
            elif kind == 6:
                self.assertLess(struct.unpack_from("=I", body)[0], seen)
        now = time.time_ns()
        high, low = next(struct.unpack_from("=II", b, 4) for k, b in all_blocks if k == 6)
        self.assertLess(abs(now - (high << 32 | low)), 120e9)

    def test_tshark_reads_a_stream(self):
        tshark = tool("tshark")
        data = self.good("tcpdump", "-c", 200, "-w", "-", text=False)
        r = subprocess.run([tshark, "-r", "-", "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T",
                            "fields", "-e", "frame.interface_name", "-e", "frame.len", "-e", "tcp.checksum.status", "-e",
                            "ip.checksum.status", "-e", "frame.packet_flags_direction"], input=data, capture_output=True,
                           timeout=120, check=True)
        rows = [line.split("\t") for line in r.stdout.decode().splitlines()]
        self.assertEqual(len(rows), 200)
        self.assertEqual({(t, i) for _, _, t, i, _ in rows}, {("1", "1")})  # every checksum is right
        self.assertEqual({int(d, 0) for *_, d in rows}, {1, 2})
        self.assertIn("bench-local:mem", {n for n, *_ in rows})
        self.assertTrue(any(int(n) > 2000 for _, n, *_ in rows))  # superframes as they are

    def test_text_and_filter(self):
        lines = self.good("tcpdump", "-n", "-c", 20, "-i", "mem", "-S", "bench-local", "src", "host", "10.0.0.2").splitlines()
        self.assertEqual(len(lines), 20)
        for line in lines:
            self.assertRegex(line, r"^\d\d:\d\d:\d\d\.\d{9} bench-local:mem In IP 10\.0\.0\.2\.\d+ > 10\.0\.0\.1\.\d+: "
                                   r"Flags \[.*\], seq \d+.*, win \d+.* length 0$")
        self.assertEqual(self.weir("tcpdump", "no such thing").returncode, 2)
        self.assertEqual(self.weir("tcpdump", "-c", "0").returncode, 2)

    def test_snaplen(self):
        data = self.good("tcpdump", "-c", 20, "-s", 60, "-w", "-", "greater", "1000", text=False)
        sizes = [struct.unpack_from("=II", b, 12) for k, b in blocks(data) if k == 6]
        self.assertEqual({caplen for caplen, _ in sizes}, {60})
        self.assertTrue(all(size >= 1000 for _, size in sizes))

    def test_interrupted(self):
        p = subprocess.Popen([WEIR, "tcpdump", "-w", "-", "tcp[13] & 2 != 0"], env=self.env, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        p.stdout.read(8)  # it is at work: the section's head
        p.send_signal(signal.SIGINT)
        p.communicate(timeout=PATIENCE)
        self.assertEqual(p.returncode, 0)

    def test_instance_ends(self):
        p = subprocess.Popen([WEIR, "tcpdump", "-w", "-"], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        head = p.stdout.read(1000)
        self.p.send_signal(signal.SIGINT)  # it ends while somebody reads
        rest = p.stdout.read()
        p.stdout.close()
        self.assertEqual(p.wait(PATIENCE), 0)
        self.assertEqual([k for k, _ in blocks(head + rest)][-1], 5)  # the statistics came out

    def test_command(self):
        out = self.good("tcpdump", "-c", 5, "tcp", "--", WEIR, "bench", "TCP_STREAM", "-l", "1", "--link", "mem,rate=10Mbit")
        self.assertGreaterEqual(len([x for x in out.splitlines() if "Flags" in x]), 5)

    def request(self, *words):
        s = socket.socket(socket.AF_UNIX)
        self.addCleanup(s.close)
        s.connect(self.path)
        s.sendall(json.dumps({"argv": list(words)}).encode() + b"\n")
        line = b""
        while not line.endswith(b"\n"):
            line += s.recv(1)
        return s, json.loads(line)

    def test_bad_requests(self):
        for words in (["raw=1,5 0 0 4294967295"], ["raw=2,5 0 0 4294967295,6 0 0 0"], ["raw=1,6 0 0"], ["raw=x"], ["snaplen=0"],
                      ["snaplen=99999999999999999999"], ["buffer=1g"], ["interface="], ["x"], ["raw=513"], ["raw=1,0 0 0 0"]):
            _, o = self.request("tcpdump", *words)
            self.assertEqual(o["status"], 2, words)

    def test_slow_readers_lose_and_are_bounded(self):
        before = self.counter("tcp.rx_bytes")
        held = [self.request("tcpdump", "buffer=1") for _ in range(8)]
        self.assertEqual([o["status"] for _, o in held], [0] * 8)
        self.assertEqual(self.request("tcpdump")[1]["status"], 1)  # no place for more
        self.assertEqual(self.request("netstat")[1]["status"], 0)  # but for other questions
        end = time.monotonic() + PATIENCE
        while self.counter("tcp.rx_bytes") < before + 4000000 and time.monotonic() < end:
            time.sleep(0.05)
        self.assertGreaterEqual(self.counter("tcp.rx_bytes"), before + 4000000)  # nobody waits for them
        s = held[0][0]
        s.shutdown(socket.SHUT_WR)
        data = b""
        while chunk := s.recv(1 << 16):
            data += chunk
        lost = 0
        for kind, body in blocks(data):
            if kind == 5:
                lost += struct.unpack_from("=Q", body, body.index(struct.pack("=HH", 5, 8), 12) + 4)[0]
        self.assertGreater(lost, 0, [(k, len(b)) for k, b in blocks(data) if k != 6] + [len(data)])
        for s, _ in held[1:]:
            s.close()  # vanish
        end = time.monotonic() + PATIENCE
        while self.request("tcpdump")[1]["status"] != 0 and time.monotonic() < end:
            time.sleep(0.05)
        self.assertEqual(self.weir("tcpdump", "-c", "1").returncode, 0)


def parse_openmetrics(text):
    """Strictly: families whole and once, metadata before samples, suffixes by type, values numbers, the end marked."""
    families, current = {}, None
    lines = text.split("\n")
    assert lines[-2:] == ["# EOF", ""], lines[-2:]
    for line in lines[:-2]:
        m = re.fullmatch(r"# (TYPE|UNIT|HELP) ([a-z_][a-z0-9_]*) (.+)", line)
        if m:
            word, name, rest = m.groups()
            if word == "TYPE":
                assert name not in families and rest in ("counter", "gauge"), line
                current = families[name] = {"type": rest, "samples": {}}
                current["name"] = name
            assert current["name"] == name and not current["samples"] and (word == "TYPE" or word not in current), line
            if word == "UNIT":
                assert name.endswith("_" + rest), line
            current[word] = rest
            continue
        m = re.fullmatch(r'([a-z_][a-z0-9_]*)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? ([0-9]+(?:\.[0-9]+)?)', line)
        assert m, line
        name, labels, value = m.groups()
        assert name == current["name"] + ("_total" if current["type"] == "counter" else ""), line
        assert "HELP" in current and labels not in current["samples"], line
        current["samples"][labels] = float(value)
    return families


class Metrics(Case):
    def test_openmetrics(self):
        before = self.counter("tcp.rx_bytes")
        families = parse_openmetrics(self.good("metrics"))
        after = self.counter("tcp.rx_bytes")
        for name in json.loads(self.good("netstat", "-s", "-J"))[0]["counters"]:
            self.assertEqual(families["weir_" + re.sub(r"\W", "_", name)]["type"], "counter")
        rx = sum(families["weir_tcp_rx_bytes"]["samples"].values())
        self.assertTrue(before <= rx <= after)
        self.assertEqual(families["weir_tcp_rx_bytes"]["UNIT"], "bytes")
        self.assertGreaterEqual(families["weir_connections"]["samples"]['stack="bench-local",state="ESTABLISHED"'], 1)
        self.assertGreater(sum(families["weir_cpu_seconds"]["samples"].values()), 0)
        self.assertIn('class="so_rcv"', families["weir_lock_contended"]["samples"])

    def test_promtool(self):
        r = subprocess.run([tool("promtool"), "check", "metrics"], input=self.good("metrics", "--text"), text=True,
                           capture_output=True, timeout=60)
        self.assertEqual((r.returncode, r.stderr), (0, ""))

    def test_served(self):
        p = subprocess.Popen([WEIR, "metrics", "--listen", "127.0.0.1:0"], env=self.env, stdout=subprocess.PIPE, text=True)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        self.addCleanup(p.stdout.close)
        port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/metrics\n", p.stdout.readline())[1])
        idle = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]  # keep nobody out
        for s in idle:
            self.addCleanup(s.close)

        def get(path, method="GET", **headers):
            c = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            c.request(method, path, headers=headers)
            r = c.getresponse()
            body = r.read().decode()
            c.close()
            return r, body

        r, body = get("/metrics", Accept="application/openmetrics-text; version=1.0.0,text/plain;q=0.5")
        self.assertEqual((r.status, r.headers["Content-Type"].split(";")[0]), (200, "application/openmetrics-text"))
        parse_openmetrics(body)
        r, body = get("/metrics")
        self.assertEqual((r.status, r.headers["Content-Type"].split(";")[0]), (200, "text/plain"))
        self.assertIn("# TYPE weir_tcp_rx_bytes_total counter", body)
        self.assertEqual(get("/metrics", "HEAD")[1], "")
        self.assertEqual(get("/etc/passwd")[0].status, 404)
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.sendall(b"\xff\x00garbage\r\n\r\n")
            self.assertTrue(s.recv(100).startswith(b"HTTP/1.1 400"))
        self.stop()
        self.assertEqual(get("/metrics")[0].status, 503)


class Netstat(Case):
    def test_detail(self):
        rows = json.loads(self.good("netstat", "-e", "-J", "-t", "ESTABLISHED", "-S", "bench-local"))
        flow = max(rows, key=lambda r: r["sent_bytes"])
        self.assertEqual(flow["state"], "ESTABLISHED")
        self.assertGreater(flow["cwnd"], 0)
        self.assertGreater(flow["srtt_ns"], 0)
        self.assertGreaterEqual(flow["rto_ns"], flow["srtt_ns"])
        self.assertTrue(flow["sack"])
        self.assertGreater(flow["cpu_us_per_mb"], 0)
        text = self.good("netstat", "-e", "-P", flow["foreign_port"], "-S", "bench-local").splitlines()
        self.assertEqual(len(text), 4)  # two lines of headings, the connection, its detail
        self.assertRegex(text[3], r"^\t cc:\w+ .* cwnd:\d+ .* cpu_us_per_mb:")
        self.assertEqual(json.loads(self.good("netstat", "-J", "-P", 1)), [])
        self.assertTrue(all(r["state"] == "LISTEN" for r in json.loads(self.good("netstat", "-J", "-t", "LISTEN"))))
        for bad in (["-t", "x"], ["-P", "0"], ["-s", "-e"]):
            self.assertEqual(self.weir("netstat", *bad).returncode, 2)


class Probes(Case):
    def listed(self):
        with open(os.path.join(SOURCE, "src/base/probes.def")) as f:
            return re.findall(r'^PROBE\((\w+), "([^"]*)", "([^"]*)"\)', f.read(), re.M)

    def binary(self):
        notes = subprocess.run([tool("readelf"), "-n", WEIR], capture_output=True, text=True, check=True).stdout
        found = {}
        for name, sem, args in re.findall(r"Provider: weir\n\s+Name: (\w+)\n.*Semaphore: (\w+)\n\s+Arguments:(.*)", notes):
            self.assertNotEqual(int(sem, 16), 0, name)
            found.setdefault(name, set()).add(len(args.split()))
        if not found and not os.environ.get("CI"):
            self.skipTest("built without probes")
        return found

    def test_the_list_is_true(self):
        rows = self.listed()
        self.assertEqual({name: {len(args.split())} for name, args, _ in rows}, self.binary())
        with open(os.path.join(SOURCE, "docs/probes.md")) as f:
            documented = [line for line in f.read().splitlines() if line.startswith("| `")]
        self.assertEqual(documented, [f"| `{n}` | {a} | {w} |" for n, a, w in rows])

    def test_bpftrace_counts(self):
        self.binary()
        bpftrace = tool("bpftrace")
        if os.geteuid() != 0:
            self.skipTest("bpftrace needs root")
        r = subprocess.run([bpftrace, "-l", f"usdt:{WEIR}:weir:*"], capture_output=True, text=True, timeout=60)
        names = {line.rsplit(":", 1)[1] for line in r.stdout.splitlines() if line.startswith("usdt:")}
        self.assertEqual(names, {n for n, _, _ in self.listed()})
        r = subprocess.run([bpftrace, "-e", f"usdt:{WEIR}:weir:tcp_segment_in {{ @[str(arg0)] = count(); }} "
                            f"interval:s:2 {{ exit(); }}", "-p", str(self.p.pid)], capture_output=True, text=True, timeout=60)
        if "Attaching" not in r.stdout:
            self.skipTest("the kernel gives no uprobes here: " + r.stderr.strip()[:200])
        self.assertRegex(r.stdout, r"@\[bench-local\]: [1-9]")


if __name__ == "__main__":
    unittest.main()

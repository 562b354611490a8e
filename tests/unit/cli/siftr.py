#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Goal: `weir siftr` reads what FreeBSD and Weir log, turns one form into the other byte for byte, says of a flow what
its records hold and of a broken log what is left of it; the binary form is what siftr_bin.c describes (read here by a
reader of its own).
Bound: logs of at most 20,000 lines; the running instance is a bench over the memory link, for some seconds."""

import csv
import io
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

WEIR = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "weir"
TIMEOUT = 60
SEED = 20230726
NAMES = ("direction time laddr lport faddr fport ssthresh cwnd flags2 snd_wnd rcv_wnd snd_scale rcv_scale state mss "
         "srtt_us sack flags rto_us snd_limit snd_fill rcv_limit rcv_fill inflight reass_segs flowid flowtype").split()
FASTRECOVERY = 0x100000
HEADER = ("enable_time_secs=1690290836\tenable_time_usecs=487977\tsiftrver=1.3.0\tsysname=Weir\tsysver=100\tipmode=6\n")


def siftr(*args, stdin=b""):
    return subprocess.run([WEIR, "siftr", *map(str, args)], capture_output=True, timeout=TIMEOUT, input=stdin)


def footer(records_in, records_out, skipped=2, flows="10.1.1.2;40725-10.1.1.3;5001,"):
    names = ["num_%s_skipped_pkts_%s=0" % (d, why) for why in ("malloc", "tcpcb", "inpcb")
             for d in ("inbound", "outbound")]
    names[2] = names[2][:-1] + str(skipped)
    return "\t".join(["disable_time_secs=1690290846", "disable_time_usecs=000001",
                      "num_inbound_tcp_pkts=%d" % (records_in + skipped), "num_outbound_tcp_pkts=%d" % records_out,
                      "total_tcp_pkts=%d" % (records_in + records_out + skipped), *names,
                      "total_skipped_tcp_pkts=%d" % skipped, "flow_list=" + flows]) + "\n"


class Flow:
    """A connection whose records are made one by one."""

    def __init__(self, laddr="10.1.1.2", lport=40725, faddr="10.1.1.3", fport=5001, flowid=2931540183):
        self.v = dict(zip(NAMES, ["o", 1690290836487990, laddr, lport, faddr, fport, 1073725440, 14480, 32, 65728,
                                  66608, 7, 6, 4, 1448, 1562, 1, 16778208, 230000, 33304, 14480, 66608, 0, 14480, 0,
                                  flowid, 4 if ":" in laddr else 2]))

    def line(self, direction, **changes):
        self.v.update(changes, direction=direction)
        self.v["time"] += 10
        t = "%d.%06d" % divmod(self.v["time"], 1000000)
        return ",".join(str(t if n == "time" else self.v[n]) for n in NAMES) + "\n"


def mixed_log(count=20000):
    """Several flows of both families, all that changes changing."""
    rnd = random.Random(SEED)
    flows = [Flow(), Flow(lport=40726, flowid=7), Flow("fd00::1", 5001, "fd00::2", 1, 9), Flow("::", 0, "::1", 65535, 1)]
    lines = []
    for _ in range(count):
        f = rnd.choice(flows)
        f.v["time"] = max(g.v["time"] for g in flows) - rnd.randrange(3)
        changes = {n: rnd.randrange(2 ** rnd.randrange(1, 33)) for n in NAMES[6:11] + NAMES[14:16] + NAMES[17:25]
                   if rnd.random() < .2}
        lines.append(f.line(rnd.choice("io"), **changes))
    return lines


def with_ends(lines):
    o = sum(line[0] == "o" for line in lines)
    return (HEADER + "".join(lines) + footer(len(lines) - o, o)).encode()


# ---- a reader of the binary form, made from its description ----

def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


FIELDS = [("inflight", 32), ("snd_fill", 32), ("cwnd", 32), ("snd_wnd", 32), ("rcv_fill", 32), ("srtt_us", 32),
          ("rto_us", 32), ("flags", 32), ("rcv_wnd", 32), ("snd_limit", 32), ("ssthresh", 32), ("reass_segs", 32),
          ("rcv_limit", 32), ("flags2", 32), ("state", 8), ("mss", 32), ("snd_scale", 8), ("rcv_scale", 8), ("sack", 8)]


class Bytes:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, n):
        self.at += n
        assert self.at <= len(self.data)
        return self.data[self.at - n:self.at]

    def varint(self):
        v = shift = 0
        while True:
            b = self.take(1)[0]
            v |= (b & 127) << shift
            shift += 7
            if b < 128:
                return v

    def difference(self):
        v = self.varint()
        return v // 2 if v % 2 == 0 else -(v + 1) // 2


def read_records(payload, count):
    import ipaddress
    b, flows, flow, now, lines = Bytes(payload), [], 0, 0, []
    for _ in range(count):
        bits = b.varint()
        if bits & 2:
            flow = b.varint()
        if flow == len(flows):
            n = 16 if b.take(1)[0] == 6 else 4
            addresses = [str(ipaddress.ip_address(b.take(n))) for _ in range(2)]
            ports = struct.unpack("<HH", b.take(4))
            f = dict.fromkeys(NAMES, 0)
            f["flowid"], f["flowtype"] = struct.unpack("<IB", b.take(5))
            f.update(laddr=addresses[0], faddr=addresses[1], lport=ports[0], fport=ports[1])
            flows.append(f)
        f = flows[flow]
        if bits & 4:
            now += b.difference()
        for i, (name, width) in enumerate(FIELDS):
            if bits >> (3 + i) & 1:
                f[name] = (f[name] + b.difference()) % 2 ** width
        f["direction"] = "o" if bits & 1 else "i"
        f["time"] = "%d.%06d" % divmod(now // 1000, 1000000)
        lines.append(",".join(str(f[n]) for n in NAMES) + "\n")
    assert b.at == len(payload)
    return lines


def read_binary(data):
    assert data[:8] == b"\x89SIFTR\r\n" and struct.unpack("<HHI", data[8:16]) == (1, 0, crc32c(data[:12]))
    at, lines = 16, []
    while at < len(data):
        marker, kind, length, records, crc = struct.unpack("<3scIII", data[at:at + 16])
        payload = data[at + 16:at + 16 + length]
        assert marker == b"\xd7SF" and crc == crc32c(data[at:at + 12] + payload)
        lines += [payload.decode()] if kind == b"T" else read_records(payload, records)
        at += 16 + length
    return "".join(lines).encode()


class Files(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)

    def write(self, name, data):
        path = self.path(name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def path(self, name):
        return os.path.join(self.tmp.name, name)

    def good(self, *args, **kw):
        r = siftr(*args, **kw)
        self.assertEqual((r.returncode, r.stderr), (0, b""), r.stderr)
        return r.stdout


class Forms(Files):
    def test_text_binary_text(self):
        text = with_ends(mixed_log())
        log = self.write("log", text)
        self.good("--binary", "-o", self.path("bin"), log)
        with open(self.path("bin"), "rb") as f:
            data = f.read()
        self.assertLess(len(data), len(text) / 3)
        self.assertEqual(self.good("--text", self.path("bin")), text)
        self.assertEqual(self.good("--text", "-", stdin=data), text)
        self.assertEqual(self.good("--text", log), text)

    def test_format_is_as_described(self):
        text = with_ends(mixed_log(3000))
        data = self.good("--binary", self.write("log", text))
        self.assertEqual(read_binary(data), text)

    def test_compressed(self):
        text = with_ends(mixed_log())
        log = self.write("log", text)
        self.good("--binary", "-o", self.path("b.zst"), log)
        self.good("--text", "-z", "-o", self.path("t"), self.path("b.zst"))
        for name in ("b.zst", "t"):
            with open(self.path(name), "rb") as f:
                self.assertEqual(f.read(4), b"\x28\xb5\x2f\xfd")
        self.assertEqual(self.good("--text", self.path("t")), text)
        if shutil.which("zstd"):
            packed = subprocess.run(["zstd", "-dc", self.path("t")], capture_output=True, check=True).stdout
            self.assertEqual(packed, text)
            # Two frames one after the other are one stream.
            half = text.index(b"\n", len(text) // 2) + 1
            both = b"".join(subprocess.run(["zstd", "-c"], input=part, capture_output=True, check=True).stdout
                            for part in (text[:half], text[half:]))
            self.assertEqual(self.good("--text", "-", stdin=both), text)

    def test_footer_longer_than_a_chunk(self):
        flows = "".join("fd00::%x;%d-fd00::2;80," % (i, i) for i in range(20000))
        lines = mixed_log(10)
        text = (HEADER + "".join(lines) + footer(5, 5, flows=flows)).encode()
        self.assertGreater(len(text), 400000)
        data = self.good("--binary", self.write("log", text))
        self.assertEqual(self.good("--text", "-", stdin=data), text)

    def test_csv_module(self):
        lines = mixed_log(500)
        log = self.write("log", with_ends(lines))
        rows = list(csv.reader(io.StringIO("".join(lines))))
        got = list(csv.DictReader(io.StringIO(self.good("--csv", log).decode())))
        self.assertEqual(len(got), len(rows))
        for want, row in zip(rows, got):
            self.assertEqual(list(row), NAMES)
            want[1] += "000"
            self.assertEqual(list(row.values()), want)

    def test_json_lines(self):
        lines = mixed_log(500)
        got = [json.loads(line) for line in self.good("--json", self.write("log", with_ends(lines))).splitlines()]
        self.assertEqual([d["type"] for d in got], ["header"] + 500 * ["record"] + ["footer"])
        self.assertEqual(got[0]["siftrver"], "1.3.0")
        self.assertEqual(got[-1]["skipped_tcpcb_in"], 2)
        for line, d in zip(lines, got[1:]):
            want = line.strip().split(",")
            self.assertEqual([str(d[n]) for n in NAMES if n != "time"], want[:1] + want[2:])
            self.assertAlmostEqual(d["time"], float(want[1]), places=5)

    def test_several_files(self):
        lines = mixed_log(400)
        a, b = self.write("a", with_ends(lines[:200])), self.write("b", with_ends(lines[200:]))
        self.good("--binary", "-o", self.path("c"), b)
        self.assertEqual(self.good("--text", a, self.path("c")), with_ends(lines[:200]) + with_ends(lines[200:]))

    def test_freebsd(self):
        """A header with names that only FreeBSD 13 had; addresses that are not compressed."""
        text = (b"enable_time_secs=1\tenable_time_usecs=000002\tsiftrver=1.3.0\thz=1000\ttcp_rtt_scale=32\tsysname=FreeBSD"
                b"\tsysver=1400097\tipmode=4\n" +
                b"i,1.000002,fd00:0:0:0:0:0:0:1,1,fd00:0:0:0:0:0:0:2,2" + b",0" * 20 + b",4\n")
        out = self.good("--text", self.write("log", text))
        self.assertEqual(out, text.replace(b":0:0:0:0:0:0:", b"::"))
        old = b"enable_time_secs=1\tsiftrver=1.2.4\ni,0xbec491a5,1.000002,1.2.3.4,1\n"
        r = siftr("--text", self.write("old", old))
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"old:2: a record with a packet hash", r.stderr)


class Filters(Files):
    def test_each(self):
        lines = mixed_log(2000)
        log = self.write("log", with_ends(lines))
        start = min(int(x.split(",")[1].replace(".", "")) for x in lines[:1])

        def since(line):
            return int(line.split(",")[1].replace(".", "")) - start

        def ends(line):
            p = line.split(",")
            return {(p[2], p[3]), (p[4], p[5])}

        cases = (
            (("--flow", "10.1.1.2:40725-10.1.1.3:5001"), lambda x: ends(x) == {("10.1.1.2", "40725"), ("10.1.1.3", "5001")}),
            (("--flow", "10.1.1.3;5001-10.1.1.2;40726"), lambda x: ("10.1.1.2", "40726") in ends(x)),
            (("--flow", "[fd00::2]:1-[fd00::1]:5001"), lambda x: ("fd00::2", "1") in ends(x)),
            (("--host", "fd00:0::1"), lambda x: ("fd00::1", "5001") in ends(x)),
            (("--port", "5001"), lambda x: any(port == "5001" for _, port in ends(x))),
            (("--direction", "in"), lambda x: x[0] == "i"),
            (("--direction", "out", "--port", "1"), lambda x: x[0] == "o" and ("fd00::2", "1") in ends(x)),
            (("--from", "+0.001", "--to", "+0.0025"), lambda x: 1000 <= since(x) <= 2500),
            (("--from", "%d.%06d" % divmod(start + 700, 1000000)), lambda x: since(x) >= 700),
            (("--to", "1"), lambda x: False),
        )
        for args, keeps in cases:
            want = [x for x in lines if keeps(x)]
            self.assertTrue(0 < len(want) < len(lines) or "1" in args, args)
            got = self.good("--text", *args, log).decode().splitlines(True)
            self.assertEqual(got[1:-1], want, args)
            d = json.loads(self.good("--summary", "--json", *args, log))
            self.assertEqual(d["records_in"] + d["records_out"], len(want))
            self.assertEqual(d["hidden_records"], len(lines) - len(want))
            self.assertEqual((d["complete_logs"], d["agreeing_logs"]), (1, 1), args)


class Summary(Files):
    def sender(self):
        """Four segments out, acknowledged by two: cwnd-limited, then window, buffer, application, nothing; a loss."""
        f, lines = Flow(), []
        out, back = lambda **c: lines.append(f.line("o", **c)), lambda **c: lines.append(f.line("i", **c))
        more = 100000
        for i in range(4):
            out(inflight=i * 1448, snd_fill=more, cwnd=4 * 1448, snd_wnd=65000, snd_limit=2 * more, srtt_us=0)
        back(inflight=4 * 1448, srtt_us=1000)  # cwnd
        back(inflight=2 * 1448, srtt_us=2000)  # nothing: half of it is free again
        out(inflight=0, cwnd=20000, snd_wnd=2 * 1448, srtt_us=3000)
        out(inflight=1448)
        back(inflight=2 * 1448)  # the peer's window
        out(inflight=0, snd_wnd=65000, snd_fill=1448, snd_limit=1448)
        back(inflight=1448)  # the send buffer
        out(inflight=0, snd_fill=1448, snd_limit=2 * more)
        back(inflight=1448)  # the application
        out(inflight=0, snd_fill=more, flags=16778208 | FASTRECOVERY)
        out(inflight=1448)  # recovery: once with new data, once without
        out(inflight=1448)
        back(inflight=1448, snd_wnd=65000)
        back(inflight=0, flags=16778208, cwnd=1448, srtt_us=9000)
        return lines

    def test_figures(self):
        lines = self.sender()
        log = self.write("log", with_ends(lines))
        d = json.loads(self.good("--summary", "--json", log))
        self.assertEqual(len(d["flows"]), 1)
        f = d["flows"][0]
        self.assertEqual((f["laddr"], f["lport"], f["faddr"], f["fport"]), ("10.1.1.2", 40725, "10.1.1.3", 5001))
        self.assertEqual((f["records_in"], f["records_out"]), (7, 11))
        self.assertEqual(f["sent_bytes"], (4 + 2 + 1 + 1 + 1) * 1448)
        self.assertEqual(f["acked_bytes"], f["sent_bytes"])
        self.assertAlmostEqual(f["seconds"], (len(lines) - 1) * 10e-6, places=9)
        self.assertEqual(f["cwnd_max"], 20000)
        self.assertAlmostEqual(f["cwnd_mean"], sum(int(x.split(",")[7]) for x in lines) / len(lines), places=1)
        self.assertEqual((f["srtt_us"]["min"], f["srtt_us"]["max"]), (1000, 9000))
        self.assertTrue(3000 <= f["srtt_us"]["median"] <= 3000 * 33 / 32, f)
        self.assertEqual((f["fast_recoveries"], f["cwnd_collapses"], f["recovery_packets"]), (1, 1, 2))
        self.assertEqual(f["limited"], {"cwnd": 1, "window": 1, "buffer": 1, "application": 1, "nothing": 3})
        text = self.good(log).decode()
        self.assertEqual(text, self.good("--summary", log).decode())
        for part in ("10.1.1.2:40725 > 10.1.1.3:5001\n", "records     18 (in 7, out 11)", "sent        13032 bytes",
                     "send buffer 14.3%", "records 18: they agree\n"):
            self.assertIn(part, text)

    def test_same_of_each_form(self):
        log = self.write("log", with_ends(mixed_log(3000)))
        self.good("--binary", "-z", "-o", self.path("bin"), log)
        for args in ((), ("--summary", "--json")):
            self.assertEqual(self.good(*args, log), self.good(*args, self.path("bin")))

    def test_a_new_connection_between_the_same_ends(self):
        f = Flow()
        lines = [f.line("o", inflight=0), f.line("o", inflight=1448), f.line("o", inflight=0, flowid=1),
                 f.line("o", inflight=10)]
        d = json.loads(self.good("--summary", "--json", self.write("log", "".join(lines).encode())))
        self.assertEqual((d["flows"][0]["sent_bytes"], d["flows"][0]["acked_bytes"]), (1458, 0))

    def test_nothing_is_known_between_two_logs(self):
        f = Flow()
        lines = [f.line("o", inflight=0), f.line("o", inflight=1448), HEADER, f.line("o", inflight=9000),
                 f.line("o", inflight=9010)]
        d = json.loads(self.good("--summary", "--json", self.write("log", "".join(lines).encode())))
        self.assertEqual((d["flows"][0]["sent_bytes"], d["flows"][0]["acked_bytes"]), (1458, 0))

    def test_two_stacks_in_one_file(self):
        """Their footers are compared together; a log that was killed before them is left out."""
        r = mixed_log(6)
        both = lambda first, second: "".join(
            [HEADER, r[0], HEADER, r[1], r[2], footer(first, 0), r[3], r[4], footer(second, 0)])
        for text, agreeing in ((both(1, 4), 2), (both(1, 3), 0), (HEADER + r[5] + HEADER + "".join(r[:3]) +
                                                                 footer(3, 0), 1)):
            d = json.loads(self.good("--summary", "--json", self.write("log", text.encode())))
            self.assertEqual((d["complete_logs"], d["agreeing_logs"]), (2 if agreeing != 1 else 1, agreeing), text)

    def test_footer_that_disagrees(self):
        lines = mixed_log(100)
        text = with_ends(lines).decode().splitlines(True)
        r = siftr(self.write("log", "".join(text[:50] + text[51:]).encode()))
        self.assertEqual(r.returncode, 0)
        self.assertIn(b"do NOT agree", r.stdout)
        r = siftr(self.write("log", "".join(text[:50]).encode()))
        self.assertIn(b"logs        1, with header and footer 0", r.stdout)
        self.assertNotIn(b"agree", r.stdout)


class Broken(Files):
    def fails(self, *args, says, out=None, **kw):
        r = siftr(*args, **kw)
        self.assertEqual(r.returncode, 1, r.stderr)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, r.stderr.decode())
        if out is not None:
            self.assertEqual(r.stdout, out)
        return r

    def test_no_log(self):
        for form in ((), ("--text",), ("--binary",), ("--csv",)):
            self.fails(*form, "-o", self.write("kept", b"old"), self.path("nosuch"), says="nosuch: No such file")
            with open(self.path("kept"), "rb") as f:
                self.assertEqual(f.read(), b"old")
            self.fails(*form, self.tmp.name, says="Is a directory")
            garbage = os.urandom(1000).replace(b"\x89", b"")
            self.fails(*form, self.write("garbage", garbage), says="not a flow log", out=b"")
        self.fails(self.write("prose", b"Hello, world.\n" * 1000), says="not a flow log", out=b"")
        self.fails(self.write("empty", b""), says="empty", out=b"")
        self.fails("--text", self.write("short", b"o"), says="not a flow log", out=b"")

    def test_usage(self):
        for args in ((), ("--text", "--csv", "x"), ("--summary", "--text", "x"), ("--flow", "a-b", "x"), ("--port", "0", "x"),
                     ("--host", "localhost", "x"), ("--direction", "up", "x"), ("--from", "yesterday", "x"),
                     ("--follow", "a", "b"), ("--nosuch", "x"), ("-z", "x"), ("on", "--ppl"), ("on", "off"), ("off", "--ppl", "2")):
            r = siftr(*args)
            self.assertEqual((r.returncode, r.stdout), (2, b""), args)
            self.assertNotEqual(r.stderr, b"")

    def test_torn_text(self):
        lines = mixed_log(50)
        text = (HEADER + "".join(lines)).encode()
        log = self.write("log", text[:-5])
        lost = len(lines[-1]) - 5
        self.fails("--text", log, says="salvaged 49 records, %d bytes lost" % lost, out=text[:-len(lines[-1])])

    def test_torn_binary(self):
        lines = mixed_log(2000)
        text = with_ends(lines)
        data = self.good("--binary", self.write("log", text))
        whole = text.splitlines(True)
        for size in (17, 40, 200, 5000, len(data) // 2, len(data) - 1):
            r = self.fails("--text", self.write("cut", data[:size]), says=["salvaged", "bytes lost"])
            got = r.stdout.splitlines(True)
            self.assertEqual(got, whole[:len(got)])
            # Less than a record is lost, where records were.
            again = self.good("--binary", "-", stdin=r.stdout) if got else b""
            if 200 <= size < len(data) - 1:
                self.assertGreater(len(again) + 150, size)

    def test_bad_lines(self):
        lines = mixed_log(100)
        broken = list(lines)
        broken[41] = broken[41].replace(",", ";", 7)
        broken[60] = "#\n"
        text = HEADER + "".join(broken)
        kept = HEADER + "".join(lines[:41] + lines[42:60] + lines[61:])
        self.fails("--text", self.write("log", text.encode()), out=kept.encode(),
                   says=["log:43: neither", "log:62: neither", "salvaged 98 records"])

    def test_a_log_goes_on_after_a_torn_line(self):
        lines = mixed_log(60)
        text = HEADER + "".join(lines[:30]) + lines[30][:50] + HEADER + "".join(lines[31:])
        kept = HEADER + "".join(lines[:30]) + HEADER + "".join(lines[31:])
        self.fails("--text", self.write("log", text.encode()), says="50 bytes lost", out=kept.encode())

    def test_damaged_binary(self):
        lines = mixed_log(20000)
        data = bytearray(self.good("--binary", self.write("log", with_ends(lines))))
        data[len(data) // 2] ^= 1
        r = self.fails("--text", self.write("bad", data), says=["torn or damaged, from here", "salvaged"])
        got = r.stdout.decode().splitlines(True)
        self.assertGreater(len(got), 5000)
        self.assertLessEqual(set(got[1:-1]), set(lines))

    def test_version_of_the_future(self):
        data = bytearray(self.good("--binary", self.write("log", with_ends(mixed_log(10)))))
        data[8] = 2
        data[12:16] = struct.pack("<I", crc32c(data[:12]))
        self.fails("--text", self.write("new", data), says="version 2 of the binary form", out=b"")

    def test_compressed_and_cut(self):
        log = self.write("log", with_ends(mixed_log()))
        self.good("--text", "-o", self.path("z.zst"), log)
        with open(self.path("z.zst"), "rb") as f:
            data = bytearray(f.read())
        r = self.fails("--text", self.write("cut", data[:len(data) // 2]), says=["ends in the middle", "salvaged"])
        self.assertGreater(r.stdout.count(b"\n"), 1000)
        data[len(data) // 2] ^= 0xff
        self.fails("--text", self.write("bad", data), says="bad: ")

    def test_outputs(self):
        log = self.write("log", with_ends(mixed_log(2000)))
        for form in ((), ("--text",)):
            self.fails(*form, "-o", log, log, says="is read and written")
        self.fails("--text", "-o", self.path("no/such"), log, says="cannot open")
        for args in (("--text",), ("--binary",), ("--csv",), ("--json",), (), ("--text", "-z")):
            with open("/dev/full", "w") as full:
                r = subprocess.run([WEIR, "siftr", *args, log], stdout=full, stderr=subprocess.PIPE, timeout=TIMEOUT)
            self.assertEqual(r.returncode, 1, args)
            self.assertIn(b"No space left", r.stderr)


class Follow(Files):
    def follow(self, path, *args):
        p = subprocess.Popen([WEIR, "siftr", "--text", "--follow", *args, path], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        self.addCleanup(p.kill)
        return p

    def wait_until_read(self, p, f):
        """Until the follower has taken all that the file has."""
        size, where, end = os.fstat(f.fileno()).st_size, "/proc/%d/fd" % p.pid, time.monotonic() + TIMEOUT
        fd = next(d for d in os.listdir(where) if os.path.realpath(os.path.join(where, d)) == os.path.realpath(f.name))
        while time.monotonic() < end:
            with open("/proc/%d/fdinfo/%s" % (p.pid, fd)) as info:
                if int(info.readline().split()[1]) == size:
                    return
            time.sleep(0.01)
        self.fail("the follower reads no more")

    def test_grows_and_is_replaced(self):
        lines = mixed_log(60)
        with open(self.write("log", HEADER.encode()), "ab", buffering=0) as f:
            p = self.follow(f.name)
            self.assertEqual(p.stdout.readline().decode(), HEADER)
            for line in lines[:30]:
                f.write(line[:40].encode())
                f.write(line[40:].encode())
            self.assertEqual([p.stdout.readline().decode() for _ in range(30)], lines[:30])
            os.rename(f.name, self.path("old"))
            f.write(lines[30].encode())
        self.assertEqual(p.stdout.readline().decode(), lines[30])
        self.write("log", "".join(lines[31:40]).encode())
        self.assertEqual([p.stdout.readline().decode() for _ in range(9)], lines[31:40])
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=TIMEOUT)
        self.assertEqual((p.returncode, out, err), (0, b"", b""))

    def test_binary(self):
        lines = mixed_log(40)
        a = self.good("--binary", self.write("a", "".join(lines[:20]).encode()))
        b = self.good("--binary", self.write("b", "".join(lines[20:]).encode()))
        with open(self.write("log", a), "ab", buffering=0) as f:
            p = self.follow(f.name)
            self.assertEqual([p.stdout.readline().decode() for _ in range(20)], lines[:20])
            f.write(b[:100])
            self.wait_until_read(p, f)
            f.write(b[100:])
            self.assertEqual([p.stdout.readline().decode() for _ in range(20)], lines[20:])
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 0)


class Running(Files):
    def start(self):
        run_dir = tempfile.TemporaryDirectory(dir="/tmp")  # a socket's path has 107 bytes at most
        self.addCleanup(run_dir.cleanup)
        self.env = dict(os.environ, XDG_RUNTIME_DIR=run_dir.name)
        p = subprocess.Popen([WEIR, "bench", "TCP_STREAM", "-l", "0", "-i", "0.1", "--link", "mem,rate=100Mbit"],
                             stdout=subprocess.PIPE, env=self.env)
        self.addCleanup(p.stdout.close)
        self.addCleanup(p.wait)
        self.addCleanup(p.kill)
        for line in p.stdout:
            if b"bits/sec" in line:
                return p
        self.fail("the bench did not begin")

    def ask(self, *args, status=0):
        r = subprocess.run([WEIR, "siftr", *args], capture_output=True, timeout=TIMEOUT, env=self.env, cwd=self.tmp.name)
        self.assertEqual(r.returncode, status, r.stderr)
        return r.stdout.decode() + r.stderr.decode()

    @staticmethod
    def let_some_pass(p):
        for _ in range(3):  # lines of a tenth of a second each
            p.stdout.readline()

    def test_on_and_off(self):
        p = self.start()
        self.assertIn("net.inet.siftr.enabled: 0", self.ask("status"))
        self.assertIn("enabled: 0 -> 1", self.ask("on", "-S", "bench-local", "-o", "flow.log", "--text", "--batch", "3"))
        self.assertIn(self.path("flow.log"), self.ask("status", "-S", "bench-local"))
        self.let_some_pass(p)
        self.assertIn("enabled: 1 -> 0", self.ask("off", "-S", "bench-local"))
        self.ask("on", "-S", "bench-local", "-o", "flow.bin", "--binary", "--batch", "0")
        self.let_some_pass(p)
        self.ask("off", "-S", "bench-local")
        for name in ("flow.log", "flow.bin"):
            d = json.loads(self.good("--summary", "--json", self.path(name)))
            self.assertEqual((d["complete_logs"], d["agreeing_logs"]), (1, 1), name)
            self.assertGreater(d["records_out"], 10)
            self.assertTrue(any(f["sent_bytes"] > 0 for f in d["flows"]))
            text = self.good("--text", self.path(name))
            again = self.good("--text", "-", stdin=self.good("--binary", "-", stdin=text))
            self.assertEqual(again, text)

    def test_refusals(self):
        self.start()
        self.assertIn("range", self.ask("on", "-o", "x", "--ppl", "0", status=1))
        self.assertIn("enabled: 0", self.ask("status"))
        self.assertFalse(os.path.exists(self.path("x")))
        self.ask("on", "--control", self.path("nosuch"), status=1)


if __name__ == "__main__":
    unittest.main(verbosity=1)

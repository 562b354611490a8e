#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Goal: weir lockstat looks into a running instance and leaves it as it was: both views, JSON, sorting, errors.
Bound: a few seconds of the memory link; no privilege. How much was contended is not judged, that depends on the machine."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

WEIR = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "weir"
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
TIMEOUT = 60
LOAD = ["bench", "TCP_STREAM", "-l", "30", "-s", "64K", "-M", "24K", "--set", "net.inet.tcp.tso=0", "--set-remote",
        "net.isr.dispatch=deferred", "--set-remote", "net.inet.tcp.soreceive_stream=0"]
LINE = "-" * 79
COLUMNS = "max wait_max total wait_total count avg wait_avg cnt_hold cnt_lock name".split()


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.TemporaryDirectory()
        cls.env = dict(os.environ, XDG_RUNTIME_DIR=cls.dir.name)
        cls.load = subprocess.Popen([WEIR, *LOAD], env=cls.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.sock = os.path.join(cls.dir.name, "weir", f"{cls.load.pid}.sock")
        for _ in range(1000):
            if os.path.exists(cls.sock) and cls().rows("0.05"):
                return
            time.sleep(0.01)
        raise AssertionError("the load does not run")

    @classmethod
    def tearDownClass(cls):
        cls.load.kill()
        cls.load.wait()
        cls.dir.cleanup()

    def weir(self, *args):
        return subprocess.run([WEIR, *args], capture_output=True, timeout=TIMEOUT, env=self.env, text=True)

    def out(self, *args):
        r = self.weir(*args)
        assert r.returncode == 0 and r.stderr == "", (args, r.stderr)
        return r.stdout

    def rows(self, *args):
        return [r for r in json.loads(self.out("lockstat", "-J", *args))["rows"] if r["count"]]

    def knob(self, name="enable"):
        return self.out("sysctl", "-n", "-S", "bench-local", "debug.lock.prof." + name).strip()

    def test_names_and_places(self):
        rows = self.rows("0.5")
        by_where = {r["where"].split(":")[0]: r for r in rows}
        for where, lock, caller in (("src/socket/so_recv_generic.c", "so_rcv", "so_recv_generic"),
                                    ("src/socket/socket.c", "owner", None)):
            self.assertEqual(by_where[where]["lock"], lock)
            self.assertRegex(by_where[where]["caller"], rf"^{caller or '[a-z_]+'}(\.\w+)*\+0x[0-9a-f]+$")
        for r in rows:
            self.assertLessEqual(r["hold_max_ns"], r["hold_ns"] + 1)
            self.assertLessEqual(r["spins"] + r["blocks"], r["count"])
            self.assertTrue(os.path.exists(os.path.join(ROOT, r["where"].split(":")[0])), r["where"])

    def test_tables(self):
        text = self.out("lockstat", "0.5")
        for kind in ("spin", "block"):
            m = re.search(rf"^Adaptive mutex {kind}: (\d+) events in (\d+\.\d{{3}}) seconds \((\d+) events/sec\)\n\n",
                          text, re.M)
            self.assertTrue(m, text)
            self.assertGreaterEqual(float(m[2]), 0.5)
            if int(m[1]) == 0:
                continue
            table = text[m.end():].split(LINE)
            self.assertEqual(table[0], "Count indv cuml rcnt     nsec Lock                   Caller\n")
            counts = []
            for line in table[1].strip("\n").split("\n"):
                row = re.match(r"^( *\d+) ( *\d+)% ( *\d+)% 0\.00 ( *\d+) (\w+) +(\S+\+0x[0-9a-f]+|0x[0-9a-f]+)$", line)
                self.assertTrue(row, line)
                counts.append(int(row[1]))
            self.assertEqual(counts, sorted(counts, reverse=True))
            self.assertEqual(sum(counts), int(m[1]))
        self.assertEqual(self.knob(), "0")

    def test_profile_sorted_by_each_column(self):
        for i, column in enumerate(COLUMNS):
            head, *lines = self.out("lockstat", "--profile", "-s", column, "0.1").splitlines()
            self.assertEqual(head.split(), COLUMNS)
            values = [line.split()[i] for line in lines]
            self.assertTrue(values)
            if column == "name":
                self.assertEqual(values, sorted(values))
            else:
                self.assertEqual([int(v) for v in values], sorted(map(int, values), reverse=True), column)
            self.assertRegex(lines[0], r" src/\S+:\d+ \((mutex|word):\w+\)$")
        self.assertEqual(len(self.out("lockstat", "--profile", "-n", "2", "0.1").splitlines()), 3)

    def test_leaves_it_as_it_was(self):
        self.assertEqual(self.knob(), "0")
        self.rows("0.1")
        self.assertEqual(self.knob(), "0")
        self.out("sysctl", "-S", "bench-local", "debug.lock.prof.enable=1")
        before = self.rows("0")
        self.rows("0.1")
        self.assertEqual(self.knob(), "1")
        after = {(r["lock"], r["where"], r["caller"]): r for r in self.rows("0")}
        for r in before:  # what was counted is not forgotten
            self.assertGreaterEqual(after[r["lock"], r["where"], r["caller"]]["count"], r["count"])
        self.out("sysctl", "-S", "bench-local", "debug.lock.prof.enable=0")
        first, second = self.rows("0"), self.rows("0")  # off: nothing is counted
        for key in ("caller", "count", "spins", "blocks", "cnt_hold"):
            self.assertEqual([r[key] for r in first], [r[key] for r in second])
        self.assertIn("(mutex:so_rcv)", self.knob("stats"))
        self.out("sysctl", "-S", "bench-local", "debug.lock.prof.reset=1")
        self.assertEqual(len(self.knob("stats").splitlines()), 1)
        r = self.weir("lockstat", "0")
        self.assertEqual(r.returncode, 1)
        self.assertIn("the lock profile is off", r.stderr)

    def test_interrupted(self):
        p = subprocess.Popen([WEIR, "lockstat", "-J", "50"], env=self.env, stdout=subprocess.PIPE, text=True)
        while self.knob() != "1":
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)
        out, _ = p.communicate(timeout=TIMEOUT)
        self.assertEqual(p.returncode, 0)
        self.assertLess(json.loads(out)["seconds"], 50)
        self.assertEqual(self.knob(), "0")

    def test_ways_to_name_it(self):
        for way in (["--control", self.sock], ["--control=" + self.sock], ["--pid", str(self.load.pid)]):
            self.assertTrue(self.rows("0.05", *way))
        for args, why in ((["--control", "/nosuch"], "No such file"), (["--pid", "4194304"], "no process"),
                          (["--pid", "1"], "no control socket")):
            r = self.weir("lockstat", *args, "0.1")
            self.assertEqual((r.returncode, r.stdout), (1, ""), args)
            self.assertIn(why, r.stderr)
        with tempfile.TemporaryDirectory() as empty:
            r = subprocess.run([WEIR, "lockstat", "0.1"], env=dict(self.env, XDG_RUNTIME_DIR=empty),
                               capture_output=True, timeout=TIMEOUT)
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"no Weir instance", r.stderr)
        for args in (["-s", "bogus"], ["x"], ["--"], ["-n", "0"]):
            r = self.weir("lockstat", *args)
            self.assertEqual((r.returncode, r.stdout), (2, ""), args)

    def test_command(self):
        with tempfile.TemporaryDirectory() as other:
            env = dict(self.env, XDG_RUNTIME_DIR=other)

            def lockstat(*args):
                return subprocess.run([WEIR, "lockstat", *args], env=env, capture_output=True, timeout=TIMEOUT, text=True)
            r = lockstat("--profile", "--", WEIR, "bench", "TCP_RR", "-l", "0.6", "-J")
            self.assertEqual((r.returncode, r.stderr), (0, ""))
            doc, table = r.stdout.split("   max  wait_max", 1)
            self.assertIn("transactions_per_s", json.loads(doc))
            self.assertIn("(word:owner)", table)
            for args, why in ((["/nosuch"], "No such file"), (["true"], "opened no control socket"),
                              (["false"], "opened no control socket")):
                r = lockstat("--", *args)
                self.assertEqual((r.returncode, r.stdout), (1, ""), args)
                self.assertIn(why, r.stderr)

    def test_bench_shows_it(self):
        with tempfile.TemporaryDirectory() as other:
            r = subprocess.run([WEIR, "bench", "TCP_RR", "-l", "0.3", "--locks", "-J", "--set", "debug.lock.prof.enable=1"],
                               env=dict(self.env, XDG_RUNTIME_DIR=other), capture_output=True, timeout=TIMEOUT)
        self.assertEqual(r.returncode, 0, r.stderr)
        locks = {row["lock"] for row in json.loads(r.stdout)["lock_profile"]["rows"]}
        self.assertIn("owner", locks)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Goal: what bench, ab and repro measured is in the store, whole, whoever writes beside or is killed; a store that
fails costs no result; `weir results` lists, shows, compares, exports and deletes.
Bound: a stand-in for bench, some real runs of 50 ms; a few hundred short processes."""

import csv
import io
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

FAKE = os.path.abspath(sys.argv.pop(2))
WEIR = os.path.abspath(sys.argv.pop(1))
TIMEOUT = 60
BENCH = ("bench", "TCP_RR", "-l", "0.05")


class Results(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        self.db = os.path.join(self.tmp.name, "r.db")

    def env(self, **more):
        return dict(os.environ, FAKE_DIR=self.tmp.name, FAKE_SEED="1", **{"WEIR_RESULTS": self.db, **more})

    def run_weir(self, *args, env=None, **kw):
        return subprocess.run([WEIR, *map(str, args)], capture_output=True, timeout=TIMEOUT, text=True,
                              env=env or self.env(), stdin=subprocess.DEVNULL, **kw)

    def good(self, *args, **kw):
        r = self.run_weir(*args, **kw)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def warned(self, r, *words):
        self.assertEqual(r.returncode, 0, r.stderr)
        json.loads(r.stdout)
        self.assertEqual(len(r.stderr.splitlines()), 1, r.stderr)
        for word in ("not recorded",) + words:
            self.assertIn(word, r.stderr)

    def ab_args(self, mean_b=50, n=4):
        return ("ab", "TCP_STREAM", "--a-bin", FAKE, "--b-bin", FAKE, "--seed", 1, "-n", n, "--set", "fake.mean=50",
                "--set", "fake.sd=1", "--b", f"fake.mean={mean_b}")

    def listed(self, *args):
        return json.loads(self.good("results", "list", "-J", *args))["results"]

    def test_bench(self):
        doc = json.loads(self.good(*BENCH, "-J", "--set", "net.inet.tcp.tso=0"))
        self.good(*BENCH)
        runs = self.listed()
        self.assertEqual([r["kind"] for r in runs], ["bench"] * 2)
        shown = json.loads(self.good("results", "show", "-J", runs[0]["id"]))
        side = shown["sides"][0]
        self.assertEqual(side["samples"][0]["doc"], doc)
        self.assertEqual(side["samples"][0]["value"], doc["transactions_per_s"])
        self.assertEqual(side["knobs"]["sysctl"], doc["sysctl"])
        self.assertEqual(shown["command"], "weir bench TCP_RR -l 0.05 -J --set net.inet.tcp.tso=0")
        self.assertEqual(shown["host"], os.uname().nodename)
        self.assertIn(os.uname().release, shown["kernel"])
        for key in ("cpu", "build", "version"):
            self.assertTrue(shown[key])
        self.assertIn("TCP_RR", self.good("results"))
        self.assertEqual(os.stat(self.db).st_mode & 0o777, 0o600)

    def test_off(self):
        self.good(*BENCH, "--no-store")
        self.good(*BENCH, env=self.env(WEIR_RESULTS="off"))
        self.assertEqual(os.listdir(self.tmp.name), [])
        self.assertEqual(self.run_weir("results", env=self.env(WEIR_RESULTS="off")).returncode, 1)
        self.assertEqual(self.listed(), [])
        self.assertEqual(self.run_weir("results", "show", 1).returncode, 1)

    def test_state_directory(self):
        env = self.env(XDG_STATE_HOME=self.tmp.name + "/state", WEIR_RESULTS="")
        self.good(*BENCH, env=env)
        self.assertTrue(os.path.exists(self.tmp.name + "/state/weir/results.db"))
        env = self.env(XDG_STATE_HOME="relative", HOME=self.tmp.name + "/home", WEIR_RESULTS="")
        self.good(*BENCH, env=env)
        self.assertTrue(os.path.exists(self.tmp.name + "/home/.local/state/weir/results.db"))

    def test_failed_run_leaves_no_result(self):
        self.assertEqual(self.run_weir("bench", "TCP_RR", "-H", "127.0.0.1", "-p", "1", "--stack", "kernel").returncode, 1)
        self.assertEqual(self.listed(), [])

    def test_ab_and_compare(self):
        doc = json.loads(self.good(*self.ab_args(60), "-J"))
        run = self.listed()[0]
        self.assertEqual((run["kind"], run["state"]), ("ab", "complete"))
        for k, side in enumerate("ab"):
            self.assertEqual([x["value"] for x in run["sides"][k]["samples"]], doc[side]["runs"])
        self.assertEqual(json.loads(self.good("results", "show", "-J", 1))["doc"], doc)
        c = json.loads(self.good("results", "compare", "1:a", "1:b", "-J"))
        self.assertEqual(c["ministat"], doc["ministat"])
        self.assertTrue(c["ministat"]["proven"])
        same = json.loads(self.good("results", "compare", "1:a", "1:a", "-J"))
        self.assertFalse(same["ministat"]["proven"])
        self.assertIn("Difference at 95.0% confidence", self.good("results", "compare", "1:a", "1:b"))
        for wrong in (("compare", "1", "1"), ("compare", "1:a"), ("compare", "x", "1:a"), ("compare", "1:a,", "1:a")):
            self.assertEqual(self.run_weir("results", *wrong).returncode, 2, wrong)
        for absent in (("compare", "9", "1:a"), ("compare", "1:c", "1:a"), ("show", 9), ("delete", 9)):
            self.assertEqual(self.run_weir("results", *absent).returncode, 1, absent)

    def age(self, id, days):
        with sqlite3.connect(self.db) as db:
            db.execute("UPDATE run SET at = at - ? WHERE id = ?", (days * 86400, id))
        db.close()

    def test_today_with_last_week(self):
        for i in range(6):
            self.good(*BENCH, *(("--set", "net.inet.tcp.tso=0") if i == 5 else ()))
        for i in (1, 2, 3):
            self.age(i, 3)
        c = json.loads(self.good("results", "compare", "--test", "TCP_RR", "--since", "7d", "--until", "1d", "-J"))
        self.assertEqual((len(c["a"]["runs"]), len(c["b"]["runs"])), (3, 3))
        self.assertIn("sysctl differs between the two", c["warnings"])
        one = json.loads(self.good("results", "compare", 1, 4, "-J"))
        self.assertFalse(one["ministat"]["proven"])
        self.assertIn("too few", one["warnings"][-1])
        self.assertIn("No difference proven", self.good("results", "compare", 1, 4))
        with sqlite3.connect(self.db) as db:
            db.execute("UPDATE run SET host = 'other', kernel = 'older' WHERE id = 1")
        db.close()
        text = self.good("results", "compare", 1, 4)
        self.assertIn("host differs", text)
        self.assertIn("kernel differs", text)
        self.assertEqual([r["id"] for r in self.listed("--since", "1d")], [4, 5, 6])
        self.assertEqual(self.good("results", "prune", "--older", "2d"), "3 deleted\n")
        self.good("results", "delete", 4)
        self.assertEqual([r["id"] for r in self.listed()], [5, 6])
        with sqlite3.connect(self.db) as db:
            self.assertEqual(db.execute("SELECT count(*) FROM sample").fetchone()[0], 2)
        db.close()

    def test_export(self):
        self.good(*self.ab_args(), "--a-bench", '--cc "a,b"')
        rows = list(csv.reader(io.StringIO(self.good("results", "export", "--csv"))))
        self.assertEqual(len(rows), 1 + 8)
        self.assertEqual({len(r) for r in rows}, {17})
        doc = json.loads(self.good("results", "export", "--json"))
        values = [x["value"] for s in doc["results"][0]["sides"] for x in s["samples"]]
        self.assertEqual([float(r[16]) for r in rows[1:]], values)

    def test_two_at_once(self):
        many = [subprocess.Popen([WEIR, *map(str, self.ab_args(n=5))], env=self.env(), stdout=subprocess.DEVNULL,
                                 stderr=subprocess.PIPE) for _ in range(4)]
        for p in many:
            self.assertEqual((p.communicate(timeout=TIMEOUT)[1].count(b"warning"), p.returncode), (0, 0))
        runs = self.listed()
        self.assertEqual([r["state"] for r in runs], ["complete"] * 4)
        self.assertEqual([[len(s["samples"]) for s in r["sides"]] for r in runs], [[5, 5]] * 4)

    def test_killed(self):
        """Killed at some moment: what the store has then is whole, and all runs that were over are there."""
        for delay in (0.02, 0.05, 0.1, 0.2):
            p = subprocess.Popen([WEIR, *map(str, self.ab_args(n=500))], env=self.env(), stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
            time.sleep(delay)  # any moment will do
            p.send_signal(signal.SIGKILL)
            p.wait(TIMEOUT)
            db = sqlite3.connect(self.db)
            self.assertEqual(db.execute("PRAGMA integrity_check").fetchone()[0], "ok")
            db.close()
        runs = self.listed()
        self.assertEqual({r["state"] for r in runs} - {"unfinished"}, set())
        with open(os.path.join(self.tmp.name, "count")) as f:
            ended = int(f.read() or 0)
        stored = sum(len(s["samples"]) for r in runs for s in r["sides"])
        # each killed command may have had two to warm up and one that was running
        self.assertGreaterEqual(stored, ended - 4 * 3)
        self.assertGreater(stored, 0)

    def test_damaged(self):
        self.good(*BENCH)
        with open(self.db, "rb") as f:
            head = f.read(600)
        for content in (b"no database at all, " * 500, head + b"\xff" * 40000):
            with open(self.db, "wb") as f:
                f.write(content)
            self.warned(self.run_weir(*BENCH, "-J"), self.db, "damaged")
            r = self.run_weir("results")
            self.assertEqual(r.returncode, 1)
            self.assertIn("damaged", r.stderr)

    def test_schema_from_the_future_and_foreign(self):
        self.good(*BENCH)
        with sqlite3.connect(self.db) as db:
            db.execute("PRAGMA user_version=99")
        db.close()
        self.warned(self.run_weir(*BENCH, "-J"), "newer Weir")
        self.assertIn("schema 99", self.run_weir("results").stderr)
        os.unlink(self.db)
        with sqlite3.connect(self.db) as db:
            db.execute("CREATE TABLE mine(x)")
        db.close()
        self.warned(self.run_weir(*BENCH, "-J"), "something else")

    def test_full(self):
        self.good(*BENCH)

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (os.path.getsize(self.db) // 2,) * 2)
        self.warned(self.run_weir(*BENCH, "-J", preexec_fn=limit), self.db)
        self.assertEqual(len(self.listed()), 1)

    def test_no_place(self):
        open(self.tmp.name + "/file", "w").close()
        self.warned(self.run_weir(*BENCH, "-J", env=self.env(WEIR_RESULTS=self.tmp.name + "/file/r.db")), "cannot")
        self.warned(self.run_weir(*BENCH, "-J", env=self.env(WEIR_RESULTS=self.tmp.name)), "cannot")

    @unittest.skipUnless(os.geteuid() == 0, "needs another user")
    def test_read_only_directory(self):
        self.good(*BENCH)
        weir = os.path.join(self.tmp.name, "weir")
        subprocess.check_call(["cp", WEIR, weir])
        os.chmod(self.tmp.name, 0o755)
        os.chmod(self.db, 0o644)

        def other(*args):
            return subprocess.run([weir, *args], capture_output=True, text=True, env=self.env(), user=65534, group=65534,
                                  extra_groups=[], cwd="/", timeout=TIMEOUT)
        self.assertEqual(len(json.loads(other("results", "-J").stdout)["results"]), 1)
        self.warned(other(*BENCH, "-J"), "cannot write")
        os.chmod(self.db, 0o600)
        r = other("results")
        self.assertEqual(r.returncode, 1)
        self.assertIn("cannot", r.stderr)

    def test_locked(self):
        """A reader that stays keeps nobody from writing."""
        self.good(*BENCH)
        db = sqlite3.connect(self.db, isolation_level=None)
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM run").fetchone()
        self.assertEqual(self.run_weir(*BENCH).stderr, "")
        db.close()

    def test_usage(self):
        self.good(*BENCH)
        for args in (("frob",), ("--since", "soon"), ("show",), ("show", "x"), ("--kind", "x"), ("-c", "100", "list"),
                     ("export", "--csv", "--json"), ("list", "x"), ("-n", "x")):
            self.assertEqual(self.run_weir("results", *args).returncode, 2, args)


if __name__ == "__main__":
    unittest.main(verbosity=2)

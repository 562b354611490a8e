#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Goal: weir top shows what the counters say, in batch and on a terminal, obeys its keys, and gives the terminal back.
Bound: a few streams over a memory link; the terminal is tmux's (without it those tests are skipped, but for CI). What is
waited for may take 30 s; nothing depends on how fast it comes."""

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

WEIR = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "weir"
PATIENCE = 30
STREAMS = 3
FACTOR = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
ROUNDING = 0.0051  # of three digits


def number(text):
    """A number with a unit as top prints it; None for "-"."""
    if text == "-":
        return None
    m = re.fullmatch(r"([0-9.]+)([kMGTP]?)(b/s|/s|B|%)?", text)
    assert m, text
    return float(m[1]) * FACTOR[m[2]]


class Instance:
    """Two stacks in one process with streams between them, until it is told to end."""

    def __init__(self, directory, *more):
        self.env = dict(os.environ, XDG_RUNTIME_DIR=directory)
        self.p = subprocess.Popen([WEIR, "bench", "TCP_STREAM", "-l", "0", "-P", str(STREAMS), "--link",
                                   "mem,rate=400Mbit", "--set", "kern.cputime=ticks", *more],
                                  env=self.env, stdout=subprocess.DEVNULL)
        self.path = os.path.join(directory, "weir", f"{self.p.pid}.sock")

    def weir(self, *args, env=None):
        return subprocess.run([WEIR, *map(str, args)], capture_output=True, timeout=120, text=True, env=env or self.env)

    def snapshot(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.path)
            s.sendall(b'{"argv":["snapshot"]}\n')
            answer = s.makefile("rb").readline()
        doc = json.loads(answer)
        assert doc["status"] == 0, doc["err"]
        snap = json.loads(doc["out"])
        for name in ("flows", "threads", "locks"):
            table = snap[name]
            snap[name] = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
        return snap

    def wait_for_flows(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if os.path.exists(self.path):
                try:
                    sending = [f for f in self.snapshot()["flows"] if f["sent_bytes"] > 0]
                    if len(sending) >= STREAMS:
                        return
                except OSError:
                    pass
            time.sleep(0.05)
        raise AssertionError("no streams")

    def stop(self):
        if self.p.poll() is None:
            self.p.send_signal(signal.SIGINT)
            self.p.wait(PATIENCE)


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="weir-top-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.instance = Instance(self.dir)
        self.addCleanup(self.instance.stop)
        self.instance.wait_for_flows()


def tables(text):
    """The tables of batch mode: (interval, [row as a dict])."""
    for block in text.strip().split("\n\n"):
        title, _, heads, *rows = block.split("\n")
        names = heads.split()
        yield float(re.search(r"interval ([0-9.]+) s", title)[1]), [dict(zip(names, r.split(), strict=True))
                                                                    for r in rows]


class Snapshot(Case):
    def test_flows_add_up_to_the_counters(self):
        # One stack is taken down at one moment: sums are exact, whatever goes on.
        for _ in range(5):
            snap = self.instance.snapshot()
            for stack in snap["stacks"]:
                flows = [f for f in snap["flows"] if f["stack"] == stack["name"]]
                self.assertEqual(len(flows), stack["flows"])
                for total, counter in (("sent_bytes", "tcp.tx_bytes"), ("received_bytes", "tcp.rx_bytes"),
                                       ("retransmits", "tcp.tx_rexmt"),
                                       ("retransmitted_bytes", "tcp.tx_rexmt_bytes")):
                    self.assertEqual(sum(f[total] for f in flows), stack["counters"][counter], counter)

    def test_names_what_there_is(self):
        snap = self.instance.snapshot()
        self.assertEqual(snap["pid"], self.instance.p.pid)
        tasks = set(map(int, os.listdir(f"/proc/{snap['pid']}/task")))
        self.assertLessEqual({t["tid"] for t in snap["threads"]}, tasks)
        self.assertIn("weir-control", {t["name"] for t in snap["threads"]})
        self.assertIn("so_rcv", {lock["name"] for lock in snap["locks"]})
        self.assertTrue(any(t["input_ns"] for t in snap["threads"]))
        self.assertTrue(all(f["cpu_ns"] > 0 for f in snap["flows"]))

    def test_takes_no_arguments(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.instance.path)
            s.sendall(b'{"argv":["snapshot","-x"]}\n')
            self.assertEqual(json.loads(s.makefile("rb").readline())["status"], 2)


class Batch(Case):
    def test_rates_are_growth_over_the_interval(self):
        before = self.instance.snapshot()
        run = self.instance.weir("top", "-b", "-n", 3, "-d", 0.5, "-s", "local")
        after = self.instance.snapshot()
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        # The interval in the title is that of the first stack.
        first = before["stacks"][0]["name"]
        found = list(tables(run.stdout))
        self.assertEqual(len(found), 3)
        for column, rate, total in (("SENT", "TX", "sent_bytes"), ("RCVD", "RX", "received_bytes")):
            low = {(f["local_port"], f["foreign_port"]): f[total] for f in before["flows"] if f["stack"] == first}
            high = {(f["local_port"], f["foreign_port"]): f[total] for f in after["flows"] if f["stack"] == first}
            last = {}
            for interval, rows in found:
                rows = [r for r in rows if r["STACK"] == first]
                self.assertEqual([r["LOCAL"] for r in rows], sorted(r["LOCAL"] for r in rows))
                self.assertEqual(len(rows), len(low))
                for r in rows:
                    key = tuple(int(r[c].rsplit(".", 1)[1]) for c in ("LOCAL", "FOREIGN"))
                    bytes_, grown = number(r[column]), number(r[rate]) / 8 * interval
                    self.assertGreaterEqual(bytes_ * (1 + ROUNDING), low[key])
                    self.assertLessEqual(bytes_ * (1 - ROUNDING), high[key])
                    self.assertLessEqual(grown * (1 - ROUNDING), high[key] - low[key] + number(r[rate]) / 8 * 0.0005)
                    if key in last:
                        bound = ROUNDING * (bytes_ + last[key] + grown) + number(r[rate]) / 8 * 0.0005 + 1
                        self.assertLessEqual(abs(grown - (bytes_ - last[key])), bound, r)
                    last[key] = bytes_

    def test_the_other_views(self):
        for view, name in (("threads", "weir-control"), ("locks", "so_rcv")):
            run = self.instance.weir("top", "-b", "-n", 1, "-d", 0.1, "-v", view, "--pid", self.instance.p.pid)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn(name, run.stdout)

    def test_fewer_refreshes_than_asked_when_the_instance_ends(self):
        p = subprocess.Popen([WEIR, "top", "-b", "-d", "0.1"], env=self.instance.env, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
        p.stdout.readline()
        self.instance.stop()
        out, err = p.communicate(timeout=PATIENCE)
        self.assertEqual(p.returncode, 1)
        self.assertIn("instance is gone", err)

    def test_several_instances_are_listed(self):
        other = Instance(self.dir)
        self.addCleanup(other.stop)
        other.wait_for_flows()
        run = self.instance.weir("top", "-b", "-n", 1)
        self.assertEqual(run.returncode, 1)
        for i in (self.instance, other):
            self.assertIn(i.path, run.stderr)
        run = self.instance.weir("top", "-b", "-n", 1, "-d", 0.1, "--control", other.path)
        self.assertIn(f"pid {other.p.pid},", run.stdout)

    def test_usage(self):
        for args in (["-d", "0"], ["-d", "x"], ["-n", "0"], ["-s", "nosuch"], ["-v", "nosuch"], ["-z"], ["more"],
                     ["--pid", "1", "--control", "x"], ["-v", "locks", "-s", "rtt"]):
            self.assertEqual(self.instance.weir("top", *args).returncode, 2, args)
        self.assertEqual(self.instance.weir("top", "--help").returncode, 0)
        self.assertEqual(self.instance.weir("top").returncode, 1)  # no terminal
        self.assertEqual(self.instance.weir("top", "-b", "--control", "/nonexistent/x").returncode, 1)


class Strange(unittest.TestCase):
    """What is at the socket is no instance, or one of another make."""

    def test_answers(self):
        with tempfile.TemporaryDirectory(prefix="weir-top-") as d, socket.socket(socket.AF_UNIX) as listener:
            path = os.path.join(d, "s")
            listener.bind(path)
            listener.listen()
            for answer, expect in ((b"garbage\n", "protocol"), (b"{}\n", "protocol"), (b"\n", "protocol"),
                                   (b'{"status":2,"out":"","err":"unknown command: snapshot\\n"}\n', "unknown command"),
                                   (b'{"status":0,"out":"{\\"version\\":1}","err":""}\n', "protocol")):
                p = subprocess.Popen([WEIR, "top", "-b", "--control", path], stderr=subprocess.PIPE, text=True)
                client, _ = listener.accept()
                with client:
                    client.recv(4096)
                    client.sendall(answer)
                    err = p.communicate(timeout=PATIENCE)[1]
                self.assertEqual(p.returncode, 1)
                self.assertIn(expect, err)
            # Cut off again and again it gives up.
            p = subprocess.Popen([WEIR, "top", "-b", "--control", path], stderr=subprocess.PIPE, text=True)
            for _ in range(5):
                listener.accept()[0].close()
            self.assertIn("control socket", p.communicate(timeout=PATIENCE)[1])
            self.assertEqual(p.returncode, 1)


class Terminal(Case):
    def setUp(self):
        if shutil.which("tmux") is None:
            if os.environ.get("CI"):
                self.fail("tmux is missing")
            self.skipTest("tmux is not installed")
        super().setUp()
        self.sock = os.path.join(self.dir, "tmux")
        # A shell with job control, whose prompt is known.
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "200", "-y", "20",
                  f"env PS1='ready$ ' XDG_RUNTIME_DIR={shlex.quote(self.dir)} bash --norc --noprofile -i")
        self.addCleanup(self.tmux, "kill-server", check=False)
        self.wait(lambda s: "ready$" in s)

    def tmux(self, *args, check=True):
        env = {k: v for k, v in os.environ.items() if k != "TMUX"}
        r = subprocess.run(["tmux", "-S", self.sock, *args], capture_output=True, text=True, timeout=PATIENCE, env=env)
        if check:
            self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def wait(self, good):
        end = time.monotonic() + PATIENCE
        while not good(text := self.screen()):
            if time.monotonic() > end:
                self.fail("not seen in:\n" + text)
            time.sleep(0.05)
        return text

    def run_top(self, *args, before=""):
        self.keys(f"{before}{shlex.quote(WEIR)} top -d 0.2 {' '.join(args)}; echo status $?", "Enter")

    def rows(self, text):
        """The rows below the heads, as dicts."""
        lines = text.split("\n")
        at = next(i for i, line in enumerate(lines) if line.split()[:2] == ["LOCAL", "FOREIGN"])
        names = lines[at].split()
        return [dict(zip(names, r.split())) for r in lines[at + 1:-2] if len(r.split()) == len(names)]

    def see_flows(self):
        """Wait for rates of all flows."""
        return self.wait(lambda s: "[1 flows]" in s and
                         len([r for r in self.rows(s) if "-" not in (r["TX"], r["RX"])]) == 2 * STREAMS)

    def terminal_is_sane(self):
        self.wait(lambda s: s.rstrip().endswith("ready$"))
        self.keys("stty -a | tr -s ' ;' '\\n' | grep -cxE 'echo|icanon|opost|onlcr|isig'", "Enter")
        self.wait(lambda s: s.rstrip().split("\n")[-2:] == ["5", "ready$"])
        self.assertEqual(self.tmux("display-message", "-p", "#{cursor_flag} #{alternate_on}").strip(), "1 0")

    def test_shows_the_counters(self):
        self.run_top()
        self.see_flows()
        low = {(f["stack"], f["local_port"], f["foreign_port"]): f for f in self.instance.snapshot()["flows"]}

        def totals(text):
            # SENT and RCVD, by flow
            return {(r["STACK"], *(int(r[c].rsplit(".", 1)[1]) for c in ("LOCAL", "FOREIGN"))):
                    (number(r["SENT"]), number(r["RCVD"])) for r in self.rows(text)}

        def caught_up(text):
            t = totals(text)
            return set(t) == set(low) and all(t[k][0] * (1 + ROUNDING) >= low[k]["sent_bytes"] and
                                              t[k][1] * (1 + ROUNDING) >= low[k]["received_bytes"] for k in low)
        seen = totals(self.wait(caught_up))
        high = {(f["stack"], f["local_port"], f["foreign_port"]): f for f in self.instance.snapshot()["flows"]}
        for k, (sent, received) in seen.items():
            self.assertLessEqual(sent * (1 - ROUNDING), high[k]["sent_bytes"])
            self.assertLessEqual(received * (1 - ROUNDING), high[k]["received_bytes"])
        named = self.instance.weir("netstat", "-n").stdout
        for r in self.rows(self.screen()):
            self.assertIn(r["LOCAL"], named)

    def test_keys(self):
        self.run_top("-s", "local")
        rows = self.rows(self.see_flows())
        self.assertEqual([r["LOCAL"] for r in rows], sorted(r["LOCAL"] for r in rows))
        self.keys("r")
        rows = self.rows(self.wait(lambda s: "reversed" in s))
        self.assertEqual([r["LOCAL"] for r in rows], sorted((r["LOCAL"] for r in rows), reverse=True))
        self.keys(">")
        self.wait(lambda s: "sort: foreign" in s)
        self.keys("<")
        self.wait(lambda s: re.search(r"sort: local *$", s, re.M))
        wanted = next(r["LOCAL"] for r in rows if r["STACK"] == self.instance.snapshot()["stacks"][0]["name"])
        self.keys("f", wanted)
        self.wait(lambda s: f"filter: {wanted}_" in s)
        self.keys("Enter")
        text = self.wait(lambda s: f"filter: {wanted} (" in s and f"filter: {wanted}_" not in s)
        self.assertEqual({wanted}, {r["LOCAL"] for r in self.rows(text)} & {wanted})
        self.assertLess(len(self.rows(text)), 2 * STREAMS)
        self.keys("2")
        self.wait(lambda s: "[2 threads]" in s and "NAME" in s)
        self.keys("3")
        self.wait(lambda s: "[3 locks]" in s and "CONTEND" in s)
        self.keys("Tab")
        self.wait(lambda s: "[1 flows]" in s)
        self.keys("h")
        self.wait(lambda s: "PageUp" in s)
        self.keys("h")
        self.wait(lambda s: "LOCAL" in s)
        self.keys("p")
        self.wait(lambda s: "PAUSED" in s)
        self.keys("p")
        self.wait(lambda s: "PAUSED" not in s)
        self.keys("Right")
        self.wait(lambda s: re.search(r"^FOREIGN", s, re.M))
        self.keys("q")
        self.wait(lambda s: "status 0" in s)
        self.terminal_is_sane()

    def test_sizes(self):
        self.run_top()
        self.see_flows()
        for width, height in ((1, 1), (2, 1), (1, 5), (3, 3), (20, 4), (80, 2), (80, 24), (7, 50), (300, 100)):
            self.tmux("resize-window", "-x", str(width), "-y", str(height))
            if width >= 20:
                # Something is at the right place of the new size.
                self.wait(lambda s: any(line.startswith("LOCAL") for line in s.split("\n")[:4]))
            self.keys("2")
            self.keys("Down", "1")
        text = self.see_flows()
        self.assertEqual(len(text.rstrip("\n").split("\n")), 100)  # the hints are at the bottom
        self.tmux("resize-window", "-x", "80", "-y", "24")
        self.keys("q")
        self.wait(lambda s: "status 0" in s)

    def test_stop_and_continue(self):
        self.run_top()
        self.see_flows()
        self.keys("C-z")
        self.wait(lambda s: "Stopped" in s and "ready$" in s)
        self.terminal_is_sane()
        self.tmux("resize-window", "-x", "190", "-y", "18")
        self.keys("fg", "Enter")
        self.see_flows()
        self.keys("q")
        self.terminal_is_sane()

    def test_ends_when_told_to(self):
        self.run_top()
        self.see_flows()
        shell = self.tmux("display-message", "-p", "#{pane_pid}").strip()
        with open(f"/proc/{shell}/task/{shell}/children") as f:
            os.kill(int(f.read()), signal.SIGTERM)
        self.wait(lambda s: "status 143" in s)
        self.terminal_is_sane()

    def test_the_instance_goes(self):
        self.run_top()
        self.see_flows()
        self.instance.p.kill()
        self.instance.p.wait(PATIENCE)
        self.wait(lambda s: "the instance is gone" in s and "status 1" in s)
        self.terminal_is_sane()

    def test_keys_work_while_there_is_no_answer(self):
        with socket.socket(socket.AF_UNIX) as listener:
            path = os.path.join(self.dir, "silent")
            listener.bind(path)
            listener.listen()
            self.run_top("--control", path)
            self.wait(lambda s: "no answer for" in s)
            self.keys("2")
            self.wait(lambda s: "[2 threads]" in s)
            self.keys("q")
            self.wait(lambda s: "status 0" in s)
            self.terminal_is_sane()

    def test_terminals(self):
        self.run_top(before="TERM=nosuch ")
        self.wait(lambda s: "type 'nosuch'" in s and "status 1" in s)
        self.keys("clear", "Enter")
        self.run_top(before="TERM=vt100 ")  # no colours
        self.see_flows()
        self.keys("q")
        self.terminal_is_sane()


if __name__ == "__main__":
    unittest.main()

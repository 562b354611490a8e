# SPDX-License-Identifier: BSD-2-Clause
"""Goal: Python's csv reads the flow log of a running program, whichever way its records were handed over, and the
footer counts what is there. Bound: a run of 0.2 s each.

usage: siftr_csv.py WEIR
"""
import csv
import os
import subprocess
import sys
import tempfile


def check(weir, batch, log):
    subprocess.run([weir, "bench", "TCP_RR", "-l", "0.2", "-J", "--set", f"net.inet.siftr.logfile={log}",
                    "--set", f"net.inet.siftr.batch={batch}", "--set", "net.inet.siftr.enabled=1"],
                   check=True, stdout=subprocess.DEVNULL, timeout=60)
    with open(log, newline="") as f:
        lines = f.read().splitlines()
    header = dict(x.split("=", 1) for x in lines[0].split("\t"))
    footer = dict(x.split("=", 1) for x in lines[-1].split("\t"))
    assert header["siftrver"] == "1.3.0" and header["sysname"] == "Weir", header
    count = {"i": 0, "o": 0}
    last = 0.0
    for row in csv.reader(lines[1:-1]):
        assert len(row) == 27, row
        count[row[0]] += 1
        assert float(row[1]) >= last
        last = float(row[1])
    for d, name in (("i", "inbound"), ("o", "outbound")):
        skipped = sum(int(footer[f"num_{name}_skipped_pkts_{why}"]) for why in ("malloc", "tcpcb", "inpcb"))
        assert count[d] == int(footer[f"num_{name}_tcp_pkts"]) - skipped, (name, count, footer)
    assert count["o"] > 10
    assert footer["flow_list"].endswith(",")


# case: MEA-056
def main():
    with tempfile.TemporaryDirectory() as d:
        for batch in (0, 1, 3):
            check(sys.argv[1], batch, os.path.join(d, f"log{batch}"))


main()

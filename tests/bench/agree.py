#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Whether `weir bench --stack kernel TCP_STREAM` agrees with iperf3 over the loopback interface: runs by turns,
and ministat's verdict. usage: agree.py WEIR [RUNS [SECONDS]]"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time

MESSAGE = "131072"


def main():
    weir = os.path.abspath(sys.argv[1])
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    seconds = sys.argv[3] if len(sys.argv) > 3 else "1"
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    server = subprocess.Popen(["iperf3", "-s", "-p", port], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.3)
        figures = {"iperf3": [], "weir": []}
        for _ in range(runs):
            out = subprocess.check_output(["iperf3", "-c", "127.0.0.1", "-p", port, "-t", seconds, "-l", MESSAGE, "-C", "cubic", "-A", "0,1", "-J"])
            figures["iperf3"].append(json.loads(out)["end"]["sum_received"]["bits_per_second"] / 1e6)
            out = subprocess.check_output([weir, "bench", "TCP_STREAM", "--stack", "kernel", "-T", "0,1", "-l", seconds, "-m", MESSAGE, "-J"])
            figures["weir"].append(json.loads(out)["throughput_mbps"])
    finally:
        server.terminate()
        server.wait()
    with tempfile.TemporaryDirectory() as d:
        for name, values in figures.items():
            with open(f"{d}/{name}", "w") as f:
                f.writelines(f"{v:.2f}\n" for v in values)
        print(subprocess.run([weir, "ministat", "iperf3", "weir"], cwd=d, capture_output=True, text=True).stdout)


if __name__ == "__main__":
    main()

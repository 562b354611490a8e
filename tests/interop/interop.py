#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Goal: Weir and the kernel understand each other over a TAP interface, and over a packet socket on
a veth interface: files, connections, pings.

Bound: a minute a test; each runs in a network namespace of its own. Skipped (77) without the
privilege to make one, or without a tool it needs. WEIR_INTEROP_BIG=1 fetches a gigabyte instead of
64 MB.

usage: interop.py TEST WEIR [tap | packet | packet-off | packet-9000]
packet-off has the offloads of the interfaces off, packet-9000 an MTU of 9000.
"""
import contextlib
import ctypes
import fcntl
import hashlib
import os
import re
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
KERNEL4, WEIR4, KERNEL6, WEIR6 = "10.9.0.1", "10.9.0.2", "fd09::1", "fd09::2"
ADDRESSES = f"addr={WEIR4}/24,gw={KERNEL4},addr6={WEIR6}/64"
LINK = f"tap:wt0,{ADDRESSES}"
PACKET_LINK = f"packet:wt1,{ADDRESSES}"
IMPAIRED = ",delay=10ms,loss=1%,reorder=5%:3,seed=7"  # each way: 20 ms there and back
PORT = 8080
MB = 1 << 20

weir = ""
SIOCETHTOOL = 0x8946
ETHTOOL_OFFLOADS = (0x15, 0x17, 0x1f, 0x24, 0x2c)  # to set rx and tx checksums, TSO, GSO, GRO


class Skip(Exception):
    pass


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            raise Skip(f"{tool} is not installed")


def run(*argv, check=True, **kw):
    kw.setdefault("timeout", 120)
    r = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT, text=True, errors="replace", **kw)
    if check and r.returncode:
        raise AssertionError(f"{' '.join(argv)}: exit status {r.returncode}\n{r.stdout}")
    return r.stdout


def offloads_off(name):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        for command in ETHTOOL_OFFLOADS:
            value = ctypes.create_string_buffer(struct.pack("II", command, 0))
            request = struct.pack("16sP", name.encode(), ctypes.addressof(value)) + bytes(16)
            fcntl.ioctl(s, SIOCETHTOOL, request)


def make_veth(kind):
    """wt0 is the kernel's; Weir will be on its peer wt1, on which the kernel has no address."""
    global LINK
    LINK = PACKET_LINK
    mtu = "9000" if kind == "packet-9000" else "1500"
    try:
        run("ip", "link", "add", "wt0", "mtu", mtu, "type", "veth", "peer", "name", "wt1", "mtu",
            mtu)
    except AssertionError as e:
        raise Skip("no veth interfaces here") from e
    run("ip", "link", "set", "wt1", "addrgenmode", "none")
    run("ip", "link", "set", "wt1", "up")
    if kind == "packet-off":
        offloads_off("wt0")
        offloads_off("wt1")


def isolate(kind):
    """A network namespace for this process and its children, with the interface wt0 in it."""
    need("ip")
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or libc.unshare(CLONE_NEWNET) != 0:
        raise Skip("no privilege to make a network namespace")
    run("ip", "link", "set", "lo", "up")
    if kind == "tap":
        if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
            raise Skip("no access to /dev/net/tun")
        run("ip", "tuntap", "add", "wt0", "mode", "tap")
    else:
        make_veth(kind)
    run("ip", "addr", "add", KERNEL4 + "/24", "dev", "wt0")
    run("ip", "addr", "add", KERNEL6 + "/64", "dev", "wt0", "nodad")
    run("ip", "link", "set", "wt0", "up")


@contextlib.contextmanager
def server(*argv, ready=PORT):
    """A Weir process, from the moment it accepts connections until it is told to stop."""
    log = tempfile.TemporaryFile("w+")
    child = subprocess.Popen([weir, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        for _ in range(100):
            if child.poll() is not None:
                break
            try:
                socket.create_connection((WEIR4, ready), timeout=2).close()
                break
            except OSError:
                time.sleep(0.05)
        assert child.poll() is None, "weir ended early"
        yield child
        assert child.poll() is None, "weir ended early"
        child.send_signal(signal.SIGTERM)
        child.wait(20)
        assert child.returncode in (0, -signal.SIGTERM), f"weir: exit status {child.returncode}"
    except BaseException:
        log.seek(0)
        print(log.read()[-4000:])
        raise
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()


@contextlib.contextmanager
def files(**sizes):
    """A directory of files NAME of so many random bytes; gives the path and their SHA-256."""
    with tempfile.TemporaryDirectory(prefix="weir-interop.") as directory:
        sums = {}
        for name, size in sizes.items():
            digest = hashlib.sha256()
            with open(os.path.join(directory, name), "wb") as f:
                for at in range(0, size, MB):
                    block = os.urandom(min(MB, size - at))
                    digest.update(block)
                    f.write(block)
            sums[name] = digest.hexdigest()
        yield directory, sums


def fetch(host, name, limit=120):
    """SHA-256 of what curl gets."""
    url = f"http://[{host}]:{PORT}/{name}" if ":" in host else f"http://{host}:{PORT}/{name}"
    curl = subprocess.Popen(["curl", "-sS", "-g", "-f", "--max-time", str(limit), url],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE)
    digest = hashlib.sha256()
    while block := curl.stdout.read(MB):
        digest.update(block)
    error = curl.stderr.read().decode()
    assert curl.wait() == 0, f"curl {url}: {error}"
    return digest.hexdigest()


def dial(host, port):
    """A connection to a server that may still be starting."""
    for _ in range(100):
        with contextlib.suppress(OSError):
            return socket.create_connection((host, port), timeout=5)
        time.sleep(0.05)
    raise AssertionError(f"nobody listens at {host} port {port}")


def serve(directory, options=""):
    return server("serve", "-6", directory, "-p", str(PORT), "--link", LINK + options)  # IPv4 too


# --- the tests ---

def test_fetch():
    """A large file by curl, over both families, byte for byte."""
    need("curl")
    size = 1024 * MB if os.environ.get("WEIR_INTEROP_BIG") else 64 * MB
    with files(file=size, empty=0, one=1) as (directory, sums), serve(directory):
        for host in (WEIR4, WEIR6):
            for name in sums:
                started = time.monotonic()
                assert fetch(host, name) == sums[name], f"{host}: {name} differs"
                if name == "file":
                    seconds = time.monotonic() - started
                    gbits = size / seconds / 1e9 * 8
                    print(f"{host}: {gbits:.2f} Gbit/s, curl and checksum included")


def curl_range(host, name, spec, *more):
    """(status, body) of a ranged request."""
    url = f"http://[{host}]:{PORT}/{name}" if ":" in host else f"http://{host}:{PORT}/{name}"
    r = subprocess.run(["curl", "-sS", "-g", "--max-time", "60", "-w", "%{stderr}%{http_code}",
                        *(["-r", spec] if spec else []), *more, url],
                       stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       timeout=100)
    return int(r.stderr.decode()[-3:]), r.stdout


def test_ranges():
    """Ranges of a file with several windows, byte for byte; what cannot be is refused."""
    need("curl")
    size = 9 * MB + 12345
    with files(file=size, empty=0) as (directory, _), serve(directory):
        data = open(os.path.join(directory, "file"), "rb").read()
        for host in (WEIR4, WEIR6):
            for spec, a, b in (("0-0", 0, 1), ("1-", 1, size), ("-1", size - 1, size),
                               ("-70000", size - 70000, size), ("4095-4096", 4095, 4097),
                               (f"{2 * MB - 1}-{4 * MB}", 2 * MB - 1, 4 * MB + 1),
                               (f"0-{size * 2}", 0, size), (f"-{size * 2}", 0, size)):
                status, body = curl_range(host, "file", spec)
                assert status == 206 and body == data[a:b], (host, spec, status, len(body))
        for spec in (f"{size}-", "-0"):
            assert curl_range(WEIR4, "file", spec)[0] == 416, spec
        assert curl_range(WEIR4, "empty", "0-0")[0] == 416
        status, body = curl_range(WEIR4, "file", "0-1,5-6")  # several: the whole is an answer, too
        assert status == 200 and body == data
        status, head = curl_range(WEIR4, "file", "0-9", "-I")  # ranges are for GET
        assert status == 200 and f"Content-Length: {size}".encode() in head, head
        when = re.search(rb"Last-Modified: ([^\r]*)", head)[1].decode()
        for if_range, expect in ((when, 206), ("Mon, 01 Jan 2001 00:00:00 GMT", 200), ('"x"', 200)):
            got = curl_range(WEIR4, "file", "5-104", "-H", "If-Range: " + if_range)
            assert got[0] == expect and got[1] == (data[5:105] if expect == 206 else data), expect


def test_changing_files():
    """Files that are cut and filled again under eight clients: what arrives is a prefix of what was
    promised, made of the file's bytes, and the server lives on."""
    size = 8 * MB
    block = bytes(1 + i % 255 for i in range(255 * 1024))
    data = (block * (size // len(block) + 1))[:size]
    stop = threading.Event()

    def resize(path):
        with open(path, "r+b") as f:
            while not stop.is_set():
                f.truncate(100000)
                f.seek(100000)
                f.write(data[100000:])
                f.flush()

    def client(results):
        for _ in range(6):
            with dial(WEIR4, PORT) as conn:
                conn.settimeout(30)
                conn.sendall(b"GET /file HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n")
                got = b""
                with contextlib.suppress(ConnectionResetError):
                    while more := conn.recv(1 << 18):
                        got += more
                body = got.split(b"\r\n\r\n", 1)[1] if b"\r\n\r\n" in got else b""
                results.append(body[:100000] == data[:min(len(body), 100000)] and len(body) <= size)

    with tempfile.TemporaryDirectory(prefix="weir-interop.") as directory:
        path = os.path.join(directory, "file")
        with open(path, "wb") as f:
            f.write(data)
        with serve(directory) as child:
            writer = threading.Thread(target=resize, args=(path,))
            writer.start()
            results = []
            clients = [threading.Thread(target=client, args=(results,)) for _ in range(8)]
            for t in clients:
                t.start()
            for t in clients:
                t.join()
            stop.set()
            writer.join()
            assert len(results) == 48 and all(results), results
            assert child.poll() is None
            with dial(WEIR4, PORT) as conn:  # the file at rest is what it is
                conn.sendall(b"GET /file HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n")
                got = b""
                while more := conn.recv(1 << 18):
                    got += more
            assert got.split(b"\r\n\r\n", 1)[1] == data


def test_fetch_impaired():
    """The same with loss, reordering and 20 ms."""
    need("curl")
    with files(file=4 * MB, one=1) as (directory, sums), serve(directory, IMPAIRED):
        for host in (WEIR4, WEIR6):
            for name in sums:
                assert fetch(host, name) == sums[name], f"{host}: {name} differs"


def many_at_once(count, size, limit):
    """So many connections open together, then a request on each; each gives its file whole."""
    socks = []
    for _ in range(count):
        s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.setblocking(False)
        s.connect_ex((WEIR4, PORT))
        socks.append(s)
    sel = selectors.DefaultSelector()
    got = {s: b"" for s in socks}
    for s in socks:
        sel.register(s, selectors.EVENT_WRITE)
    connected = done = 0
    until = time.monotonic() + limit
    while done < count:
        assert time.monotonic() < until, f"{connected} connected, {done} served of {count}"
        for key, _ in sel.select(1):
            s = key.fileobj
            if key.events == selectors.EVENT_WRITE:
                error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                assert error == 0, os.strerror(error)
                connected += 1
                sel.modify(s, selectors.EVENT_READ)
                if connected == count:
                    for each in socks:
                        each.send(b"GET /file HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n")
                continue
            data = s.recv(65536)
            got[s] += data
            if not data:
                body = got[s].split(b"\r\n\r\n", 1)
                assert got[s].startswith(b"HTTP/1.1 200"), got[s][:200]
                assert len(body[1]) == size, len(body[1])
                sel.unregister(s)
                s.close()
                done += 1


def one_after_another(count, size):
    for _ in range(count):
        with socket.create_connection((WEIR4, PORT), timeout=20) as s:
            s.sendall(b"GET /file HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n")
            got = b""
            while data := s.recv(65536):
                got += data
        assert got.startswith(b"HTTP/1.1 200"), got[:200]
        assert len(got.split(b"\r\n\r\n", 1)[1]) == size, len(got)


def test_connections():
    """2,000 connections at once, then as many one after another."""
    with files(file=3000) as (directory, _), serve(directory):
        many_at_once(2000, 3000, 60)
        one_after_another(2000, 3000)
        many_at_once(500, 3000, 60)


def test_connections_impaired():
    """The same, fewer, with loss, reordering and 20 ms."""
    with files(file=3000) as (directory, _), serve(directory, IMPAIRED):
        many_at_once(500, 3000, 60)
        one_after_another(30, 3000)


def test_wrk():
    """A load generator with 256 connections sees no error."""
    need("wrk")
    with files(file=1000) as (directory, _), serve(directory):
        out = run("wrk", "-t", "2", "-c", "256", "-d", "3s", f"http://{WEIR4}:{PORT}/file")
        print(out)
        assert "Socket errors" not in out and "Non-2xx" not in out, out
        assert int(re.search(r"(\d+) requests in", out)[1]) > 1000


def give(conn, data):
    """Send all and finish, in a thread: the far side writes to a pipe that we read meanwhile."""
    def work():
        conn.sendall(data)
        conn.shutdown(socket.SHUT_WR)
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def nc(*argv):
    return subprocess.Popen([weir, "nc", *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def collect(child, data):
    out, _ = child.communicate(b"", timeout=60)
    assert child.returncode == 0, f"weir nc: exit status {child.returncode}"
    assert out == data, f"{len(out)} of {len(data)} bytes"


def test_nc():
    """Bytes to weir nc from the kernel, each side listening once."""
    data = os.urandom(5 * MB)
    listener = socket.create_server((KERNEL4, 5000))
    listener.settimeout(20)
    child = nc("--link", LINK, KERNEL4, "5000")
    conn, peer = listener.accept()
    assert peer[0] == WEIR4, peer
    sender = give(conn, data)
    collect(child, data)
    sender.join()
    assert conn.recv(1) == b""
    conn.close()

    child = nc("-6", "-l", "--link", LINK, "5001")
    sender = give(dial(WEIR6, 5001), data)
    collect(child, data)
    sender.join()


def sha256_of(stream):
    digest = hashlib.sha256()
    while block := stream.read(MB):
        digest.update(block)
    return digest.hexdigest()


def test_upload():
    """A large file to Weir, over both families, byte for byte."""
    with files(file=48 * MB) as (directory, sums):
        for host, option, port in ((WEIR4, "-4", "5002"), (WEIR6, "-6", "5003")):
            child = nc(option, "-l", "--link", LINK, port)
            child.stdin.close()
            conn = dial(host, int(port))
            with open(os.path.join(directory, "file"), "rb") as f:
                sender = threading.Thread(target=lambda c, g: (c.sendfile(g),
                                                               c.shutdown(socket.SHUT_WR)),
                                          args=(conn, f))
                sender.start()
                digest = sha256_of(child.stdout)
                sender.join()
            assert digest == sums["file"], f"{host}: what arrived differs"
            assert child.wait(20) == 0
            conn.close()


def refusal(*argv):
    r = subprocess.run([weir, "nc", *argv, KERNEL4, "5000"], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=20)
    assert r.returncode == 1, r
    return r.stderr


def test_refusals():
    """A packet link says why it cannot be had: address of the kernel, MTU, interface, privilege."""
    run("ip", "addr", "add", "10.9.0.7/24", "dev", "wt1")
    run("ip", "addr", "add", "fd09::7/64", "dev", "wt1", "nodad")
    for address in ("addr=10.9.0.7/24", "addr6=fd09::7/64"):
        out = refusal("--link", f"packet:wt1,{address}")
        assert "the kernel holds" in out and "resets" in out, out
    assert "no such interface" in refusal("--link", "packet:wt7,addr=10.9.0.2/24")
    assert "1500 bytes at most" in refusal("--link", "packet:wt1,addr=10.9.0.2/24,mtu=1501")
    assert "no Ethernet" in refusal("--link", "packet:lo,addr=10.9.0.2/24")
    run("ip", "link", "set", "wt1", "down")
    assert "is down" in refusal("--link", "packet:wt1,addr=10.9.0.2/24")
    run("ip", "link", "set", "wt1", "up")
    need("setpriv")
    r = subprocess.run(["setpriv", "--bounding-set", "-net_raw", "--inh-caps", "-net_raw", weir,
                        "nc", "--link", LINK, KERNEL4, "5000"], stdin=subprocess.DEVNULL,
                       capture_output=True, text=True, timeout=20)
    assert r.returncode == 1 and "CAP_NET_RAW" in r.stderr, r


def test_down():
    """The interface goes down and comes up again under a transfer, which goes on; while it is down
    Weir uses no CPU."""
    with files(file=64 * MB) as (directory, sums), serve(directory) as child:
        conn = dial(WEIR4, PORT)
        conn.sendall(b"GET /file HTTP/1.1\r\nHost: w\r\nConnection: close\r\n\r\n")
        got = [conn.recv(MB)]
        for _ in range(2):
            run("ip", "link", "set", "wt1", "down")
            time.sleep(0.3)
            before = cpu_seconds(child.pid)
            time.sleep(0.7)
            assert cpu_seconds(child.pid) - before < 0.2
            run("ip", "link", "set", "wt1", "up")
            got.append(conn.recv(MB))
        while data := conn.recv(MB):
            got.append(data)
        body = b"".join(got).split(b"\r\n\r\n", 1)[1]
        assert hashlib.sha256(body).hexdigest() == sums["file"]


def arp_request(tag):
    """A broadcast that asks for Weir's address, as wt0 would send it."""
    mac = re.search(r"link/ether (\S+)", run("ip", "link", "show", "wt0"))[1]
    mac = bytes.fromhex(mac.replace(":", ""))
    return (b"\xff" * 6 + mac + tag + bytes.fromhex("0806 0001 0800 0604 0001") + mac +
            socket.inet_aton(KERNEL4) + bytes(6) + socket.inet_aton(WEIR4) + bytes(18))


def counter(child, name):
    out = run(weir, "netstat", "-s", "-J", "--control",
              os.path.join(os.environ["XDG_RUNTIME_DIR"], "weir", f"{child.pid}.sock"))
    return int(re.search(rf'"{re.escape(name)}": *(\d+)', out)[1])


def test_vlan():
    """What is tagged for a VLAN is not taken for ours, and counted; priority tags do not matter."""
    with tempfile.TemporaryDirectory(prefix="weir-interop.") as directory:
        os.environ["XDG_RUNTIME_DIR"] = directory
        with serve(directory) as child, socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind(("wt0", 0))
            for tag, answered, tagged in ((b"", 1, 0), (bytes.fromhex("81000005"), 0, 1),
                                          (bytes.fromhex("8100e000"), 1, 0)):
                before = [counter(child, n) for n in ("arp.tx_replies", "link.rx_vlan")]
                raw.send(arp_request(tag))
                time.sleep(0.2)
                after = [counter(child, n) for n in ("arp.tx_replies", "link.rx_vlan")]
                assert after == [before[0] + answered, before[1] + tagged], (tag, before, after)


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_ends():
    """Who is told to end tells its peers; an interface that is deleted costs no CPU."""
    listener = socket.create_server((KERNEL4, 5000))
    listener.settimeout(20)
    for sig in (signal.SIGINT, signal.SIGTERM):
        child = nc("--link", LINK, KERNEL4, "5000")
        conn, _ = listener.accept()
        conn.settimeout(20)
        time.sleep(0.2)  # until it waits
        child.send_signal(sig)
        with contextlib.suppress(ConnectionResetError):
            assert conn.recv(1) == b""
        assert child.wait(20) == -sig
        conn.close()

    far = subprocess.Popen([weir, "server", "--link", LINK], stderr=subprocess.DEVNULL)
    try:
        dial(WEIR4, 12866).close()
        near = subprocess.Popen([weir, "bench", "TCP_STREAM", "-H", WEIR4, "--stack", "kernel",
                                 "-l", "60", "-P", "3"], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
        time.sleep(1)
        far.send_signal(signal.SIGTERM)
        out, _ = near.communicate(timeout=20)
        assert near.returncode == 1 and "told to end" in out, out
        assert far.wait(20) == 0
    finally:
        far.kill()
        far.wait()

    with files(file=64 * MB) as (directory, _), serve(directory) as child:
        conn = dial(WEIR4, PORT)
        conn.sendall(b"GET /file HTTP/1.1\r\nHost: w\r\n\r\n")
        conn.recv(1)
        run("ip", "link", "del", "wt0")
        time.sleep(1)
        before = cpu_seconds(child.pid)
        time.sleep(1)
        assert cpu_seconds(child.pid) - before < 0.2
        conn.close()


def test_short_of_memory():
    """With a megabyte for all buffers, 40 downloads at once take turns and come whole."""
    size = 300000
    with files(file=size) as (directory, _), \
            server("serve", "-6", directory, "-p", str(PORT), "--link", LINK,
                   "--set", "kern.ipc.nmbclusters=512"):
        many_at_once(40, size, 60)
        many_at_once(40, size, 60)


def test_ping():
    """Echoes of both families, whole and fragmented, without loss."""
    need("ping")
    with files(file=1) as (directory, _), serve(directory):
        for host in (WEIR4, WEIR6):
            for size in (0, 56, 1400, 3000, 20000, 60000):
                out = run("ping", "-c", "3", "-i", "0.05", "-W", "2", "-s", str(size), host)
                assert " 0% packet loss" in out, out


def test_capture():
    """What Weir captures itself: tshark finds no wrong checksum and nothing malformed."""
    need("tshark", "curl", "ping")
    with files(file=2 * MB) as (directory, sums):
        path = os.path.join(directory, "capture.pcap")
        with serve(directory, ",capture=" + path):
            for host in (WEIR4, WEIR6):
                assert fetch(host, "file") == sums["file"]
                run("ping", "-c", "2", "-i", "0.05", "-s", "3000", host)
            socket.create_connection((WEIR4, PORT)).close()
            for family, host in ((socket.AF_INET, WEIR4), (socket.AF_INET6, WEIR6)):
                with socket.socket(family, socket.SOCK_DGRAM) as udp:  # quoted in an ICMP error
                    udp.settimeout(10)
                    udp.connect((host, 9))
                    udp.send(b"x" * 100)
                    with contextlib.suppress(ConnectionRefusedError):
                        udp.recv(1)
        options = []
        for proto in ("ip", "tcp", "udp"):
            options += ["-o", f"{proto}.check_checksum:TRUE"]
        bad = " || ".join(["_ws.malformed", "ip.checksum.status == 0", "tcp.checksum.status == 0",
                           "icmp.checksum.status == 0", "icmpv6.checksum.status == 0",
                           "udp.checksum.status == 0"])
        counted = run("tshark", "-n", "-r", path, *options, "-Y", "tcp.checksum.status == 1", "-T",
                      "fields", "-e", "frame.number", timeout=300).split("\n")
        assert len(counted) > 2000, f"{len(counted)} frames with a right checksum"
        out = run("tshark", "-n", "-r", path, *options, "-Y", bad, timeout=300)
        out = "\n".join(line for line in out.splitlines() if not line.startswith("Running as user"))
        assert out.strip() == "", out[:4000]


def main():
    global weir
    name, weir = sys.argv[1], os.path.abspath(sys.argv[2])
    try:
        isolate(sys.argv[3] if len(sys.argv) > 3 else "tap")
        globals()["test_" + name]()
    except Skip as e:
        print(e)
        return 77
    return 0


sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-2-Clause
"""Runs .pkt scripts (the language of packetdrill) against libweir-packetdrill.so.

usage: pkt.py [-v] [-j JOBS] OBJECT.so WEIR-COMMAND SCRIPT.pkt|DIRECTORY...

A script is a list of timed events: socket calls with their expected results, packets to inject (<),
packets to expect (>), and commands in backticks (sysctl, netstat, tcpdrop go to the object's
control socket). Times are virtual: the object has its own clock. Each script runs in a process of
its own: an object serves one script.

With `--ip_version=both` (ours, not packetdrill's) a script runs over IPv4 and IPv6; {mss} in it
is 1460 or 1440. With PKT_SHOW in the environment, what commands print is shown.
"""
import ctypes as C
import errno
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading

TOLERANCE_US = 4000
SCRIPT_LIMIT_S = 30  # real time; a script's own time is virtual
FIELDS = """free socket bind listen accept connect read readv recv recvfrom recvmsg write writev
send sendto sendmsg fcntl ioctl close shutdown getsockopt setsockopt poll netdev_send netdev_receive
usleep gettimeofday epoll_create epoll_ctl epoll_wait pipe splice""".split()
LOCAL = {4: "192.168.0.1", 6: "fd3d:fa7b:d17d::1"}
REMOTE = {4: "192.0.2.1", 6: "2001:db8::1"}
FIN, SYN, RST, PSH, ACK, URG, ECE, CWR = 1, 2, 4, 8, 16, 32, 64, 128
FLAG_LETTERS = {"F": FIN, "S": SYN, "R": RST, "P": PSH, ".": ACK, "U": URG, "E": ECE, "W": CWR}
ECN = {"noecn": 0, "ect1": 1, "ect0": 2, "ce": 3}
MASK32 = 0xFFFFFFFF
MSS = {4: "1460", 6: "1440"}


# What commands in backticks find. FreeBSD's own that mean nothing here do nothing.
SHELL = """
weir() { command=$1; shift; "$WEIR" "$command" --control "$CTL" "$@"; }
sysctl() { case "$*" in *kern.timecounter*) ;; *) weir sysctl "$@" ;; esac; }
netstat() { weir netstat "$@"; }
tcpdrop() { weir tcpdrop "$@"; }
kldload() { :; }
"""


class Failure(Exception):
    pass


class Interface(C.Structure):
    _fields_ = [("userdata", C.c_void_p)] + [(f, C.c_void_p) for f in FIELDS]


class Timeval(C.Structure):
    _fields_ = [("sec", C.c_long), ("usec", C.c_long)]


class Pollfd(C.Structure):
    _fields_ = [("fd", C.c_int), ("events", C.c_short), ("revents", C.c_short)]


class EpollEvent(C.Structure):
    _pack_ = 1
    _fields_ = [("events", C.c_uint32), ("data", C.c_uint64)]


class Iovec(C.Structure):
    _fields_ = [("base", C.c_void_p), ("len", C.c_size_t)]


class Msghdr(C.Structure):
    _fields_ = [("name", C.c_void_p), ("namelen", C.c_uint), ("iov", C.POINTER(Iovec)),
                ("iovlen", C.c_size_t), ("control", C.c_void_p), ("controllen", C.c_size_t),
                ("flags", C.c_int)]


class Object:
    """The loaded object: calls return (result, errno)."""

    def __init__(self, path, flags):
        mode = os.RTLD_NOW | os.RTLD_LOCAL | os.RTLD_NODELETE
        # sanitizers do not bear it
        deep = 0 if os.environ.get("WEIR_NO_DEEPBIND") else os.RTLD_DEEPBIND
        lib = C.CDLL(path, mode=mode | deep, use_errno=True)
        self.ifc = Interface()
        lib.packetdrill_interface_init(flags.encode(), C.byref(self.ifc))
        self.functions = {}

    def call(self, name, restype, *args):
        key = (name, restype) + tuple(type(a) for a in args)
        fn = self.functions.get(key)
        if fn is None:
            kind = C.CFUNCTYPE(restype, C.c_void_p, *key[2:], use_errno=True)
            fn = self.functions[key] = kind(getattr(self.ifc, name))
        C.set_errno(0)
        r = fn(self.ifc.userdata, *args)
        return r, C.get_errno()

    def now(self):
        tv = Timeval()
        self.call("gettimeofday", C.c_int, C.pointer(tv), C.c_void_p(None))
        return tv.sec * 1000000 + tv.usec


# --- the language ---
PREFIXES = ("TCP_", "SO_", "MSG_", "IP", "SOL_", "SHUT_", "EPOLL", "POLL", "SOCK_", "AF_", "PF_")
SYMBOLS = {n: int(getattr(m, n)) for m in (socket, select) for n in dir(m)
           if n.startswith(PREFIXES) and isinstance(getattr(m, n), int)}
SYMBOLS.update(TCP_MAXSEG=2, TCP_CORK=3, TCP_NOPUSH=3, TCP_KEEPIDLE=4, TCP_KEEPINTVL=5,
               TCP_KEEPCNT=6, TCP_SYNCNT=7, TCP_LINGER2=8, TCP_INFO=11, TCP_USER_TIMEOUT=18,
               F_GETFL=3, F_SETFL=4, O_RDWR=2, O_NONBLOCK=os.O_NONBLOCK, FIONREAD=0x541B,
               SIOCINQ=0x541B, SIOCOUTQ=0x5411, SIOCATMARK=0x8905, SO_ACCEPTCONN=30,
               EPOLL_CTL_ADD=1, EPOLL_CTL_DEL=2, EPOLL_CTL_MOD=3)
CALLS = re.compile(r"(\w+)\((.*)\)\s*=\s*(-?\w+|\.\.\.)\s*(E\w+)?\s*(?:\(.*\))?$")
TIME = re.compile(r"(\+?[0-9.]+(?:\s*(?:\.\.\.|~)\s*\+?[0-9.]+)?|\*)\s+(.*)$", re.S)


class Event:
    """An event: its time (seconds; any: no time is checked), perhaps a range, and its text."""

    def __init__(self, line, text):
        self.line = line
        m = TIME.match(text)
        if not m:
            raise Failure(f"line {line}: not an event: {text}")
        when, self.body = m.groups()
        self.any = when == "*"
        self.relative = when.startswith("+")
        self.end_relative = False
        self.end = None
        if not self.any:
            parts = re.split(r"\s*(?:\.\.\.|~)\s*", when)
            if len(parts) > 1:
                self.end_relative = parts[1].startswith("+") or self.relative
                self.end = float(parts[1].lstrip("+"))
            self.at = float(parts[0].lstrip("+"))


def parse(text):
    """(options, events) of a script. An event may go on over lines inside backticks."""
    options, events, pending = {}, [], None
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group().count("\n"), text, flags=re.S)
    for i, line in enumerate(text.split("\n"), 1):
        line = re.sub(r"//.*$|^\s*#.*$", "", line).strip()
        if pending:
            pending = (pending[0], pending[1] + "\n" + line)
        elif line.startswith("--"):
            key, _, value = line[2:].partition("=")
            options[key] = value
            continue
        elif line:
            pending = (i, line)
        if pending and pending[1].count("`") % 2 == 0:
            events.append(Event(*pending))
            pending = None
    return options, events


def symbol(text):
    total = 0
    for part in text.split("|"):
        part = part.strip()
        total |= SYMBOLS[part] if part in SYMBOLS else int(part, 0)
    return total


def split_args(text):
    parts, depth, current = [], 0, ""
    for ch in text:
        depth += ch in "[{(" and 1 or (ch in "]})" and -1 or 0)
        if ch == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += ch
    return parts + [current.strip()] if current.strip() or parts else []


def parse_options(text):
    """[(kind, payload)] of a <...> option list; TS values as integers."""
    out = []
    for item in split_args(text):
        words = item.split()
        if words[0] in ("nop", "eol", "sackOK"):
            out.append((words[0],))
        elif words[0] in ("mss", "wscale"):
            out.append((words[0], int(words[1])))
        elif words[0] == "TS":
            out.append(("TS", int(words[2]), int(words[4])))
        elif words[0] == "sack":
            out.append(("sack",) + tuple(tuple(int(x) for x in w.split(":")) for w in words[1:]))
        elif words[0] == "raw":
            out.append(("raw", bytes.fromhex("".join(words[1:]))))
        else:
            raise Failure(f"unknown option {item}")
    return out


PACKET = re.compile(r"([<>])\s*(?:\[(?P<ecn>\w+)\]\s+)?(?:(?P<src>\d+)\s*>\s*(?P<dst>\d+)\s+)?"
                    r"(?P<flags>[SFRPUEW.]+|-)\s+(?P<seq>\d+):(?P<end>\d+)\((?P<len>\d+)\)"
                    r"(?:\s+ack\s+(?P<ack>\d+))?(?:\s+win\s+(?P<win>\d+))?"
                    r"(?:\s+urg\s+(?P<urg>\d+))?(?:\s+<(?P<opts>.*)>)?$")
ICMP_WHAT = r"icmp\s+(?:unreachable|time_exceeded)\s+(\w+)(?:\s+mtu\s+(\d+))?"
ICMP = re.compile(r"<\s*\[(\d+):(\d+)\((\d+)\)\]\s*" + ICMP_WHAT + "$"
                  r"|<\s*" + ICMP_WHAT + r"\s*\[(\d+):(\d+)\((\d+)\)\]$")
ICMP4 = {"net_unreachable": 0, "host_unreachable": 1, "protocol_unreachable": 2,
         "port_unreachable": 3, "frag_needed": 4, "source_route_failed": 5, "net_unknown": 6,
         "host_unknown": 7, "in_transit": 0, "net_prohibited": 9, "host_prohibited": 10, "admin_prohibited": 13}
ICMP6 = {"packet_too_big": (2, 0), "port_unreachable": (1, 4), "host_unreachable": (1, 3),
         "address_unreachable": (1, 3), "net_unreachable": (1, 0), "admin_prohibited": (1, 1),
         "next_header": (4, 1), "in_transit": (3, 0), "protocol_unreachable": (4, 1)}


# --- bytes ---
def checksum(data):
    if len(data) % 2:
        data += b"\0"
    s = sum(struct.unpack(f">{len(data) // 2}H", data))
    while s >> 16:
        s = (s & 0xFFFF) + (s >> 16)
    return ~s & 0xFFFF


def encode_options(opts, ts_ecr, isn):
    out = b""
    for o in opts:
        if o[0] == "nop":
            out += b"\1"
        elif o[0] == "eol":
            out += b"\0"
        elif o[0] == "sackOK":
            out += b"\4\2"
        elif o[0] == "mss":
            out += struct.pack(">BBH", 2, 4, o[1])
        elif o[0] == "wscale":
            out += struct.pack("BBB", 3, 3, o[1])
        elif o[0] == "TS":
            out += struct.pack(">BBII", 8, 10, o[1], ts_ecr(o[2]))
        elif o[0] == "raw":
            out += o[1]
        elif o[0] == "sack":  # the blocks name the stack's sequence space
            out += struct.pack("BB", 5, 2 + 8 * (len(o) - 1))
            out += b"".join(struct.pack(">II", *((x + isn) & MASK32 for x in b)) for b in o[1:])
    return out + b"\0" * (-len(out) % 4)


def decode_options(b):
    out, i = [], 0
    while i < len(b):
        kind = b[i]
        if kind < 2:
            out.append(("nop",) if kind else ("eol",))
            i += 1
            continue
        n = b[i + 1]
        body = b[i + 2:i + n]
        if kind == 2:
            out.append(("mss", struct.unpack(">H", body)[0]))
        elif kind == 3:
            out.append(("wscale", body[0]))
        elif kind == 4:
            out.append(("sackOK",))
        elif kind == 8:
            out.append(("TS",) + struct.unpack(">II", body))
        elif kind == 5:
            words = struct.unpack(f">{len(body) // 4}I", body)
            out.append(("sack",) + tuple(zip(words[::2], words[1::2])))
        else:
            out.append((f"kind {kind}",))
        i += max(n, 2)
    return out


class Runner:
    def __init__(self, path, weir, script, version, directory):
        """directory: for the control socket, the caller's."""
        self.v = version
        with open(script) as f:
            self.options, self.events = parse(f.read().replace("{mss}", MSS[version]))
        self.weir = weir
        self.ctl = f"{directory}/{os.getpid()}"
        mask = "mask=255.255.0.0," if self.v == 4 else ""
        local, mtu = LOCAL[self.v], self.options.get("mtu", "1500")
        self.o = Object(path, f"local={local},gateway={local},remote={REMOTE[self.v]},{mask}"
                        f"mtu={mtu},ctl={self.ctl}")
        self.family = socket.AF_INET if self.v == 4 else socket.AF_INET6
        self.fds = {}
        self.isn = {}  # of the stack, by (local port, remote port)
        self.lport, self.rport, self.client = 8080, 40001, False
        self.ts_map = {0: 0}
        self.blocked = None
        self.tolerance = int(self.options.get("tolerance_usecs", TOLERANCE_US))
        self.start = self.last = self.o.now() + 1000

    def local_isn(self):
        return self.isn.get((self.lport, self.rport), 0)

    def until(self, at):
        while (left := at - self.o.now()) > 0:
            if left > 20:
                self.o.call("usleep", C.c_int, C.c_uint(left - 20))

    def when(self, ev):
        if ev.any:
            return None
        return (self.last if ev.relative else self.start) + round(ev.at * 1e6)

    def run(self):
        for ev in self.events:
            try:
                at = self.when(ev)
                outbound = ev.body.startswith(">")
                if at is not None and not outbound:
                    self.until(at)
                self.execute(ev, at)
                self.last = at if at is not None else self.o.now()
            except Failure as e:
                raise Failure(f"line {ev.line}: {e}") from None
        self.join()
        self.o.call("free", None)

    def execute(self, ev, at):
        b = ev.body
        if b.startswith("`"):
            self.command(b.strip("`"))
        elif b.startswith("%{"):
            return
        elif ICMP.match(b):
            self.inject_icmp(ICMP.match(b))
        elif b[0] in "<>":
            m = PACKET.match(b)
            if not m:
                raise Failure(f"not a packet: {b}")
            if b[0] == "<":
                self.inject(m)
            else:
                end = at
                if ev.end is not None:
                    end = (self.last if ev.end_relative else self.start) + round(ev.end * 1e6)
                self.expect(m, at, end)
        else:
            m = CALLS.match(b)
            if not m:
                raise Failure(f"not a call: {b}")
            self.join()
            if ev.end is not None:
                self.begin_blocking(m, ev, at)
            else:
                self.check_call(m, *self.syscall(m.group(1), split_args(m.group(2))))

    def command(self, text):
        env = dict(os.environ, WEIR=self.weir, CTL=self.ctl)
        r = subprocess.run(["sh", "-c", SHELL + text], capture_output=True, text=True, env=env)
        if r.returncode:
            raise Failure(f"{text}: exit {r.returncode}: {r.stderr.strip()}")
        if os.environ.get("PKT_SHOW"):
            print(r.stdout, end="", file=sys.stderr)

    # --- packets ---
    def inject(self, m):
        flags = sum(FLAG_LETTERS[c] for c in m["flags"] if c != "-")
        seq, ack = int(m["seq"]), int(m["ack"] or 0)
        if m["src"]:
            self.rport, self.lport = int(m["src"]), int(m["dst"])
        opts = b""
        if m["opts"]:
            opts = encode_options(parse_options(m["opts"]), lambda v: self.ts_map.get(v, v),
                                  self.local_isn())
        live_ack = (ack + self.local_isn()) & MASK32 if flags & ACK else 0
        tcp = struct.pack(">HHIIBBHHH", self.rport, self.lport, seq & MASK32, live_ack,
                          (20 + len(opts)) // 4 << 4, flags, int(m["win"] or 0), 0,
                          int(m["urg"] or 0))
        tcp += opts + b"\0" * int(m["len"])
        self.send_ip(tcp, 6, ECN.get(m["ecn"], 0))

    def addr(self, host):
        return socket.inet_pton(self.family, host)

    def send_ip(self, l4, proto, ecn=0):
        src, dst = self.addr(REMOTE[self.v]), self.addr(LOCAL[self.v])
        if proto != 1:
            at = 16 if proto == 6 else 2
            s = checksum(src + dst + struct.pack(">II", len(l4), proto) + l4)
            l4 = l4[:at] + struct.pack(">H", s) + l4[at + 2:]
        if self.v == 4:
            h = struct.pack(">BBHHHBBH", 0x45, ecn, 20 + len(l4), 0, 0, 255, proto, 0) + src + dst
            h = h[:10] + struct.pack(">H", checksum(h)) + h[12:]
        else:
            h = struct.pack(">IHBB", 6 << 28 | ecn << 20, len(l4), proto, 255) + src + dst
        p = h + l4
        r, _ = self.o.call("netdev_send", C.c_int, C.c_char_p(p), C.c_size_t(len(p)))
        if r:
            raise Failure("netdev_send failed")

    def inject_icmp(self, m):
        g = m.groups()
        if not m.group(4):
            g = (m.group(8), m.group(9), m.group(10), m.group(6), m.group(7))
        seq = (int(g[0]) + self.local_isn()) & MASK32
        length, kind, mtu = int(g[2]), g[3], int(g[4] or 0)
        quoted_tcp = struct.pack(">HHII", self.lport, self.rport, seq, 0)
        src, dst = self.addr(LOCAL[self.v]), self.addr(REMOTE[self.v])
        if self.v == 4:
            h = struct.pack(">BBHHHBBH", 0x45, 0, 40 + length, 0, 0x4000, 64, 6, 0) + src + dst
            typ, code = (11, 0) if kind == "in_transit" else (3, ICMP4[kind])
            body = struct.pack(">BBHHH", typ, code, 0, 0, mtu) + h + quoted_tcp
            body = body[:2] + struct.pack(">H", checksum(body)) + body[4:]
            self.send_ip(body, 1)
        else:
            typ, code = ICMP6[kind]
            h = struct.pack(">IHBB", 6 << 28, 20 + length, 6, 64) + src + dst
            self.send_ip(struct.pack(">BBHI", typ, code, 0, mtu) + h + quoted_tcp, 58)

    def receive(self):
        buf, n, t = C.create_string_buffer(65536), C.c_size_t(65536), C.c_longlong()
        while True:
            n.value = 65536
            r, _ = self.o.call("netdev_receive", C.c_int, buf, C.pointer(n), C.pointer(t))
            if r == 0:
                break
        b = buf.raw[:n.value]
        if len(b) < 20:
            raise Failure("the stack has nothing more to send")
        off = 20 if b[0] >> 4 == 4 else 40
        if off == 20 and (checksum(b[:20]) or b[0] != 0x45):
            raise Failure("bad IPv4 header")
        ecn = (b[1] if off == 20 else struct.unpack(">H", b[:2])[0] >> 4) & 3
        src, dst = (b[12:16], b[16:20]) if off == 20 else (b[8:24], b[24:40])
        if checksum(src + dst + struct.pack(">II", len(b) - off, 6) + b[off:]):
            raise Failure("bad TCP checksum")
        return ecn, b[off:], t.value

    def expect(self, m, at, end):
        flags = sum(FLAG_LETTERS[c] for c in m["flags"] if c != "-")
        ecn, tcp, when = self.receive()
        sport, dport, seq, ack, off, got, win, _, urg = struct.unpack(">HHIIBBHHH", tcp[:20])
        off = (off >> 4) * 4
        if got & SYN:
            self.lport, self.rport = sport, dport
            self.isn[(sport, dport)] = seq
        elif (sport, dport) != (self.lport, self.rport):
            if (sport, dport) not in self.isn:
                raise Failure(f"a packet of another connection: {sport} > {dport}")
            self.lport, self.rport = sport, dport
        known = (sport, dport) in self.isn
        rel = (seq - self.local_isn()) & MASK32
        shown = f"flags {got:#04x} seq {rel} len {len(tcp) - off} ack {ack} win {win} urg {urg} " \
                f"ecn {ecn} {decode_options(tcp[20:off])} at {(when - self.start) / 1e6:.6f}"
        problems = []
        if got != flags:
            problems.append("flags")
        refusal = not known and flags & RST  # of a segment that belongs to no connection
        comparable = known or seq == 0 or refusal
        if comparable and rel != int(m["seq"]) and not (refusal and flags & ACK):
            problems.append("sequence number")
        if len(tcp) - off != int(m["len"]):
            problems.append("length")
        if flags & ACK and ack != int(m["ack"] or 0):
            problems.append("ack")
        if m["win"] is not None and win != int(m["win"]):
            problems.append("window")
        if m["ecn"] and ECN[m["ecn"]] != ecn:
            problems.append("ECN field")
        if flags & URG and urg != int(m["urg"] or 0):
            problems.append("urgent pointer")
        if m["src"] and (sport, dport) != (int(m["src"]), int(m["dst"])):
            problems.append("ports")
        if m["opts"] != "...":
            problems += self.compare_options(parse_options(m["opts"] or ""),
                                             decode_options(tcp[20:off]))
        if at is not None and not at - self.tolerance <= when <= end + self.tolerance:
            problems.append(f"time (expected {(at - self.start) / 1e6:.6f})")
        if problems:
            raise Failure(f"{', '.join(problems)}: got {shown}")

    def compare_options(self, want, got):
        problems = []
        if [o[0] for o in want] != [o[0] for o in got]:
            return ["options"]
        for w, g in zip(want, got):
            if w[0] == "TS":
                self.ts_map[w[1]] = g[1]
                if w[2] != g[2]:
                    problems.append("TS ecr")
            elif w != g:
                problems.append(f"option {w[0]}")
        return problems

    # --- calls ---
    def fd(self, text):
        return self.fds.get(int(text), -1)

    def sockaddr(self, host, port):
        head = struct.pack("=H", self.family)
        if self.v == 4:
            return head + struct.pack(">H", port) + self.addr(host) + b"\0" * 8
        return head + struct.pack(">HI", port, 0) + self.addr(host) + b"\0" * 4

    def address_of(self, name, text):
        host = LOCAL[self.v] if name == "bind" else REMOTE[self.v]
        port = re.search(r"htons\((\d+)\)", text)
        return self.sockaddr(host, int(port.group(1)) if port else 8080)

    def syscall(self, name, a):
        fn = getattr(self, "call_" + name, None)
        if fn:
            return fn(a)
        if name in ("listen", "shutdown", "fcntl"):
            extra = [C.c_int(symbol(x)) for x in a[1:]]
            return self.o.call(name, C.c_int, C.c_int(self.fd(a[0])), *extra)
        raise Failure(f"call {name} is not known here")

    def call_socket(self, a):
        i = C.c_int
        return self.o.call("socket", i, i(self.family), i(symbol(a[1])), i(symbol(a[2])))

    def call_bind(self, a, name="bind"):
        sa = self.address_of(name, a[1])
        return self.o.call(name, C.c_int, C.c_int(self.fd(a[0])), C.c_char_p(sa), C.c_int(len(sa)))

    def call_connect(self, a):
        return self.call_bind(a, "connect")

    def call_accept(self, a):
        sa, n = C.create_string_buffer(128), C.c_uint(128)
        return self.o.call("accept", C.c_int, C.c_int(self.fd(a[0])), sa, C.pointer(n))

    def call_close(self, a):
        return self.o.call("close", C.c_int, C.c_int(self.fds.pop(int(a[0]), -1)))

    def plain_io(self, name, a):
        n = int(a[2])
        extra = [C.c_int(symbol(a[3]))] if len(a) > 3 else []
        if name in ("recvfrom", "sendto"):
            sa, length = None, C.c_uint(0)
            if name == "sendto" and a[4] not in ("NULL", "0"):
                sa = C.c_char_p(self.sockaddr(REMOTE[self.v], 8080))
                length = C.c_uint(16 if self.v == 4 else 28)
            extra += [sa or C.c_void_p(None), C.c_void_p(None) if name == "recvfrom" else length]
        buf = C.create_string_buffer(max(n, 1))
        return self.o.call(name, C.c_ssize_t, C.c_int(self.fd(a[0])), buf, C.c_size_t(n), *extra)

    def call_read(self, a):
        return self.plain_io("read", a)

    def call_recv(self, a):
        return self.plain_io("recv", a)

    def call_recvfrom(self, a):
        return self.plain_io("recvfrom", a)

    def call_write(self, a):
        return self.plain_io("write", a)

    def call_send(self, a):
        return self.plain_io("send", a)

    def call_sendto(self, a):
        return self.plain_io("sendto", a)

    def iovecs(self, text):
        sizes = [int(x) for x in re.findall(r"\{\s*[^,{}]+,\s*(\d+)\s*\}", text)]
        keep = [C.create_string_buffer(max(s, 1)) for s in sizes]
        vec = (Iovec * max(len(sizes), 1))(*[Iovec(C.addressof(b), s) for b, s in zip(keep, sizes)])
        return vec, len(sizes), keep

    def vector_io(self, name, a):
        vec, n, keep = self.iovecs(a[1])
        r = self.o.call(name, C.c_ssize_t, C.c_int(self.fd(a[0])), vec, C.c_int(n))
        return r if keep is not None else None

    def call_readv(self, a):
        return self.vector_io("readv", a)

    def call_writev(self, a):
        return self.vector_io("writev", a)

    def message_io(self, name, a):
        vec, n, keep = self.iovecs(a[1])
        msg = Msghdr(None, 0, vec, n, None, 0, 0)
        r = self.o.call(name, C.c_ssize_t, C.c_int(self.fd(a[0])), C.pointer(msg),
                        C.c_int(symbol(a[2])))
        want = re.search(r"msg_flags=([\w|]+)", a[1])
        if name == "recvmsg" and r[0] >= 0 and want and msg.flags != symbol(want.group(1)):
            raise Failure(f"msg_flags are {msg.flags:#x}")
        return r if keep is not None else None

    def call_sendmsg(self, a):
        return self.message_io("sendmsg", a)

    def call_recvmsg(self, a):
        return self.message_io("recvmsg", a)

    def call_setsockopt(self, a):
        val = self.option_value(a[3])
        return self.o.call("setsockopt", C.c_int, C.c_int(self.fd(a[0])), C.c_int(symbol(a[1])),
                           C.c_int(symbol(a[2])), C.c_char_p(val), C.c_uint(len(val)))

    def call_getsockopt(self, a):
        buf, n = C.create_string_buffer(256), C.c_uint(256)
        r = self.o.call("getsockopt", C.c_int, C.c_int(self.fd(a[0])), C.c_int(symbol(a[1])),
                        C.c_int(symbol(a[2])), buf, C.pointer(n))
        want = a[3].strip("[]")
        if r[0] != 0 or want == "...":
            return r
        got = struct.unpack("=i", buf.raw[:4])[0]
        if want.startswith("{"):
            expected = struct.unpack("=ii", self.option_value(want))
            got = struct.unpack("=ii", buf.raw[:8])
        else:
            expected = getattr(errno, want) if want.startswith("E") else symbol(want)
        if got != expected:
            raise Failure(f"{a[2]} is {got}")
        return r

    def call_ioctl(self, a):
        v = C.c_int()
        r = self.o.call("ioctl", C.c_int, C.c_int(self.fd(a[0])), C.c_ulong(symbol(a[1])),
                        C.pointer(v))
        if r[0] == 0 and v.value != int(a[2].strip("[]")):
            raise Failure(f"{a[1]} gives {v.value}")
        return r

    def call_poll(self, a):
        pattern = r"\{\s*fd=(\d+)\s*,\s*events=([\w|\s]+?)\s*(?:,\s*revents=([\w|\s]+?)\s*)?\}"
        entries = re.findall(pattern, a[0])
        fds = (Pollfd * len(entries))(*[Pollfd(self.fd(e[0]), symbol(e[1]), 0) for e in entries])
        r = self.o.call("poll", C.c_int, fds, C.c_ulong(len(entries)), C.c_int(int(a[2])))
        for e, f in zip(entries, fds):
            if f.revents != symbol(e[2] or "0"):
                raise Failure(f"revents of {e[0]} are {f.revents:#x}")
        return r

    def epoll_event(self, text):
        m = re.search(r"events=([\w|\s]+?)\s*,\s*(?:fd|u32|u64|ptr)=(\d+)", text)
        return EpollEvent(symbol(m.group(1)), int(m.group(2)))

    def call_epoll_create(self, a):
        return self.o.call("epoll_create", C.c_int, C.c_int(int(a[0])))

    def call_epoll_ctl(self, a):
        ev = self.epoll_event(a[3])
        return self.o.call("epoll_ctl", C.c_int, C.c_int(self.fd(a[0])), C.c_int(symbol(a[1])),
                           C.c_int(self.fd(a[2])), C.pointer(ev))

    def call_epoll_wait(self, a):
        want = self.epoll_event(a[1]) if "events=" in a[1] else None
        got = (EpollEvent * 8)()
        r = self.o.call("epoll_wait", C.c_int, C.c_int(self.fd(a[0])), got, C.c_int(int(a[2])),
                        C.c_int(int(a[3])))
        if want and r[0] > 0 and (got[0].events, got[0].data) != (want.events, want.data):
            raise Failure(f"event {got[0].events:#x} of {got[0].data}")
        return r

    def option_value(self, text):
        text = text.strip("[]")
        if text.startswith("{"):  # struct linger
            values = [int(x.split("=")[1]) for x in text.strip("{}").split(",")]
            return struct.pack("=ii", *values)
        if text.startswith('"'):
            return text.strip('"').encode()
        return struct.pack("=i", symbol(text))

    def check_call(self, m, result, err):
        name = m.group(1)
        if m.group(3) == "...":
            return
        want = int(m.group(3), 0)
        if name in ("socket", "accept", "epoll_create") and want >= 0:
            if result < 0:
                raise Failure(f"{name} failed: {errno.errorcode.get(err, err)}")
            self.fds[want] = result
            return
        if result != want:
            why = errno.errorcode.get(err, err) if result < 0 else "no error"
            raise Failure(f"{name} returned {result} ({why})")
        if want < 0 and m.group(4) and getattr(errno, m.group(4)) != err:
            raise Failure(f"{name}: errno {errno.errorcode.get(err, err)}")

    # --- a call that blocks ---
    def begin_blocking(self, m, ev, at):
        self.join()
        end = (self.last if ev.end_relative else self.start) + round(ev.end * 1e6)
        state = {"m": m, "end": end, "done": threading.Event(), "tid": None}

        def body():
            state["tid"] = threading.get_native_id()
            try:
                state["result"] = self.syscall(m.group(1), split_args(m.group(2)))
            except Failure as e:
                state["failure"] = e
            state["at"] = self.o.now()
            state["done"].set()

        threading.Thread(target=body, daemon=True).start()
        self.blocked = state
        for _ in range(2000):
            if state["done"].is_set():
                return
            if state["tid"]:
                with open(f"/proc/self/task/{state['tid']}/stat") as f:
                    if f.read().rpartition(")")[2].split()[0] == "S":
                        return
            state["done"].wait(0.001)
        raise Failure("the call neither blocks nor returns")

    def join(self, only_done=False):
        s = self.blocked
        if not s or (only_done and not s["done"].is_set()):
            return
        self.blocked = None
        if not s["done"].is_set():
            self.until(s["end"] + self.tolerance)
        if not s["done"].wait(5):
            raise Failure(f"{s['m'].group(1)} still blocks at its expected end")
        if "failure" in s:
            raise s["failure"]
        self.check_call(s["m"], *s["result"])
        if abs(s["at"] - s["end"]) > self.tolerance:
            raise Failure(f"{s['m'].group(1)} ended at {(s['at'] - self.start) / 1e6:.6f}")


# --- many scripts ---
def run_one(path, weir, script, version, directory):
    """In a child: exit status 0 or 1, the reason on standard error."""
    signal.alarm(SCRIPT_LIMIT_S)
    try:
        Runner(path, weir, script, version, directory).run()
        return 0
    except Failure as e:
        print(f"{script} (IPv{version}): {e}", file=sys.stderr)
    except Exception as e:  # a script that the runner does not understand
        print(f"{script} (IPv{version}): {type(e).__name__}: {e}", file=sys.stderr)
    return 1


def versions_of(script):
    with open(script) as f:
        m = re.search(r"^\s*--ip_version=(\w+)", f.read(), re.M)
    return {"both": [4, 6], "ipv6": [6]}.get(m.group(1) if m else "ipv4", [4])


def spawn(path, weir, script, version, directory):
    sys.stderr.flush()
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        os.close(0)
        os.open(os.devnull, os.O_RDONLY)
        status = run_one(path, weir, script, version, directory)
        sys.stderr.flush()
    finally:
        os._exit(status)


def scripts_of(arguments):
    for a in arguments:
        if not os.path.isdir(a):
            yield a
            continue
        for folder, _, files in sorted(os.walk(a)):
            yield from (os.path.join(folder, f) for f in sorted(files) if f.endswith(".pkt"))


def short_directory():
    """A temporary directory for control sockets, whose paths may have 107 bytes at most."""
    place = tempfile.gettempdir()
    return tempfile.TemporaryDirectory(prefix="weir-pkt.", dir=place if len(place) < 70 else "/tmp")


def run_all(path, weir, arguments, directory, jobs, verbose):
    running, failed, total = {}, 0, 0
    queue = [(s, v) for s in scripts_of(arguments) for v in versions_of(s)][::-1]
    while queue or running:
        while queue and len(running) < jobs:
            script, version = queue.pop()
            running[spawn(path, weir, script, version, directory)] = script
        pid, status = os.wait()
        script = running.pop(pid)
        total += 1
        failed += status != 0
        if status and os.WIFSIGNALED(status):
            print(f"{script}: killed by signal {os.WTERMSIG(status)}", file=sys.stderr)
        elif verbose and not status:
            print(f"{script}: passed")
    return total, failed


def main():
    args, verbose, jobs = sys.argv[1:], False, min(os.cpu_count() or 1, 4)
    while args and args[0].startswith("-"):
        option = args.pop(0)
        if option == "-v":
            verbose = True
        elif option == "-j" and args:
            jobs = int(args.pop(0))
    if len(args) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    path, weir = map(os.path.abspath, args[:2])
    with short_directory() as directory:
        total, failed = run_all(path, weir, args[2:], directory, jobs, verbose)
    print(f"{total - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())

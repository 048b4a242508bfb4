# SPDX-License-Identifier: MIT
"""Real nodes for tests: `picket serve` processes on free ports of 127.0.0.1.

    from cluster import Cluster

    with Cluster(t.program, t.path("cluster"), 3) as c:
        t.picket("acquire", "--on", c.url, "db")
        c.leader().kill()               # as kill -9 does; .stop() and .cont() freeze it
        c.leader()                      # waits until another one serves
        c.nodes[0].start()              # again, with the data it had

`start` gives the whole cluster once a leader serves. `Connection` talks RESP3 to one
node: `c.leader().ask("LOCK", "SHOW", "db")`; a plain `Connection(port)` talks RESP2 and
lets the node relay. Nothing here outlives the `with`. `hosts` puts each node into a
network of its own, see lan.py.
"""
import contextlib
import fcntl
import http.client
import os
import random
import re
import signal
import socket
import subprocess
import time

READY_S = 120  # only a hang takes so long
# Three times the default: a leader that a busy machine does not run for a moment stays
# one, unless a test is about its end.
ELECTION_MS = 1000
QUICK = ("--election-ms", "300")  # the default, for tests of how silence is noticed
# Below the ports that the kernel gives to outgoing connections, so that a node which is
# down for a moment finds its port free when it comes back.
PORTS = range(18000, 32000)


class NotReady(Exception):
    """The nodes did not get as far as they should have."""


class ServerError(Exception):
    """An error reply; its text begins with the code."""

    @property
    def code(self):
        return str(self).partition(" ")[0]


class _Ports:
    """Those that this process has given out. A server binds its port a while after it was
    found free, or again after a restart: so it is ours until the process ends, by a lock
    on one byte of a file that all tests share."""

    def __init__(self):
        self._given = set()
        self._file = None

    def take(self):
        if self._file is None:
            # Not below TMPDIR: suites that run side by side have one each.
            self._file = open(f"/tmp/picket-ports-{os.getuid()}",  # pylint: disable=R1732
                              "wb")
        while True:
            port = random.choice(PORTS)
            if port not in self._given and self._locked(port) and self._free(port):
                self._given.add(port)
                return port

    def _locked(self, port):
        with contextlib.suppress(OSError):
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            return True
        return False

    @staticmethod
    def _free(port):
        with contextlib.suppress(OSError), socket.socket() as s:
            s.bind(("127.0.0.1", port))
            return True
        return False


_ports = _Ports()


def free_ports(n):
    """`n` ports of 127.0.0.1 on which nobody listens, and no other test will."""
    return [_ports.take() for _ in range(n)]


def fields(reply):
    """The map that RESP2 sends as a flat list."""
    return dict(zip(reply[::2], reply[1::2]))


def get(node, path, method="GET", headers=None):
    """Status and text of a page of the node."""
    c = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=READY_S)
    try:
        c.request(method, path, headers=headers or {})
        answer = c.getresponse()
        return answer.status, answer.read().decode()
    finally:
        c.close()


def dial_small(port, timeout=READY_S):
    """A socket for which the kernel keeps little: what is unread is the server's."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
    s.settimeout(timeout)
    s.connect(("127.0.0.1", port))
    return s


class Connection:
    """One connection. Replies come as Python values; pushes gather in .pushes."""

    def __init__(self, port, host="127.0.0.1", timeout=READY_S, small=False):
        self.socket = dial_small(port, timeout) if small else \
            socket.create_connection((host, port), timeout)
        self.file = self.socket.makefile("rb")
        self.pushes = []

    def send(self, *words):
        parts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        out = b"*%d\r\n" % len(parts)
        self.socket.sendall(out + b"".join(b"$%d\r\n%s\r\n" % (len(p), p) for p in parts))

    def ask(self, *words):
        """Sends one request and returns its reply; raises ServerError for an error."""
        self.send(*words)
        return self.reply()

    def reply(self):
        """The next reply; pushes before it are put aside."""
        while True:
            kind, value = self._value()
            if kind == b">":
                self.pushes.append(value)
            elif isinstance(value, ServerError):
                raise value
            else:
                return value

    def push(self):
        """The next push, which may have come already."""
        while not self.pushes:
            kind, value = self._value()
            if kind != b">":
                raise NotReady(f"a reply where a push was expected: {value!r}")
            self.pushes.append(value)
        return self.pushes.pop(0)

    def close(self):
        self.file.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _line(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the connection ended")
        return line[:1], line[1:-2]

    def _value(self):
        kind, text = self._line()
        if kind in b"+:-,(#_":
            return kind, self._scalar(kind, text)
        if kind in b"$=":
            n = int(text)
            if n < 0:
                return kind, None
            data = self.file.read(n + 2)
            if len(data) != n + 2:
                raise ConnectionError("the connection ended")
            return kind, data[:-2].decode("utf-8", "surrogateescape")
        items = [self._value()[1] for _ in range(int(text) * (2 if kind == b"%" else 1))]
        return kind, dict(zip(items[::2], items[1::2])) if kind == b"%" else items

    @staticmethod
    def _scalar(kind, text):
        word = text.decode("utf-8", "surrogateescape")
        if kind == b"-":
            return ServerError(word)
        if kind in b":(":
            return int(word)
        return {b"#": word == "t", b"_": None, b",": word}.get(kind, word)


class Loopback:
    """Where a node runs, unless it is told otherwise."""
    address = "127.0.0.1"
    enter = ()  # the words before a command that is to run there


class Node:
    """One server process and its data, which outlives the process."""

    def __init__(self, cluster, name, ports, place, host=Loopback):
        self.cluster = cluster
        self.name = name
        self.host = host
        self.port, self.raft_port, self.http_port = ports
        self.place = list(place)  # --cluster or --join, with its value
        self.data = os.path.join(cluster.dir, name)
        self.log = os.path.join(cluster.dir, name + ".log")
        self.process = None
        self.program = None  # None: the cluster's

    @property
    def url(self):
        return f"picket://{self.host.address}:{self.port}"

    @property
    def pid(self):
        return self.process.pid

    def start(self):
        """Starts the process; it need not serve yet when this returns."""
        if self.alive():
            raise NotReady(f"{self.name} is running already")
        at = self.host.address
        program = self.program or self.cluster.program
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*self.host.enter, program, "serve", "--name", self.name,
                 "--data", self.data, "--listen", f"{at}:{self.port}",
                 "--http", f"{at}:{self.http_port}", "--raft", f"{at}:{self.raft_port}",
                 *self.place, *self.cluster.flags],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """kill -9, and waits for the end. Fine for one that is dead or frozen."""
        if self.alive():
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def terminate(self):
        """Asks it to end in order, and returns its exit code."""
        self.process.terminate()
        return self.process.wait(READY_S)

    def stop(self):
        """Freezes it, as a long pause does."""
        os.kill(self.pid, signal.SIGSTOP)

    def cont(self):
        os.kill(self.pid, signal.SIGCONT)

    def restart(self):
        self.kill()
        self.start()

    def connect(self, timeout=READY_S):
        """A connection in RESP3 to this very node, which sends us on to no other."""
        c = Connection(self.port, self.host.address, timeout)
        try:
            c.ask("HELLO", 3)
            c.ask("CLIENT", "REDIRECT", "ON")
        except BaseException:
            c.close()
            raise
        return c

    def ask(self, *words, timeout=READY_S):
        """One request on a connection of its own."""
        with self.connect(timeout) as c:
            return c.ask(*words)

    def serves(self):
        """True when it is the leader, has caught up and has a majority behind it."""
        try:
            self.ask("LOCK", "SHOW", "-", timeout=1)
            return True
        except (OSError, ServerError):
            return False

    def last_words(self):
        """The end of what it logged."""
        return self.words()[-2000:]

    def refusal(self):
        """The one line with which it refused to start."""
        said = [line for line in self.words().splitlines() if not line.startswith("ts=")]
        if len(said) != 1:
            raise NotReady(f"not one line: {said}")
        return said[0]

    def words(self):
        """All that it logged."""
        with contextlib.suppress(FileNotFoundError), open(self.log, "rb") as f:
            return f.read().decode("utf-8", "replace")
        return ""

    def metric(self, name):
        """The value of a metric without labels, as a monitor sees it."""
        c = http.client.HTTPConnection(self.host.address, self.http_port, timeout=READY_S)
        with contextlib.closing(c):
            c.request("GET", "/metrics")
            text = c.getresponse().read().decode()
        return float(re.search(rf"^{name} ([0-9.e+-]+)$", text, re.MULTILINE)[1])

    def memory(self):
        """Bytes of memory that the process has in use."""
        with open(f"/proc/{self.pid}/statm", encoding="ascii") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")


    def peak_memory(self):
        """The most that it ever had in use."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return int(re.search(r"VmHWM:\s+(\d+) kB", f.read())[1]) * 1024


class Cluster:
    """`n` nodes under `folder`, on the first `n` of `hosts` if any are given. `flags` are
    passed to each `picket serve`, behind a patient election timeout."""

    def __init__(self, program, folder, n=1, flags=(), hosts=None):
        self.program = program
        self.dir = folder
        self.flags = list(flags)
        if "--election-ms" not in self.flags:
            self.flags += ["--election-ms", str(ELECTION_MS)]
        os.makedirs(folder, exist_ok=True)
        ports = free_ports(3 * n)
        hosts = hosts or [Loopback] * n
        members = ",".join(f"n{i + 1}={hosts[i].address}:{ports[3 * i + 1]}"
                           for i in range(n))
        self.nodes = [Node(self, f"n{i + 1}", ports[3 * i:3 * i + 3],
                           ["--cluster", members], hosts[i]) for i in range(n)]

    @property
    def url(self):
        return "picket://" + ",".join(f"{n.host.address}:{n.port}" for n in self.nodes)

    def node(self, name):
        return next(n for n in self.nodes if n.name == name)

    def join(self, name, through):
        """Starts one more node, which joins through a node that is there."""
        node = Node(self, name, free_ports(3),
                    ["--join", f"{through.host.address}:{through.port}"])
        self.nodes.append(node)
        node.start()
        return node

    def start(self):
        """Starts all nodes and waits until one of them serves. Returns the cluster."""
        for node in self.nodes:
            node.start()
        self.leader()
        return self

    def leader(self, seconds=READY_S):
        """The node that serves; waits for it."""
        end = time.monotonic() + seconds
        while True:
            for node in self.nodes:
                if node.alive() and node.serves():
                    return node
            if time.monotonic() > end:
                said = "\n".join(f"--- {n.name}\n{n.last_words()}" for n in self.nodes)
                raise NotReady(f"nobody serves after {seconds} s\n{said}")
            time.sleep(0.02)

    def followers(self):
        leader = self.leader()
        return [n for n in self.nodes if n is not leader and n.alive()]

    def close(self):
        for node in self.nodes:
            node.kill()

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a failover does to a lock: `make demo-redis-failover`.

A real Redis master with a replica, and a lock that is taken while the replication lags
behind. The master dies, the replica is promoted, and the lock is granted a second time:
two holders at once, with the same token. Then the same story on three nodes of Picket,
whose leader dies: one holder, and tokens that grow.

Replication is held back by a cable of our own between the two servers, so that it happens
every time; with a network it happens when one is slow at the wrong moment. Exits with 0
if both stories went as told here, else with 1. $PICKET names the program.
"""
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "test", "e2e"))
# pylint: disable=wrong-import-position
from cluster import QUICK, Cluster, Connection, free_ports  # noqa: E402

PICKET = os.path.abspath(os.environ.get("PICKET", os.path.join(ROOT, "build", "picket")))
LOCK = "reports/nightly"
PATIENCE_S = 20
BEGAN = time.monotonic()
COLOURS = {"A": "36", "B": "35", "->": "1", "bad": "1;31", "good": "1;32"}


class WentOtherwise(Exception):
    """Not what the story says."""


def tell(who, what, colour=None):
    """A line of the story."""
    line = f"{time.monotonic() - BEGAN:6.2f}s  {who:<7} {what}"
    code = COLOURS.get(colour or who)
    print(f"\033[{code}m{line}\033[0m" if code and sys.stdout.isatty() else line,
          flush=True)


def title(text):
    print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)


def until(condition, what):
    """Waits for it to be true, and returns what it gives."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            value = condition()
            if value:
                return value
        time.sleep(0.02)
    raise WentOtherwise(f"waited in vain for {what}")


class Cable:
    """Carries bytes to a port of this machine, until it is held."""

    def __init__(self, port):
        self.to = port
        self.held = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", self.to))
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(a, b), daemon=True).start()

    def _carry(self, a, b):
        with contextlib.suppress(OSError):
            while data := a.recv(65536):
                if self.held.is_set():
                    continue  # on its way, for ever
                b.sendall(data)


class Redis:
    """One server, in memory only."""

    def __init__(self, folder, *settings):
        self.port, = free_ports(1)
        self.url = f"redis://127.0.0.1:{self.port}"
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir",
             folder, "--save", "", *settings], stdout=subprocess.DEVNULL)
        until(lambda: self.ask("PING") == "PONG", "Redis")

    def ask(self, *words):
        with Connection(self.port) as c:
            return c.ask(*words)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Holder:
    """`picket run` with a job that says its token, and works until it is let go."""

    def __init__(self, who, url, *options):
        self.process = subprocess.Popen(
            [PICKET, "run", "--on", url, "--ttl", "5s", *options, LOCK, "--", "sh", "-c",
             "echo $PICKET_TOKEN; cat >/dev/null"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        said = self.process.stdout.readline()
        if not said:
            raise WentOtherwise(f"{who} did not get it: {self.process.stderr.read()}")
        self.token = int(said)
        tell(who, f"holds {LOCK} with token {self.token}, and works")

    def works(self):
        return self.process.poll() is None

    def end(self):
        """Lets the job end; what `picket run` exits with."""
        with contextlib.suppress(OSError):  # it may have been ended before
            self.process.stdin.close()
        return self.process.wait()


def on_redis(folder):
    """True: it went as it must with asynchronous replication."""
    title("1. Redis: a master and a replica, which follows asynchronously")
    with contextlib.ExitStack() as after:
        master = Redis(folder, "--repl-diskless-sync-delay", "0")
        after.callback(master.kill)
        cable = Cable(master.port)
        replica = Redis(folder, "--replicaof", f"127.0.0.1 {cable.port}")
        after.callback(replica.kill)
        early = Holder("earlier", master.url)
        early.end()
        tell("earlier", "is done, and the lock is free again")
        until(lambda: replica.ask("GET", "picket-token:picket:" + LOCK) ==
              str(early.token) and not replica.ask("EXISTS", "picket:" + LOCK),
              "the replica to follow")
        tell("replica", f"has followed so far: its counter is at {early.token}")
        cable.held.set()
        tell("network", "is slow from here on: nothing more reaches the replica")
        a = Holder("A", master.url)
        after.callback(a.end)
        master.kill()
        tell("master", "dies (kill -9), having granted the lock to A")
        replica.ask("REPLICAOF", "NO", "ONE")
        tell("replica", "is promoted; it has never heard of A")
        b = Holder("B", replica.url, "-n")
        after.callback(b.end)
        both = a.works() and b.works()
        if not both or b.token > a.token:
            tell("->", f"not shown: both work: {both}, tokens {a.token} and {b.token}")
            return False
        tell("->", f"TWO HOLDERS at once: A with token {a.token}, B with token "
             f"{b.token}. No fence can tell them apart", "bad")
        a.process.wait()
        tell("A", a.process.stderr.read().strip().rpartition("picket: ")[2])
        return a.process.returncode == 123


def on_picket(folder):
    """True: one holder, and tokens that grow."""
    title("2. Picket: three nodes, of which a majority has every grant")
    with Cluster(PICKET, os.path.join(folder, "cluster"), 3, QUICK) as cluster, \
            contextlib.ExitStack() as after:
        early = Holder("earlier", cluster.url)
        early.end()
        a = Holder("A", cluster.url)
        after.callback(a.end)
        leader = cluster.leader()
        leader.kill()
        tell("leader", "dies (kill -9), having granted the lock to A")
        cluster.leader()
        tell("cluster", "has another leader, which knows all that was granted")
        done = subprocess.run([PICKET, "run", "--on", cluster.url, "-n", LOCK, "--",
                               "true"], text=True, capture_output=True, check=False)
        tell("B", f"asks for the lock: {done.stderr.strip().partition(' (')[0]} ...")
        alone = done.returncode == 124 and a.works()
        if a.end() == 0:
            tell("A", "is done; nobody has disturbed it")
        b = Holder("B", cluster.url)
        after.callback(b.end)
        if alone and a.process.returncode == 0 and early.token < a.token < b.token:
            tell("->", f"ONE HOLDER at a time, and tokens grow: {early.token}, {a.token},"
                 f" {b.token}", "good")
            return True
        tell("->", f"not shown: B got {done.returncode}, A {a.process.returncode}")
        return False


def main():
    with tempfile.TemporaryDirectory(prefix="picket-demo-") as folder:
        try:
            shown = [story(folder) for story in (on_redis, on_picket)]
        except WentOtherwise as e:
            tell("->", f"it went otherwise: {e}")
            shown = [False]
    print(flush=True)
    sys.exit(0 if all(shown) else 1)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a cluster of three nodes does when its state is large.

    bench/large.py [--locks 1000000] [--values-mb 260] [--only TEXT]
                   [--program build/picket]

For every event it prints

    loop      the longest turn of a node's loop (picket_loop_stall_seconds): at most that
    silence   the longest time in which one of the nodes did not answer a PING
    worst     the longest acquire or release of a client that works meanwhile
    terms     how often leadership changed
    memory    of the largest node: before the event, and the most during it

PINGs and the client come from processes of their own. On a machine with few cores all
three contain the time for which a process waits for a core. Nothing is asserted.
"""
import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "test", "e2e"))
from cluster import QUICK, Cluster, Connection, ServerError, fields, get  # noqa: E402

PIPELINE = 500  # requests that the filling client sends before it reads the answers
LONG_MS = 3600 * 1000
LARGE_VALUE = 60000  # bytes


def words(*parts):
    """One request as bytes."""
    encoded = [p if isinstance(p, bytes) else str(p).encode() for p in parts]
    return b"*%d\r\n" % len(encoded) + b"".join(
        b"$%d\r\n%s\r\n" % (len(p), p) for p in encoded)


# ---- probes: processes of their own, which print the longest time when told to ----

def probe(port, kind):
    """Measures until its input ends. Each line of input is answered with the longest
    time since the last one, in ms. A node that answers nobody counts as long as that
    lasts."""
    longest = [0.0, None]  # ms; when the present request began

    def answer():
        for _ in sys.stdin:
            began = longest[1]
            now = 1000 * (time.monotonic() - began) if began else 0.0
            print(f"{max(longest[0], now):.1f}", flush=True)
            longest[0] = 0.0
        os._exit(0)

    threading.Thread(target=answer, daemon=True).start()
    while True:
        with contextlib.suppress(OSError, ServerError, KeyError):
            with Connection(port, timeout=60) as c:
                measure(c, kind, longest)
        time.sleep(0.005)


def measure(c, kind, longest):
    """Asks again and again; the time goes on over an error until the next answer."""
    lease = fields(c.ask("LEASE", "OPEN", LONG_MS))["lease"] if kind == "client" else 0
    while True:
        longest[1] = longest[1] or time.monotonic()
        if kind == "client":
            grant = fields(c.ask("LOCK", "ACQUIRE", lease, f"probe/{lease}"))
            c.ask("LOCK", "RELEASE", lease, f"probe/{lease}", grant["token"])
        else:
            c.ask("PING")
        longest[0] = max(longest[0], 1000 * (time.monotonic() - longest[1]))
        longest[1] = None
        time.sleep(0.001)


class Probe:
    """A probe process."""

    def __init__(self, port, kind):
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--probe", f"{port},{kind}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def longest(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self):
        self.process.kill()
        self.process.wait()


# ---- filling ----

class Filler:
    """A client that sends many requests before it reads the answers."""

    def __init__(self, node, what):
        self.connection = Connection(node.port)
        self.what = what

    def run(self, requests, total):
        """Sends all requests; yields the answers. Shows how far it is."""
        sent, read, batch = 0, 0, []
        for request in requests:
            batch.append(request)
            if len(batch) == PIPELINE:
                self.connection.socket.sendall(b"".join(batch))
                sent += len(batch)
                batch = []
                if sent - read >= 2 * PIPELINE:
                    yield from self.read(PIPELINE)
                    read += PIPELINE
                if self.what and 10 * sent // total > 10 * (sent - PIPELINE) // total:
                    print(f"  {self.what}: {100 * sent // total} %", file=sys.stderr)
        self.connection.socket.sendall(b"".join(batch))
        yield from self.read(sent + len(batch) - read)

    def read(self, n):
        for _ in range(n):
            yield self.connection.reply()

    def all(self, requests, total):
        """Sends all requests and forgets the answers."""
        for _ in self.run(requests, total):
            pass

    def close(self):
        self.connection.close()


def lease_of(answer):
    return fields(answer)["lease"]


def fill_locks(node, n, ttl_ms=LONG_MS):
    """`n` leases with one lock each; returns the ids of the leases."""
    with contextlib.closing(Filler(node, "leases")) as f:
        opens = (words("LEASE", "OPEN", ttl_ms, "LABEL", f"host-{i % 100}")
                 for i in range(n))
        leases = [lease_of(a) for a in f.run(opens, n)]
    with contextlib.closing(Filler(node, "locks")) as f:
        f.all((words("LOCK", "TRY", lease, f"jobs/{i:08d}")
               for i, lease in enumerate(leases)), n)
    return leases


def fill_values(node, megabytes):
    """Fence registers with large values."""
    n = megabytes * 1000000 // LARGE_VALUE
    value = os.urandom(LARGE_VALUE)
    with contextlib.closing(Filler(node, "values")) as f:
        for i in range(n):
            f.connection.ask("FENCE", "SET", f"register/{i}", 1, value)


# ---- events ----

LOOP = re.compile(r'^picket_loop_stall_seconds_bucket{le="([^"]+)"} (\d+)$', re.MULTILINE)


def loop_turns(node):
    """How many turns of the loop took at most so many seconds, by seconds."""
    return {float(le): int(n) for le, n in LOOP.findall(get(node, "/metrics")[1])}


def longest_turn(before, after):
    """The bound, in ms, below which all turns between two looks were."""
    new = {le: after[le] - before.get(le, 0) for le in after}
    return min((1000 * le for le, n in new.items() if n == max(new.values())),
               default=0.0)


class Bench:
    """One cluster, its probes, and the lines about it."""

    def __init__(self, program, folder):
        self.program = program
        self.cluster = Cluster(program, folder, 3, QUICK).start()
        with self.cluster.leader().connect() as c:
            c.ask("CLUSTER", "CONFIGURE", "leases", 3000000)
        self.probes = [Probe(n.port, "ping") for n in self.cluster.nodes]
        self.client = Probe(self.cluster.leader().port, "client")
        self.reset()

    def reset(self):
        for p in [*self.probes, self.client]:
            p.longest()

    def term(self):
        with contextlib.closing(Connection(self.cluster.leader().port)) as c:
            text = c.ask("INFO")
        return int(text.split("term:")[1].split()[0])

    @contextlib.contextmanager
    def event(self, name):
        """Measures what happens inside."""
        nodes = [n for n in self.cluster.nodes if n.alive()]
        term, began = self.term(), time.monotonic()
        before = max(n.memory() for n in nodes)
        turns = {n: loop_turns(n) for n in nodes}
        self.reset()
        yield
        took = time.monotonic() - began
        silence = max(p.longest() for p in self.probes)
        worst = self.client.longest()
        alive = [n for n in nodes if n.alive()]
        peak = max(n.peak_memory() for n in alive)
        loop = max(longest_turn(turns[n], loop_turns(n)) for n in alive)
        print(f"| {name} | {loop:g} ms | {silence:.0f} ms | {worst:.0f} ms "
              f"| {self.term() - term} "
              f"| {before / 1e6:.0f} -> {peak / 1e6:.0f} MB | {took:.1f} s |", flush=True)

    def picket(self, *args):
        subprocess.run([self.program, *args, "--on", self.cluster.url], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def snapshots(self):
        return sum(n.metric("picket_snapshots_total") for n in self.cluster.nodes)

    def close(self):
        for p in [*self.probes, self.client]:
            p.close()
        self.cluster.close()


def write_on(b, seconds):
    """Takes and gives back locks, so that the log grows."""
    end = time.monotonic() + seconds
    with contextlib.closing(Filler(b.cluster.leader(), "")) as f:
        lease = lease_of(f.connection.ask("LEASE", "OPEN", LONG_MS))
        while time.monotonic() < end:
            f.all((words("FENCE", "SET", f"churn/{i % 100}", 1, b"x" * 8000)
                   for i in range(PIPELINE)), PIPELINE)
        f.connection.ask("LEASE", "CLOSE", lease)


def large_state(b, o):
    """Snapshots, burst renewal, LIST, backup, restart, failover with many locks."""
    empty = max(n.memory() for n in b.cluster.nodes)
    with b.event(f"{o.locks} leases with a lock each, made by one client"):
        leases = fill_locks(b.cluster.leader(), o.locks)
    full = max(n.memory() for n in b.cluster.nodes)
    print(f"memory: {(full - empty) / o.locks:.0f} bytes per lease with its lock",
          flush=True)
    with b.event("snapshots while clients write, 20 s"):
        write_on(b, 20)
    with b.event("100000 leases renewed in one burst"):
        with contextlib.closing(Connection(b.cluster.leader().port)) as c:
            some = leases[:100000]
            for i in range(0, len(some), 4000):
                c.send("LEASE", "RENEW", *some[i:i + 4000])
            for _ in range(0, len(some), 4000):
                c.reply()
    with b.event("LIST of all locks"):
        with contextlib.closing(Connection(b.cluster.leader().port)) as c:
            after, rows = "", True
            while rows:
                rows = c.ask("LOCK", "LIST", "AFTER", after, "COUNT", 1000)[-1]
                rows = rows if isinstance(rows, list) else []
                after = dict(zip(rows[-1][::2], rows[-1][1::2]))["name"] if rows else ""
    folder = tempfile.mkdtemp()
    backup = os.path.join(folder, "backup")
    try:
        with b.event("backup"):
            b.picket("cluster", "backup", backup)
        size = os.path.getsize(backup) / 1e6
        start_again(b)
        with b.event("leader killed, another serves"):
            b.cluster.leader().kill()
            b.cluster.leader()
        for node in b.cluster.nodes:
            if not node.alive():
                node.start()
                wait_for_answers(node)
        with b.event(f"restore of {size:.0f} MB"):
            b.picket("cluster", "restore", backup, "--yes")
    finally:
        shutil.rmtree(folder)


def wait_for_answers(node):
    while True:
        with contextlib.suppress(OSError), contextlib.closing(Connection(node.port)) as c:
            c.ask("PING")
            return
        time.sleep(0.002)


def start_again(b):
    """A follower stops and starts again: when does it answer, when does it serve?"""
    node = b.cluster.followers()[0]
    node.kill()
    began = time.monotonic()
    node.start()
    wait_for_answers(node)
    answers = time.monotonic() - began
    while node.metric("picket_locks") < 1:
        time.sleep(0.01)
    print(f"start: answers after {1000 * answers:.0f} ms, has the state after "
          f"{time.monotonic() - began:.1f} s", flush=True)


def expiry(b, o):
    """Leases that expire together."""
    fill_locks(b.cluster.leader(), o.locks, ttl_ms=120 * 1000)
    with b.event(f"{o.locks} leases expire together"):
        while b.cluster.leader().metric("picket_leases") > 10:
            time.sleep(0.5)


def values(b, o):
    """Large values: snapshots, backup and restore of them."""
    with b.event(f"{o.values_mb} MB of values written"):
        fill_values(b.cluster.leader(), o.values_mb)
    with b.event("snapshots while clients write, 20 s"):
        write_on(b, 20)
    with tempfile.TemporaryDirectory() as folder:
        backup = os.path.join(folder, "backup")
        with b.event("backup of the values"):
            b.picket("cluster", "backup", backup)
        with b.event("restore of the values"):
            b.picket("cluster", "restore", backup, "--yes")


EVENTS = {"large state": large_state, "expiry": expiry, "values": values}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--locks", type=int, default=1000000)
    parser.add_argument("--values-mb", type=int, default=260)
    parser.add_argument("--only", default="")
    parser.add_argument("--program", default=os.path.join(HERE, "..", "build", "picket"))
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.probe:
        port, kind = o.probe.split(",")
        probe(int(port), kind)
        return
    print("| event | loop | silence | worst | terms | memory | took |\n"
          "|---|---|---|---|---|---|---|")
    for name, run in EVENTS.items():
        if o.only in name:
            with tempfile.TemporaryDirectory() as folder:
                with contextlib.closing(Bench(os.path.abspath(o.program), folder)) as b:
                    run(b, o)


if __name__ == "__main__":
    main()

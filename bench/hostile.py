#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""An honest client alone, and beside clients that take all they can get.

    bench/hostile.py [--seconds S] [--nodes N] [--folder DIR] [--program build/picket]
                     [ATTACK...]

The honest client takes and releases a lock (`picket bench latency`). What is printed for
each attack is the 99th percentile of its acquires, the ratio to that of an idle cluster
measured just before, the longest turn of the leader's loop during the attack, and the
leader's memory before the attack and at its most. The goal is a ratio of at most 5.
Nothing is asserted: figures depend on the machine, above all on how many processors the
attackers leave to the nodes. Attackers run at a lower priority for that reason.
"""
import argparse
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "test", "e2e"))
from cluster import QUICK, Cluster, Connection  # noqa: E402

TTL_MS = 3600 * 1000
GOAL = 5


def words(*parts):
    """One request in bytes."""
    parts = [str(p).encode() for p in parts]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p)
                                              for p in parts)


def ask_all(c, requests):
    """Many requests at once, and their answers."""
    answers = []
    for i in range(0, len(requests), 500):
        part = requests[i:i + 500]
        c.socket.sendall(b"".join(part))
        answers += [c.reply() for _ in part]
    return answers


def leases(c, n):
    return [a["lease"] for a in ask_all(c, [words("LEASE", "OPEN", TTL_MS)] * n)]


def connect(port):
    c = Connection(port)
    c.ask("HELLO", 3)
    return c


class Flood:
    """Sends the same bytes on each connection again and again, and reads what comes, if
    it reads at all."""

    def __init__(self):
        self.selector = selectors.DefaultSelector()

    def add(self, c, data, reads=True):
        c.socket.setblocking(False)
        events = selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0)
        self.selector.register(c.socket, events, [c, memoryview(data), 0])

    def run(self):
        while True:
            for key, events in self.selector.select():
                if events & selectors.EVENT_READ and not key.fileobj.recv(1 << 20):
                    self.selector.unregister(key.fileobj)
                elif events & selectors.EVENT_WRITE:
                    _, data, at = key.data
                    key.data[2] = (at + key.fileobj.send(data[at:at + (1 << 18)])
                                   ) % len(data)


def ready():
    print("ready", flush=True)


# ---- the attacks; each says "ready" when it has what it needs, and goes on for ever ----

def renewals(port, _):
    """four connections renew 4096 leases with each request"""
    flood = Flood()
    for _ in range(4):
        c = connect(port)
        flood.add(c, words("LEASE", "RENEW", *leases(c, 4096)))
    ready()
    flood.run()


def tries(port, _):
    """16 connections try to take locks that are held, without waiting for answers"""
    flood = Flood()
    holder = connect(port)
    lease = leases(holder, 1)[0]
    holder.ask("LOCK", "ACQUIRE", lease, "held")
    for _ in range(16):
        c = connect(port)
        flood.add(c, words("LOCK", "TRY", leases(c, 1)[0], "held") * 1000)
    ready()
    flood.run()


def large_values(port, n=1000, size=60000):
    c = connect(port)
    lease = leases(c, 1)[0]
    for i in range(n):
        c.ask("LOCK", "ACQUIRE", lease, f"large/{i:04}", "VALUE", "v" * size)


def lists(port, _):
    """four connections list 1000 locks with values of 60 KB, again and again"""
    large_values(port)
    flood = Flood()
    for _ in range(4):
        flood.add(connect(port), words("LOCK", "LIST", "COUNT", 1000) * 10)
    ready()
    flood.run()


def deaf(port, _):
    """30 clients ask for such lists and values and read no answer"""
    large_values(port)
    connect(port).ask("FENCE", "SET", "large", 1, "v" * 60000)
    flood = Flood()
    for i in range(30):
        request = (words("LOCK", "LIST", "COUNT", 1000), words("FENCE", "GET", "large"),
                   words("LOCK", "TRY", 1, "large/0001"))[i % 3]
        flood.add(connect(port), request * 1000, reads=False)
    ready()
    flood.run()


def watchers(port, _):
    """9,000 watchers, each of a prefix of its own"""
    kept = []
    for i in range(9000):
        s = socket.create_connection(("127.0.0.1", port))
        s.sendall(words("HELLO", 3) + words("LOCK", "WATCH", "PREFIX", f"w/{i}/"))
        kept.append(s)
    for s in kept:
        s.recv(1000)
    ready()
    while True:
        time.sleep(1)


def connections(port, _):
    """connections that come, ask something and go, as fast as they can"""
    ready()
    while True:
        many = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        for s in many:
            s.sendall(b"PING\r\nLOCK SHOW x\r\n")
        for s in many:
            s.close()


def metrics(_, http_port):
    """8 connections ask for /metrics"""
    flood = Flood()
    for _ in range(8):
        c = Connection(http_port)
        flood.add(c, b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 100)
    ready()
    flood.run()


def waits(port, _):
    """one lease waits for locks 100,000 times, is closed, and the next one does so"""
    holder = connect(port)
    lease = leases(holder, 1)[0]
    for i in range(20):
        holder.ask("LOCK", "ACQUIRE", lease, f"wanted/{i}")
    c = connect(port)
    first = True
    while True:
        mine = leases(c, 1)[0]
        ask_all(c, [words("LOCK", "ACQUIRE", mine, f"wanted/{i % 20}", "WAIT", "FOREVER",
                          "REQUEST", i + 1) for i in range(99000)])
        if first:
            ready()
            first = False
        c.ask("LEASE", "CLOSE", mine)


def pipeline(port, _):
    """one connection sends small requests of all kinds without end"""
    c = connect(port)
    lease = leases(c, 1)[0]
    flood = Flood()
    flood.add(c, (words("PING") * 50 + words("FENCE", "CHECK", "none", 1) * 50 +
                  words("LEASE", "RENEW", lease) * 50 + words("INFO") * 10) * 100)
    ready()
    flood.run()


ATTACKS = {f.__name__: f for f in (renewals, tries, lists, deaf, watchers, connections,
                                   metrics, waits, pipeline)}


# ---- measuring ----

def p99_us(args, cluster):
    """Of the honest client's acquires."""
    done = subprocess.run([args.program, "bench", "--on", cluster.leader().url, "latency",
                           "-t", f"{args.seconds}s", "-o", "json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["acquire"]["p99_ns"] / 1000


def attack(args, name):
    """The figures of one attack, on a cluster of its own."""
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, \
            Cluster(args.program, folder, args.nodes, QUICK) as cluster:
        leader = cluster.leader()
        idle = statistics.median(p99_us(args, cluster) for _ in range(3))
        before = leader.memory()
        with subprocess.Popen(
                ["nice", "-n", "10", sys.executable, os.path.abspath(__file__), "--as",
                 name, str(leader.port), str(leader.http_port)],
                stdout=subprocess.PIPE) as attacker:
            try:
                if attacker.stdout.readline() != b"ready\n":
                    sys.exit(f"{name}: the attack did not begin")
                busy = statistics.median(p99_us(args, cluster) for _ in range(3))
            finally:
                attacker.kill()
        stall = leader.metric("picket_loop_stall_longest_seconds") if args.stalls else 0
        return {"idle": idle, "busy": busy, "ratio": busy / idle, "stall": stall * 1000,
                "before": before >> 20, "peak": leader.peak_memory() >> 20}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=4, help="of each measurement")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--program", default=os.path.join(HERE, "../build/picket"))
    parser.add_argument("--folder", help="for the nodes' data; a fast disk (or /dev/shm) "
                        "makes the figures strict, since idle calls are short")
    parser.add_argument("--no-stalls", dest="stalls", action="store_false",
                        help="for a program that has no such metric")
    parser.add_argument("attacks", nargs="*", metavar="ATTACK",
                        help=", ".join(ATTACKS))
    args = parser.parse_args()
    chosen = args.attacks or list(ATTACKS)
    unknown = [a for a in chosen if a not in ATTACKS]
    if unknown:
        parser.error(f"no such attack: {unknown[0]}; there are {', '.join(ATTACKS)}")
    print(f"{'':12} {'idle p99':>9} {'p99':>9} {'ratio':>6} {'longest turn':>12} "
          f"{'memory':>12}")
    worst = 0
    for i, name in enumerate(chosen):
        print(f"# {i + 1} of {len(chosen)}: {name}: {ATTACKS[name].__doc__}",
              file=sys.stderr, flush=True)
        f = attack(args, name)
        worst = max(worst, f["ratio"])
        memory = f"{f['before']}..{f['peak']} MB"
        print(f"{name:12} {f['idle']:6.0f} us {f['busy']:6.0f} us {f['ratio']:6.1f} "
              f"{f['stall']:9.1f} ms {memory:>12}", flush=True)
    print(f"the worst ratio is {worst:.1f}; the goal is at most {GOAL}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--as"]:
        ATTACKS[sys.argv[2]](int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()

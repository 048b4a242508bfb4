#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Picket beside Redis and etcd, on this machine, in one run.

    bench/compare.py [--rounds N] [--seconds S] [--skip-etcd] [--program build/picket]

Each figure is taken from all peers in turn, `rounds` times; what is printed is the median
and the ratio, with the ratio that we want to reach. Nothing is asserted: a figure depends
on the machine and on what else it does. Redis runs with appendfsync always, because a
lock that a power cut takes away is none; etcd and Picket sync every write anyway.
"""
import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "test", "e2e"))
from cluster import QUICK, Cluster, Connection, free_ports  # noqa: E402


class Redis:
    """One Redis that syncs before it answers."""

    def __init__(self, folder):
        os.mkdir(folder)
        (self.port,) = free_ports(1)
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir",
             folder, "--appendonly", "yes", "--appendfsync", "always", "--save", ""],
            stdout=subprocess.DEVNULL)
        wait_for_port(self.port)

    def close(self):
        self.process.terminate()
        self.process.wait()


class Etcd:
    """Three etcd members."""

    def __init__(self, folder):
        os.mkdir(folder)
        ports = free_ports(6)
        peers = [f"http://127.0.0.1:{p}" for p in ports[3:]]
        names = [f"e{i}={url}" for i, url in enumerate(peers)]
        self.endpoints = [f"127.0.0.1:{p}" for p in ports[:3]]
        self.processes = []
        for i in range(3):
            client = f"http://{self.endpoints[i]}"
            self.processes.append(subprocess.Popen(
                ["etcd", "--name", f"e{i}", "--data-dir", os.path.join(folder, f"e{i}"),
                 "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--listen-peer-urls", peers[i],
                 "--initial-advertise-peer-urls", peers[i],
                 "--initial-cluster", ",".join(names), "--log-level", "error"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for p in ports[:3]:
            wait_for_port(p)
        time.sleep(3)

    def close(self):
        for p in self.processes:
            p.terminate()
        for p in self.processes:
            p.wait()


def wait_for_port(port):
    for _ in range(100):
        with contextlib.suppress(OSError):
            Connection(port).socket.close()
            return
        time.sleep(0.1)
    sys.exit(f"nothing answers on port {port}")


def build_etcd_load(folder):
    """The load for etcd, with the Go packages that Debian has."""
    listed = subprocess.run(["dpkg", "-L", "golang-etcd-server-dev"], capture_output=True,
                            text=True, check=True).stdout
    source = next(w for w in listed.split() if w.endswith("/src/go.etcd.io/etcd"))
    program = os.path.join(folder, "etcd-load")
    env = dict(os.environ, GO111MODULE="off", GOFLAGS="",
               GOPATH=source.removesuffix("/src/go.etcd.io/etcd"),
               GOCACHE=os.path.join(tempfile.gettempdir(), "picket-gocache"))
    subprocess.run(["go", "build", "-o", program, "main.go"], check=True, env=env,
                   cwd=os.path.join(HERE, "etcd"))
    return program


def run_json(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"{words[0]}: {done.stderr or done.stdout}")
    return json.loads(done.stdout)


class Figures:
    """What was measured: name of the figure -> peer -> values."""

    def __init__(self):
        self.values = {}

    def add(self, figure, peer, value):
        self.values.setdefault(figure, {}).setdefault(peer, []).append(value)

    def median(self, figure, peer):
        return statistics.median(self.values[figure][peer])


def failovers(program, folder, rounds, figures):
    """From kill -9 of the leader to the next grant that a client has in its hands."""
    with Cluster(program, os.path.join(folder, "failover"), 3, QUICK) as c:
        lease = c.leader().ask("LEASE", "OPEN", "60000")["lease"]
        for i in range(rounds):
            victim = c.leader()
            others = [n for n in c.nodes if n is not victim]
            victim.kill()
            began = time.monotonic()
            figures.add("failover", "picket3",
                        1000 * next_grant(others, lease, f"failover/{i}", began))
            victim.start()
            c.leader()
            time.sleep(1)


def next_grant(nodes, lease, name, began):
    while True:
        for n in nodes:
            with contextlib.suppress(Exception):
                connection = Connection(n.port, timeout=2)
                connection.ask("CLIENT", "REDIRECT", "ON")
                connection.ask("LOCK", "TRY", lease, name)
                return time.monotonic() - began
        time.sleep(0.005)


def memory(program, folder, figures):
    """Resident bytes of a leader that has 100,000 leases, each holding a lock."""
    with Cluster(program, os.path.join(folder, "memory"), 3, QUICK) as c:
        leader = c.leader()
        run_json(program, "bench", "--on", c.url, "hold", "--holds", "100000",
                 "-o", "json")
        with open(f"/proc/{leader.pid}/status", encoding="ascii") as f:
            kib = next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))
        figures.add("memory", "picket3", kib / 1024)


def measure(args, folder, figures):
    program = args.program
    load = None if args.skip_etcd else build_etcd_load(folder)
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(Cluster(program, os.path.join(folder, "one"), 1, QUICK))
        three = stack.enter_context(
            Cluster(program, os.path.join(folder, "three"), 3, QUICK))
        redis = stack.enter_context(contextlib.closing(Redis(os.path.join(folder, "r"))))
        etcd = None
        if load:
            etcd = stack.enter_context(
                contextlib.closing(Etcd(os.path.join(folder, "e"))))
        span = f"{int(args.seconds * 1000)}ms"
        for number in range(args.rounds):
            print(f"round {number + 1} of {args.rounds}", file=sys.stderr)
            for kind in ("latency", "pairs", "handoff"):
                for name, c in (("picket1", one), ("picket3", three)):
                    take(figures, kind, name, run_json(
                        program, "bench", "--on", c.url, kind, "-t", span, "-o", "json"))
                if kind != "handoff":
                    take(figures, kind, "redis", run_json(
                        program, "bench", "--redis", "--on",
                        f"redis://127.0.0.1:{redis.port}", kind, "-t", span,
                        "-o", "json"))
                if etcd:
                    clients = {"latency": 1, "pairs": 64, "handoff": 51}[kind]
                    take(figures, kind, "etcd3", run_json(
                        load, ",".join(etcd.endpoints), kind, clients, args.seconds))


def take(figures, kind, peer, result):
    if kind == "latency":
        figures.add("acquire p50", peer, result["acquire"]["p50_ns"] / 1000)
    elif kind == "pairs":
        figures.add("pairs/s", peer, result["per_second"])
    else:
        figures.add("hand-off p50", peer, result["handoff"]["p50_ns"] / 1000)


# figure, unit, of whom, beside whom, the ratio wanted
GOALS = (
    ("acquire p50", "us", "picket3", "etcd3", "at most", 0.4),
    ("pairs/s", "", "picket3", "etcd3", "at least", 15),
    ("pairs/s", "", "picket3", "redis", "at least", 0.8),
    ("hand-off p50", "us", "picket3", "etcd3", "at most", 0.25),
    ("acquire p50", "us", "picket1", "redis", "at most", 1.2),
)


def report(figures):
    print(f"{'figure':14} {'ours':>22} {'beside':>22} {'ratio':>8}  wanted")
    for figure, unit, us, them, sense, goal in GOALS:
        if them not in figures.values.get(figure, {}):
            continue
        ours, theirs = figures.median(figure, us), figures.median(figure, them)
        print(f"{figure:14} {us:>9} {ours:9.0f} {unit:2} {them:>9} {theirs:9.0f} "
              f"{unit:2} {ours / theirs:8.2f}  {sense} {goal}")
    if "failover" in figures.values:
        values = sorted(figures.values["failover"]["picket3"])
        print(f"next grant after kill -9 of the leader: median "
              f"{statistics.median(values):.0f} ms, worst {values[-1]:.0f} ms "
              f"({len(values)} kills); wanted: median under 1000 ms")
    if "memory" in figures.values:
        print(f"100,000 leases with a lock each: "
              f"{figures.median('memory', 'picket3'):.1f} MiB resident on the leader; "
              f"wanted: at most 60")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--kills", type=int, default=9)
    parser.add_argument("--skip-etcd", action="store_true")
    parser.add_argument("--program", default=os.path.join(HERE, "..", "build", "picket"))
    args = parser.parse_args()
    args.program = os.path.abspath(args.program)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = tempfile.mkdtemp(prefix="picket-bench.", dir=os.environ.get("TMPDIR"))
    figures = Figures()
    try:
        measure(args, folder, figures)
        failovers(args.program, folder, args.kills, figures)
        memory(args.program, folder, figures)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report(figures)


if __name__ == "__main__":
    main()

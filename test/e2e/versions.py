# SPDX-License-Identifier: MIT
"""This version and the next one together: real clusters are upgraded and downgraded node
by node under load, and the two open each other's data. PICKET_NEXT is a program of the
next version (test/versions). PICKET_STORM_SECONDS makes the storm longer, as
make upgrade-storm does.
"""
import contextlib
import json
import os
import random
import subprocess
import threading
import time

import history as h
from clients import LOCKS, MARGIN_S, TTL_MS, Client, counter
from cluster import Cluster, ServerError
from tap import check, contains, equal, main, test, wait_until

NEXT = os.environ["PICKET_NEXT"]
SECONDS = float(os.environ.get("PICKET_STORM_SECONDS", "0"))
NEEDS_2 = "needs cluster version 2; this build runs 1 to 1; install a newer picket"


class Site:
    """A cluster, and a lease with a lock that must live through everything."""

    def __init__(self, t, cluster):
        self.t = t
        self.cluster = cluster
        leader = cluster.leader()
        self.lease = leader.ask("LEASE", "OPEN", 24 * 3600 * 1000)["lease"]
        self.token = leader.ask("LOCK", "TRY", self.lease, "anchor")["token"]

    def picket(self, *words, program=None):
        words = [program or self.t.program, *words, "--on", self.cluster.url]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def ask(self, *words):
        """On the leader, whoever it is; what is asked may be asked twice."""
        while True:
            with contextlib.suppress(OSError):
                try:
                    return self.cluster.leader().ask(*words)
                except ServerError as e:
                    if e.code not in ("NOTLEADER", "NOLEADER", "UNKNOWN"):
                        raise

    def status(self):
        done = self.picket("cluster", "status", "-o", "json")
        return json.loads(done.stdout) if done.stdout else {"nodes": []}

    def version(self):
        return self.status().get("cluster_version")

    def is_whole(self):
        states = [n["state"] for n in self.status()["nodes"]]
        return sorted(states) == ["follower"] * (len(states) - 1) + ["leader"]

    def replace_program(self, node, program, kill=False):
        """Another program takes over the node's directory."""
        if kill:
            node.kill()
        else:
            equal(node.terminate(), 0)
        node.program = program
        node.start()
        wait_until(self.is_whole, what=f"{node.name} to follow")
        self.verify()

    def hand_over(self, node):
        """Makes that node the leader; an election may have come first."""
        wait_until(lambda: self.cluster.leader() is node or
                   self.picket("cluster", "transfer", node.name).returncode == 0,
                   what=f"{node.name} to lead")

    def verify(self):
        """The lease lives, and holds its lock with the same token."""
        rows = self.ask("LEASE", "SHOW", self.lease)["rows"]
        equal([(r["name"], r["token"]) for r in rows], [("anchor", self.token)])


class Load:
    """Clients that take, count behind a fence, and release (clients.py)."""

    def __init__(self, cluster, clients=2):
        self.cluster = cluster
        self.record = h.History()
        self.stop = threading.Event()
        self.clients = [Client(cluster, self.record, i, self.stop)
                        for i in range(clients)]

    def __enter__(self):
        for c in self.clients:
            c.start()
        return self

    def __exit__(self, failed, *_):
        self.stop.set()
        healed = time.monotonic()
        for c in self.clients:
            c.join(120)
        if failed:
            return
        for c in self.clients:
            check(not c.is_alive(), f"client {c.number} did not come to its end")
            check(c.failure is None, f"client {c.number}: {c.failure!r}")
        leader = self.cluster.leader()
        final = {lock: counter(leader, lock) for lock in LOCKS}
        broken = h.check_all(self.record, final, healed, MARGIN_S,
                             TTL_MS / 1000)
        check(not broken, "; ".join(broken[:5]))
        check(self.record.of("acquire"), "nothing was granted")


def refused(function, *parts):
    try:
        answer = function()
    except ServerError as e:
        for part in parts:
            contains(str(e), part)
        return
    check(False, f"was not refused: {answer}")


@test
def versions__upgrade_and_downgrade_node_by_node_under_load(t):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        s = Site(t, cluster)
        with Load(cluster):
            for node in cluster.nodes:
                equal(s.version(), 1)
                refused(lambda: s.ask("LOCK", "NOTE", "hello"))
                s.replace_program(node, NEXT)
                # A leader that could run version 2 does not use it before all can.
                if node is not cluster.nodes[-1]:
                    s.hand_over(node)
                    refused(lambda: s.ask("LOCK", "NOTE", "hello"), "BADARG",
                            "LOCK NOTE needs cluster version 2; the cluster has")
            wait_until(lambda: s.version() == 2, what="the leader to raise the version")
            s.verify()
            s.ask("LOCK", "NOTE", "hello")

            # The old program does not start on what the new one has written.
            node = cluster.followers()[0]
            equal(node.terminate(), 0)
            node.program = None
            node.start()
            equal(node.process.wait(120), 125)
            contains(node.last_words(), NEEDS_2)
            node.program = NEXT
            node.start()
            wait_until(s.is_whole, what="the node to come back")

            done = s.picket("cluster", "downgrade", program=NEXT)
            equal(done.returncode, 125)
            contains(done.stderr, "there is a note, which version 1 can't keep")
            equal(s.version(), 2)
            s.ask("LOCK", "NOTE", "none")
            done = s.picket("cluster", "downgrade")
            equal((done.returncode, done.stdout), (0, ""))
            contains(done.stderr, "version 1 and is held there")
            equal([n["data_version"] for n in s.status()["nodes"]], [1, 1, 1])
            refused(lambda: s.ask("LOCK", "NOTE", "hello"), "BADARG",
                    "LOCK NOTE needs cluster version 2; the cluster has version 1")
            for node in cluster.nodes:
                s.replace_program(node, t.program)
                equal(s.version(), 1)
        s.verify()


@test
def versions__an_operator_holds_the_version(t):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        s = Site(t, cluster)
        done = s.picket("cluster", "hold")
        equal(done.returncode, 0)
        contains(done.stderr, "keeps version 1")
        for node in cluster.nodes:
            s.replace_program(node, NEXT)
        wait_until(lambda: [(n["oldest_version"], n["newest_version"])
                            for n in s.status()["nodes"]] == [(1, 2)] * 3,
                   what="the leader to know what each node runs")
        told = s.status()
        equal((told["cluster_version"], told["version_held"]), (1, True))
        text = s.picket("cluster", "status").stdout
        contains(text, "the cluster version is 1, held until 'picket cluster upgrade'")
        contains(text, "1-2")
        s.hand_over(cluster.followers()[0])
        equal(s.version(), 1)
        equal(s.picket("cluster", "upgrade").returncode, 0)
        wait_until(lambda: s.version() == 2, what="the leader to raise the version")
        equal(s.status()["version_held"], False)
        s.verify()


def next_cluster(t, name, n=1):
    return Cluster(NEXT, t.path(name), n)


@test
def versions__an_older_node_is_not_admitted(t):
    with next_cluster(t, "c") as cluster:
        s = Site(t, cluster)
        wait_until(lambda: s.version() == 2, what="the leader to raise the version")
        cluster.program = t.program
        node = cluster.join("n2", through=cluster.nodes[0])
        equal(node.process.wait(120), 125)
        contains(node.last_words(), f"--join: the cluster {NEEDS_2}")
        # One that waits to be admitted by an operator.
        node.place = ["--cluster", f"n1=127.0.0.1:{cluster.nodes[0].raft_port},"
                                   f"n2=127.0.0.1:{node.raft_port},n3=127.0.0.1:1"]
        node.start()
        words = ("cluster", "add", f"n2=127.0.0.1:{node.raft_port}")
        why = "the cluster has version 2, and node n2 has picket"
        wait_until(lambda: why in s.picket(*words).stderr, what="the refusal to admit it")
        equal([n["node"] for n in s.status()["nodes"] if n["role"]], ["n1"])
        node.kill()
        node.place = ["--join", f"127.0.0.1:{cluster.nodes[0].port}"]
        node.program = NEXT
        node.start()
        wait_until(lambda: len(s.status()["nodes"]) == 2 and s.is_whole(),
                   what="the newer node to be admitted")
        s.verify()


@test
def versions__open_each_others_data(t):
    old, new = t.path("old.backup"), t.path("new.backup")
    with Cluster(t.program, t.path("a"), 1) as a, next_cluster(t, "b") as b:
        s, n = Site(t, a), Site(t, b)
        wait_until(lambda: n.version() == 2, what="the leader to raise the version")
        n.ask("LOCK", "NOTE", "hello")
        equal(s.picket("cluster", "backup", old).returncode, 0)
        done = n.picket("cluster", "backup", new)
        equal(done.returncode, 125)
        contains(done.stderr, f"the backup {NEEDS_2}")
        equal(n.picket("cluster", "backup", new, program=NEXT).returncode, 0)
        done = s.picket("cluster", "restore", new, "--yes", program=NEXT)
        equal(done.returncode, 125)
        contains(done.stderr,
                 "the backup needs cluster version 2; the cluster has version 1")
        s.verify()
        equal(n.picket("cluster", "restore", old, "--yes").returncode, 0)
        equal(n.version(), 2)
        n.ask("LOCK", "NOTE", "again")
        # Directories of stopped nodes.
        equal(a.nodes[0].terminate(), 0)
        equal(b.nodes[0].terminate(), 0)
        recover = ("cluster", "recover")
        done = subprocess.run([t.program, *recover, b.nodes[0].data, t.path("x")],
                              capture_output=True, text=True, check=False)
        equal(done.returncode, 125)
        contains(done.stderr, NEEDS_2)
        check(not os.path.exists(t.path("x")))
        done = subprocess.run([NEXT, *recover, a.nodes[0].data, t.path("x")],
                              capture_output=True, text=True, check=False)
        equal((done.returncode, done.stdout), (0, ""))


@test
def versions__share_an_embedded_store(t):
    store = f"local:{t.path('store')}"
    tokens = []
    for i, program in enumerate((t.program, NEXT, t.program, NEXT)):
        done = subprocess.run([program, "acquire", "--on", store, "-o", "json", f"l{i}"],
                              capture_output=True, text=True, check=False)
        equal((done.returncode, done.stderr), (0, ""))
        tokens.append(json.loads(done.stdout)["token"])
    equal(tokens, sorted(set(tokens)))
    for program in (t.program, NEXT):
        done = subprocess.run([program, "ls", "--on", store], capture_output=True,
                              text=True, check=False)
        for i in range(4):
            contains(done.stdout, f"l{i}")


@test
def versions__clients_and_servers_of_both(t):
    """Each client with each server: the words that people use."""
    for server, client in ((t.program, NEXT), (NEXT, t.program)):
        with Cluster(server, t.path(f"c{server == NEXT}"), 1) as cluster:
            s = Site(t, cluster)
            if server == NEXT:
                wait_until(lambda s=s: s.version() == 2, what="version 2")
            done = s.picket("run", "job", "--", "true", program=client)
            equal((done.returncode, done.stderr), (0, ""))
            contains(s.picket("ls", program=client).stdout, "anchor")
            contains(s.picket("show", "anchor", program=client).stdout, str(s.token))
            equal(s.picket("cluster", "status", program=client).returncode, 0)
            equal(s.picket("doctor", program=client).returncode, 0)
            s.verify()


class Storm:
    """Nodes are killed, frozen and given the other program, at random; the version goes
    up when all can run it, and down by an operator's word."""

    def __init__(self, site, seed):
        self.site = site
        self.random = random.Random(seed)
        self.counts = {}

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def strike(self, node):
        how = self.random.choice(("kill", "freeze", "nothing"))
        self.count(how)
        if how == "kill":
            node.restart()
        elif how == "freeze":
            node.stop()
            time.sleep(self.random.uniform(0.2, 1.5))
            node.cont()

    def move(self, program):
        """All nodes to that program, with faults in between."""
        for node in self.random.sample(self.site.cluster.nodes, 3):
            self.strike(self.random.choice(self.site.cluster.nodes))
            wait_until(self.site.is_whole, what="all nodes to follow")
            self.site.replace_program(node, program, kill=self.random.random() < 0.5)
            self.count("program")

    def round(self):
        s = self.site
        self.move(NEXT)
        wait_until(lambda: s.picket("cluster", "upgrade").returncode == 0,
                   what="the hold to end")
        wait_until(lambda: s.version() == 2, what="the leader to raise the version")
        self.strike(self.random.choice(s.cluster.nodes))
        wait_until(s.is_whole, what="all nodes to follow")
        wait_until(lambda: s.picket("cluster", "downgrade").returncode == 0,
                   what="the version to be lowered")
        self.move(s.t.program)
        equal(s.version(), 1)
        self.count("round")


@test(timeout=int(SECONDS) + 3600)
def storm__of_upgrades_and_downgrades_keeps_the_promises(t):
    """One round in make test's time; as many as fit into the seconds of the target."""
    if SECONDS == 0:
        return
    seed = int(os.environ.get("PICKET_STORM_SEED", time.time_ns() % 1000000))
    with Cluster(t.program, t.path("c"), 3) as cluster:
        s = Site(t, cluster)
        storm = Storm(s, seed)
        end = time.monotonic() + SECONDS
        with Load(cluster, clients=4):
            storm.round()
            while time.monotonic() < end:
                storm.round()
        s.verify()
    print(f"# seed {seed}: {storm.counts}")


main()

# SPDX-License-Identifier: MIT
"""Three real nodes under load while they are killed, frozen, damaged and wiped; what the
clients saw must keep the promises (history.py). PICKET_CHAOS_SECONDS makes it longer, as
make chaos does.
"""
import contextlib
import os
import random
import shutil
import threading
import time

import history as h
from clients import LOCKS, MARGIN_S, TTL_MS, Client, counter
from cluster import Cluster, get
from tap import check, equal, main, test, wait_until

SECONDS = float(os.environ.get("PICKET_CHAOS_SECONDS", "20"))
CLIENTS = 6


class Nemesis:
    """Kills, freezes, damages and wipes, one node at a time, so that a majority is always
    alive. What was damaged or wiped is replaced before the next one's turn."""

    def __init__(self, t, cluster, seed):
        self.t = t
        self.cluster = cluster
        self.random = random.Random(seed)
        self.counts = {}

    def victim(self):
        if self.random.random() < 0.6:
            return "leader", self.cluster.leader()
        return "follower", self.random.choice(self.cluster.followers())

    def strike(self):
        role, node = self.victim()
        how = self.random.choice(("kill", "kill", "stop", "stop", "wipe", "damage"))
        self.counts[f"{how} {role}"] = self.counts.get(f"{how} {role}", 0) + 1
        getattr(self, how)(node)

    def kill(self, node):
        node.kill()
        time.sleep(self.random.uniform(0.1, 0.8))
        node.start()

    def stop(self, node):
        node.stop()
        time.sleep(self.random.uniform(0.2, 1.5))
        node.cont()

    def wipe(self, node):
        node.kill()
        shutil.rmtree(node.data)
        node.start()
        self.replace(node)

    def damage(self, node):
        """One bit of one file of the log store. The node refuses to start, or has all."""
        node.kill()
        folder = os.path.join(node.data, "raft")
        path = os.path.join(folder, self.random.choice(sorted(os.listdir(folder))))
        with open(path, "r+b") as f:
            at = self.random.randrange(os.path.getsize(path))
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 1 << self.random.randrange(8)]))
        node.start()
        wait_until(lambda: not node.alive() or reaches(node), what="a start or a refusal")
        if not node.alive():
            equal(node.process.returncode, 125)
            self.counts["refused"] = self.counts.get("refused", 0) + 1
            self.wipe(node)

    def replace(self, node):
        wait_until(lambda: self.t.picket("cluster", "replace", node.name, "--on",
                                         self.cluster.url).returncode == 0,
                   what=f"{node.name} to be replaced")

    def run(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.random.uniform(0.3, 1.0))
            self.strike()


def reaches(node):
    """The node has come so far that it answers."""
    with contextlib.suppress(OSError):
        return get(node, "/healthz")[0] == 200
    return False


def storm(t, seconds, seed):
    """Runs clients and nemesis; returns all that can be told afterwards."""
    record, stop = h.History(), threading.Event()
    with Cluster(t.program, t.path("cluster"), 3) as cluster:
        clients = [Client(cluster, record, i, stop) for i in range(CLIENTS)]
        for c in clients:
            c.start()
        nemesis = Nemesis(t, cluster, seed)
        nemesis.run(seconds)
        cluster.leader()
        healed = time.monotonic()
        time.sleep(2)
        stop.set()
        for c in clients:
            c.join(60)
        leader = cluster.leader()
        final = {lock: counter(leader, lock) for lock in LOCKS}
        left = leader.ask("LOCK", "LIST").get("rows") or []
    return record, clients, nemesis, healed, final, left


@test(timeout=int(SECONDS) + 600)
def chaos__keeps_the_promises_while_nodes_are_killed_frozen_and_lost(t):
    seed = int(os.environ.get("PICKET_CHAOS_SEED", time.time_ns() % 1000000))
    record, clients, nemesis, healed, final, left = storm(t, SECONDS, seed)
    for c in clients:
        check(not c.is_alive(), f"client {c.number} did not come to its end")
        check(c.failure is None, f"client {c.number}: {c.failure!r}")
    broken = h.check_all(record, final, healed, MARGIN_S, TTL_MS / 1000)
    acknowledged = sum(o.status == "OK" for o in record.operations)
    print(f"# seed {seed}: {nemesis.counts}; {acknowledged} operations acknowledged, "
          f"{len(record.of('acquire'))} grants, {sum(final.values())} counted, "
          f"{sum(c.lost_leases for c in clients)} leases lost to pauses")
    check(not broken, "; ".join(broken[:5]))
    equal(left, [])
    check(len(record.of("acquire")) > 20, "hardly anything was granted")


# ---- the checker must be able to see ----

def grant(record, lock, token, sent, done, **more):
    return record.begin(kind="acquire", client=0, lock=lock, lease=1, request=token,
                        sent=sent, done=done, status="OK", token=token, **more)


def planted(change):
    """A history with two good grants, changed; the sentences about it."""
    record = h.History()
    for lease in (1, 2):
        record.begin(kind="renew", client=0, lock="", lease=lease, request=0, sent=0,
                     done=0.1, status="OK")
    a = grant(record, "red", 1, 0.1, 0.2)
    record.begin(kind="add", client=0, lock="red", lease=1, request=9, sent=0.2, done=0.3,
                 status="OK", token=1, value=1)
    record.begin(kind="release", client=0, lock="red", lease=1, request=2, sent=0.5,
                 done=0.6, status="OK", token=1)
    b = grant(record, "red", 2, 0.15, 0.6)
    a.queued = b.queued = None
    final = {"red": 1}
    change(record, a, b, final)
    return h.check_all(record, final, 0.0, 0.1, 3.0)


@test
def checker__passes_a_good_history(t):
    del t
    equal(planted(lambda *_: None), [])


@test
def checker__sees_each_broken_promise(t):
    del t

    def overlap(_record, _a, b, _final):
        b.done = 0.4

    def same_token(_record, _a, b, _final):
        b.token = 1

    def token_back(record, _a, _b, _final):
        grant(record, "blue", 1, 0.7, 0.8)
        record.operations[-1].token = 0

    def overtaken(_record, a, b, _final):
        a.queued, b.sent, b.queued, a.token, b.token = 0.12, 0.15, 0.16, 2, 1

    def other_answer(_record, a, _b, _final):
        a.answers = [("OK", 1), ("OK", 3)]

    def lost_update(_record, _a, _b, final):
        final["red"] = 0

    def stranded(record, _a, _b, _final):
        record.begin(kind="acquire", client=0, lock="red", lease=1, request=5, sent=0.9)

    for change, promise in ((overlap, "P1"), (same_token, "P2"), (token_back, "P2"),
                            (overtaken, "P7"), (other_answer, "P8"), (lost_update, "P3"),
                            (stranded, "P9")):
        said = planted(change)
        check(any(s.startswith(promise) for s in said), f"{change.__name__}: {said}")


main(on_disk=True)

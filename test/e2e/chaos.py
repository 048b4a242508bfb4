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
from cluster import Cluster, ServerError, get
from tap import check, equal, main, test, wait_until

SECONDS = float(os.environ.get("PICKET_CHAOS_SECONDS", "20"))
CLIENTS = 6
LOCKS = ("red", "green", "blue")
TTL_MS = 3000
MARGIN_S = 0.02 * TTL_MS / 1000 + 0.05  # as the client library has it
TRY_S = 1.5


class GaveUp(Exception):
    """No node answered for too long."""


class Client(threading.Thread):
    """Takes a lock, raises the lock's counter behind its fence, lets go; again and again.
    Repeats what was not answered, with the same request id, on whatever node leads."""

    def __init__(self, cluster, record, number, stop):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.record = record
        self.number = number
        self.stop = stop
        self.random = random.Random(number)
        self.connection = None
        self.lease = 0
        self.request = 0
        self.renewed = 0
        self.failure = None
        self.lost_leases = 0

    # -- asking --

    def connect(self):
        self.disconnect()
        node = self.random.choice(self.cluster.nodes)
        self.connection = node.connect(timeout=TRY_S)

    def disconnect(self):
        if self.connection is not None:
            with contextlib.suppress(OSError):
                self.connection.close()
        self.connection = None

    def ask(self, words, operation=None, seconds=30):
        """Repeats until there is an answer that is one. Returns the reply, or the
        ServerError of a refusal."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.connection is None:
                    self.connect()
                reply = self.connection.ask(*words)
                if operation is not None:
                    operation.answers.append((reply["status"], reply.get("token")))
                return reply
            except ServerError as e:
                if e.code in ("NOTLEADER", "NOLEADER", "UNKNOWN", "OVERLOAD"):
                    self.disconnect()
                    time.sleep(0.02 * self.random.random())
                    continue
                return e
            except (OSError, ValueError):
                self.disconnect()
                time.sleep(0.02 * self.random.random())
        raise GaveUp(" ".join(map(str, words)))

    def begin(self, kind, lock, **fields):
        self.request += 1
        return self.record.begin(kind=kind, client=self.number, lock=lock,
                                 lease=self.lease, request=self.request,
                                 sent=time.monotonic(), **fields)

    # -- a client's life --

    def open(self):
        nonce = self.random.getrandbits(62) + 1
        reply = self.ask(("LEASE", "OPEN", TTL_MS, "REQUEST", nonce))
        self.lease = reply["lease"]
        self.request = 0
        self.renew()

    def renew(self):
        o = self.begin("renew", "")
        reply = self.ask(("LEASE", "RENEW", self.lease))
        o.done = time.monotonic()
        if isinstance(reply, ServerError):
            o.status = reply.code
            return False
        o.status = "OK"
        self.renewed = o.sent
        return True

    def wait_for_grant(self, o):
        """The push that ends the wait; asks again after a reconnect."""
        while True:
            with contextlib.suppress(OSError, ValueError):
                if self.connection is not None:
                    _, kind, event = self.connection.push()
                    if event.get("lease") == o.lease and kind == "lease-ended":
                        return "LOST", None
                    if event.get("request") == o.request and kind == "granted":
                        return "OK", event["token"]
                    if event.get("request") == o.request and kind == "left":
                        return "TIMEOUT", None
                    continue
            self.disconnect()
            if not self.renew():
                return "LOST", None
            reply = self.ask(self.acquire_words(o))
            if isinstance(reply, ServerError):
                return reply.code, None
            if reply["status"] == "OK":
                return "OK", reply["token"]

    def acquire_words(self, o):
        return ("LOCK", "ACQUIRE", o.lease, o.lock, "WAIT", TTL_MS, "REQUEST", o.request)

    def acquire(self, lock):
        o = self.begin("acquire", lock)
        reply = self.ask(self.acquire_words(o))
        if isinstance(reply, ServerError):
            o.status = reply.code
        elif reply["status"] == "OK":
            o.status, o.token = "OK", reply["token"]
        else:
            o.queued = time.monotonic()
            o.status, o.token = self.wait_for_grant(o)
        o.done = time.monotonic()
        return o

    def add(self, lock, token):
        """The read-modify-write that locks are for; the fence decides."""
        seen = self.ask(("FENCE", "CLAIM", lock, token))
        if isinstance(seen, ServerError):
            return
        seen = self.ask(("FENCE", "GET", lock, "TOKEN", token))
        if isinstance(seen, ServerError):
            return
        o = self.begin("add", lock, token=token)
        o.value = int(seen.get("value") or 0) + 1
        reply = self.ask(("FENCE", "SET", lock, token, o.value, "REQUEST", o.request))
        o.done = time.monotonic()
        o.status = reply.code if isinstance(reply, ServerError) else "OK"

    def release(self, grant):
        o = self.begin("release", grant.lock, token=grant.token)
        reply = self.ask(("LOCK", "RELEASE", self.lease, grant.lock, grant.token,
                          "REQUEST", o.request), o)
        o.done = time.monotonic()
        o.status = reply.code if isinstance(reply, ServerError) else "OK"

    def round(self):
        if not self.renew():
            self.lost_leases += 1
            self.open()
        grant = self.acquire(self.random.choice(LOCKS))
        if grant.status != "OK":
            return
        if self.random.random() < 0.04:
            time.sleep(TTL_MS / 1000 * 1.3)  # a holder that is paused for too long
        self.add(grant.lock, grant.token)
        self.release(grant)

    def run(self):
        try:
            self.open()
            while not self.stop.is_set():
                self.round()
            self.ask(("LEASE", "CLOSE", self.lease))
        except Exception as e:  # pylint: disable=broad-except
            self.failure = e
        self.disconnect()


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


def counter(node, lock):
    try:
        return int(node.ask("FENCE", "GET", lock).get("value") or 0)
    except ServerError:
        return 0


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

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Every file of a node's directory, damaged while the node is down: bits flipped, files
cut, blocks zeroed, files removed.

A start with damaged files either refuses with one line that names the file and says what
to do, and changes nothing; or it serves, and then everything that was acknowledged is
there. $PICKET_DISK_DAMAGE is how often each sort of damage is done to each kind of file
(default: a few times, 100 for a whole campaign), $PICKET_DISK_DAMAGE_SEED the seed.
"""
import contextlib
import hashlib
import os
import random
import shutil

from cluster import Cluster, ServerError
from disks import Past
from tap import Failed, check, contains, equal, main, test, wait_until

TIMES = int(os.environ.get("PICKET_DISK_DAMAGE", "2"))
SEED = int(os.environ.get("PICKET_DISK_DAMAGE_SEED", "1"))
BLOCK = 4096
SMALL_LOG = ("--log-mb", "16")  # a snapshot is due after 70 large values


# ---- files ----

def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def sector_numbers(data):
    """Of the batches that wrote the sectors of a segment (src/raft/README.md)."""
    return [int.from_bytes(data[i + 500:i + 508], "little")
            for i in range(0, len(data), 512)]


def kinds_of_log(folder):
    """The segments, by when they were written last."""
    highest = {}
    for name in os.listdir(os.path.join(folder, "raft")):
        if name.startswith("log-"):
            numbers = sector_numbers(read(os.path.join(folder, "raft", name)))
            highest[max(numbers)] = (f"raft/{name}", 512 * numbers.index(max(numbers)))
    order = sorted(highest)
    check(len(order) > 1, f"only {len(order)} segments")
    return {"log, current": highest[order[-1]], "log, before it": highest[order[-2]],
            "log, oldest": highest[order[0]]}


def kinds(folder):
    """The files of a node by what they are for: {kind: (name, where it ends)}."""
    out = {name: (name, None)
           for name in ("identity", "peers", "lock", "raft/meta", "raft/mark")
           if os.path.exists(os.path.join(folder, name))}
    out |= kinds_of_log(folder)
    names = sorted(os.listdir(os.path.join(folder, "raft")))
    snapshots = sorted((int.from_bytes(read(os.path.join(folder, "raft", n))[24:32],
                                       "little"), n)
                       for n in names if n.startswith("snapshot-"))
    check(snapshots[-2][0] > 0, f"fewer than two snapshots: {snapshots}")
    out["snapshot, newest"] = (f"raft/{snapshots[-1][1]}", None)
    out["snapshot, before it"] = (f"raft/{snapshots[-2][1]}", None)
    return out


def fingerprint(folder):
    digest = hashlib.sha256()
    for at, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            digest.update(f"{at}/{name}\n".encode())
            digest.update(read(os.path.join(at, name)))
    return digest.hexdigest()


# ---- damage ----

def place(rng, data, end):
    """Anywhere, or near the place where the file was written last."""
    if end is None or rng.random() < 0.5:
        return rng.randrange(len(data))
    return min(len(data) - 1, max(0, end + rng.randrange(-8 * BLOCK, 3 * BLOCK)))


def flip(rng, data, end):
    at = place(rng, data, end)
    bit = 1 << rng.randrange(8)
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1:], f"byte {at} ^ {bit}"


def cut(rng, data, end):
    at = place(rng, data, end)
    return data[:at], f"cut to {at} of {len(data)} bytes"


def zero(rng, data, end):
    at = place(rng, data, end)
    at = at // BLOCK * BLOCK if len(data) > BLOCK else at
    out = data[:at] + bytes(min(BLOCK, len(data) - at)) + data[at + BLOCK:]
    return out, f"4096 bytes from {at} are zero"


SORTS = {"flip": flip, "cut": cut, "zero": zero}


class Victim:
    """A node, a copy of its directory, and what a start makes of it after damage."""

    def __init__(self, t):
        self.cluster = Cluster(t.program, t.path("c"), 1, flags=SMALL_LOG)
        self.node = self.cluster.nodes[0]
        self.copy = t.path("copy")
        self.past = Past()
        self.results = {}

    def live(self, *grown):
        """Starts, does so much, and is killed; its directory is the one to damage."""
        for times in grown:
            self.node.start()
            self.cluster.leader()
            self.past.grow(self.node, times)
            self.node.kill()
        shutil.copytree(self.node.data, self.copy)
        return kinds(self.copy)

    def restore(self):
        shutil.rmtree(self.node.data)
        shutil.copytree(self.copy, self.node.data)
        write(self.node.log, b"")

    def serves(self):
        """False: it has ended instead."""
        wait_until(lambda: not self.node.alive() or self.node.serves(),
                   what="a start or a refusal")
        return self.node.alive()

    def judge_refusal(self, name, before):
        code = self.node.process.returncode
        said = self.node.words()
        check(code == 125, f"ended with {code}: {said}")
        refusal = self.node.refusal()
        check(refusal.startswith("picket serve: "), refusal)
        contains(said, name)
        check("picket cluster" in said,
              f"does not say what to do: {said!r}")
        equal(fingerprint(os.path.join(self.node.data, "raft")), before)

    def start(self, name):
        """'refused', or 'served' after everything was found and found once more."""
        before = fingerprint(os.path.join(self.node.data, "raft"))
        self.past.seen = []
        self.node.start()
        if not self.serves():
            self.judge_refusal(name, before)
            return "refused"
        self.past.verify(self.node)
        self.node.kill()
        self.node.start()
        check(self.serves(), f"a second start is refused: {self.node.last_words()}")
        self.past.verify(self.node)
        return "served"

    def damage(self, kind, name, what, data):
        """Starts with the damaged file (None: it is gone) and counts how that ended."""
        self.restore()
        path = os.path.join(self.node.data, name)
        if data is None:
            os.unlink(path)
        else:
            write(path, data)
        try:
            result = self.start(name)
        except Failed as e:
            code = self.node.process.poll()
            result = "crashed" if code is not None and code not in (0, 125) else "lost"
            print(f"# {kind}, {name}: {what}: {result}: {e}".replace("\n", "\n# "))
        finally:
            self.node.kill()
        counts = self.results.setdefault(kind, {"refused": 0, "served": 0, "lost": 0,
                                                "crashed": 0})
        counts[result] += 1
        return result

    def report(self):
        print(f"# {'file':22} {'tried':>6} {'refused':>8} {'served':>7} {'lost':>5} "
              f"{'crashed':>8}")
        for kind, n in self.results.items():
            print(f"# {kind:22} {sum(n.values()):6} {n['refused']:8} {n['served']:7} "
                  f"{n['lost']:5} {n['crashed']:8}")
        for kind, n in self.results.items():
            equal((kind, n["lost"], n["crashed"]), (kind, 0, 0))


@test(timeout=600 + 60 * TIMES)
def damage__to_any_file_is_refused_or_harmless(t):
    victim = Victim(t)
    files = victim.live(160, 90)
    write(os.path.join(victim.copy, "peers"), b"PKPR" + bytes(60))  # it has met nobody
    files["peers"] = ("peers", None)
    for kind, (name, end) in files.items():
        data = read(os.path.join(victim.copy, name))
        for sort, change in SORTS.items():
            for i in range(TIMES):
                rng = random.Random(f"{SEED} {kind} {sort} {i}")
                damaged, what = change(rng, data, end)
                victim.damage(kind, name, f"{sort} {i}: {what}", damaged)
        victim.damage(kind, name, "removed", None)
    victim.report()


def damaged_from(data, start):
    """Every block from there on has a bad sector."""
    out = bytearray(data)
    for at in range(start, len(data), BLOCK):
        out[at + 100] ^= 1
    return bytes(out)


@test
def damage__where_the_log_has_not_been_is_mended(t):
    """Otherwise the node would refuse to start much later, when its log ends there."""
    victim = Victim(t)
    files = victim.live(160, 90)
    victim.restore()
    for kind in ("log, current", "log, before it", "log, oldest"):
        name, end = files[kind]
        path = os.path.join(victim.node.data, name)
        data = read(path)
        numbers = sector_numbers(data)
        end = 512 * (len(numbers) - numbers[::-1].index(max(numbers)))
        write(path, damaged_from(data, BLOCK if kind == "log, oldest" else end + BLOCK))
    equal(victim.start(files["log, current"][0]), "served")
    for _ in range(8):  # the log goes on through all segments, and ends anywhere
        victim.past.grow(victim.node, 37)
        victim.node.kill()
        victim.node.start()
        check(victim.serves(), f"refused: {victim.node.last_words()}")
        victim.past.verify(victim.node)


@test
def snapshots__that_are_all_damaged_are_refused_by_name(t):
    """Entries before the log are in them alone."""
    victim = Victim(t)
    victim.live(160, 90)
    victim.restore()
    for i in range(3):
        path = os.path.join(victim.node.data, f"raft/snapshot-{i}")
        write(path, damaged_from(read(path), 0))
    equal(victim.start("raft/snapshot-"), "refused")
    contains(victim.node.words(), " is damaged: the log begins with entry ")


# ---- in a cluster ----

def is_refused(node):
    """Waits for what becomes of a start; True: it was refused with one line."""
    wait_until(lambda: not node.alive() or has_joined(node), what="a start or a refusal")
    if node.alive():
        return False
    said = [x for x in node.words().splitlines() if x.startswith("picket serve: ")]
    equal((node.process.returncode, len(said)), (125, 1))
    return True


def has_joined(node):
    """It follows or leads."""
    with contextlib.suppress(OSError, ServerError):
        return node.ask("CLUSTER", "STATUS")["leader"] not in ("", None)
    return False


@test
def cluster__goes_on_without_the_node_whose_log_is_damaged(t):
    """One node is down, the other two acknowledge; then all are killed and the log of one
    of these two is damaged. The third one, which has missed everything, comes back."""
    with Cluster(t.program, t.path("c"), 3, flags=SMALL_LOG) as cluster:
        past = Past()
        past.grow(cluster.leader(), 10)
        away = cluster.followers()[0]
        away.kill()
        leader = cluster.leader()
        past.grow(leader, 4, holds=50)
        victim = next(n for n in cluster.nodes if n not in (leader, away))
        with leader.connect() as c, victim.connect() as v:
            index = c.ask("CLUSTER", "STATUS")["last_index"]
            wait_until(lambda: v.ask("CLUSTER", "STATUS")["last_index"] >= index)
        for node in cluster.nodes:
            node.kill()
        name, end = kinds_of_log(victim.data)["log, current"]
        path = os.path.join(victim.data, name)
        data = bytearray(read(path))
        data[end + 100] ^= 1
        write(path, data)
        victim.start()
        check(is_refused(victim), "it starts with a damaged log")
        contains(victim.words(), name)
        contains(victim.words(), "picket cluster replace")
        leader.start()
        away.start()
        past.verify(cluster.leader())
        check(not victim.alive(), "it runs")


@test(timeout=600 + 10 * TIMES)
def cluster__loses_nothing_by_damage_to_one_node(t):
    """Each kind of file in turn, of each node in turn. Damage that is refused is undone
    afterwards, so that the next node can be damaged."""
    rng = random.Random(SEED)
    with Cluster(t.program, t.path("c"), 3, flags=SMALL_LOG) as cluster:
        past, counts = Past(), {}
        past.grow(cluster.leader(), 160)
        past.grow(cluster.leader(), 90)
        for turn in range(max(12, TIMES * 3)):
            victim = cluster.nodes[turn % 3]
            for node in cluster.nodes:
                node.kill()
            files = kinds(victim.data)
            kind = sorted(files)[turn % len(files)]
            name, end = files[kind]
            path = os.path.join(victim.data, name)
            whole = read(path)
            damaged, what = flip(rng, whole, end)
            write(path, damaged)
            write(victim.log, b"")
            for node in cluster.nodes:
                node.start()
            refused = is_refused(victim)
            counts.setdefault(kind, [0, 0])[refused] += 1
            result = "refused" if refused else "served"
            print(f"# {victim.name}, {kind}: {what}: {result}")
            past.verify(cluster.leader())
            past.grow(cluster.leader(), 10)
            if refused:
                write(path, whole)
                victim.start()
            wait_until(lambda n=victim: has_joined(n), what="a whole cluster")
        check(all(n.alive() for n in cluster.nodes), "a node is down")
        print(f"# served and refused: {counts}")


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A node whose disk fails under it: writes and syncs that fail, a file system that turns
read-only or fills up, and power cuts.

A failed write ends the node at once, with one line and exit code 121. A full disk does
not: the node refuses commands, lives on, and serves again when there is room. Whatever
happens, the next start has everything that was acknowledged.

$PICKET_POWER_CUTS is how often the power is cut (default 3, 20 for a whole campaign).
Disks are loop devices, which only root may make.
"""
import contextlib
import http.client
import itertools
import os
import random
import re
import shutil
import threading

from cluster import Cluster, Connection, NotReady, ServerError, fields
from diagnose import stat
from disks import Disk, Past, run
from tap import Failed, check, contains, equal, main, skip, test, wait_until

CUTS = int(os.environ.get("PICKET_POWER_CUTS", "3"))
NOSYNC = os.path.realpath(os.environ.get("NOSYNC", "build/test/nosync.so"))
SMALL_LOG = ("--log-mb", "16")
ENDED = (ConnectionError, TimeoutError, OSError, ServerError, NotReady)
EXIT_DISK = 121


def stopped_line(node, file, error):
    """The node has ended with the one line that is due; returns it."""
    equal(node.process.wait(), EXIT_DISK)
    lines = [x for x in node.words().splitlines() if "level=error" in x]
    check(len(lines) == 1, f"not one line: {lines}")
    contains(lines[0], "event=stopped")
    check(re.search(rf"can't write raft/{file}: {error}; nothing more is acknowledged",
                    lines[0]), f"{file}, {error}: {lines[0]}")
    return lines[0]


def live_until_it_ends(node, past, rounds=12):
    """Uses a node until it ends; notes what it acknowledges. False: it did not end."""
    wait_until(lambda: not node.alive() or node.serves(), what="a start or an end")
    with contextlib.suppress(*ENDED):
        for _ in range(rounds):
            past.grow(node, 30, holds=4)
        return False
    wait_until(lambda: not node.alive(), what="the end of the node")
    return True


# ---- errors ----

# Which file, which system call, its how-manieth, and whether the node must end.
ERRORS = [
    ("log-000", "pwrite64", 1, True), ("log-000", "pwrite64", 2, True),
    ("log-000", "pwrite64", 9, True), ("log-001", "pwrite64", 1, True),
    ("log-001", "pwrite64", 4, True), ("log-003", "pwrite64", 1, True),
    ("log-003", "fsync", 1, True), ("log-003", "fallocate", 1, True),
    ("meta", "pwrite64", 1, True), ("meta", "pwrite64", 2, True),
    ("snapshot-0", "pwrite64", 1, True), ("snapshot-0", "pwrite64", 2, True),
    ("snapshot-0", "fsync", 1, True), ("snapshot-0", "fallocate", 1, True),
    ("snapshot-1", "fsync", 1, True),
    ("mark", "pwrite64", 1, False), ("mark", "fdatasync", 1, False),
]


def under_strace(t, node, file, call, n):
    """Writes a program that is `picket` with that call failing."""
    path = os.path.join(node.data, "raft", file)
    words = ["strace", "-D", "-f", "-qq", "-o", "/dev/null", "-P", path, "-e",
             f"trace={call}", "-e", f"inject={call}:error=EIO:when={n}", t.program]
    # All writes by pwrite. LeakSanitizer, where it is built in, does not work here.
    return t.write("strace.sh", "#!/bin/sh\nexport ASAN_OPTIONS=detect_leaks=0\n"
                   f"export PICKET_DISK=threads\nexec {' '.join(words)} \"$@\"\n", 0o755)


@test
def error__of_any_write_ends_the_node_and_loses_nothing(t):
    if shutil.which("strace") is None:
        skip("no strace")
    for file, call, n, ends in ERRORS:
        folder = t.path(f"{file}-{call}-{n}")
        cluster = Cluster(t.program, folder, 1, flags=SMALL_LOG)
        node, past = cluster.nodes[0], Past()
        try:
            node.start()
            cluster.leader()
            past.grow(node, 2, holds=4)
            node.kill()
            cluster.program = under_strace(t, node, file, call, n)
            node.start()
            ended = live_until_it_ends(node, past)
            equal((file, call, n, ended), (file, call, n, ends))
            if ended:
                stopped_line(node, file, "Input/output error")
            node.kill()
            cluster.program = t.program
            node.start()
            cluster.leader()
            past.verify(node)
        finally:
            cluster.close()
        shutil.rmtree(folder)


@test
def error__of_a_read_refuses_the_start(t):
    """With the name of the file; and the next start is a normal one."""
    if shutil.which("strace") is None:
        skip("no strace")
    cluster = Cluster(t.program, t.path("c"), 1, flags=SMALL_LOG)
    node, past = cluster.nodes[0], Past()
    node.start()
    cluster.leader()
    past.grow(node, 200)
    node.kill()
    for file in ("meta", "log-000", "log-001", "snapshot-0"):
        cluster.program = under_strace(t, node, file, "pread64", 1)
        with open(node.log, "w", encoding="ascii"):
            pass
        node.start()
        equal((file, node.process.wait()), (file, 125))
        contains(node.refusal(), f"can't read raft/{file}: Input/output error")
    cluster.program = t.program
    node.start()
    cluster.leader()
    past.verify(node)
    cluster.close()


@test
def read_only_disk__ends_the_node_and_loses_nothing(t):
    disk = Disk(t.path("image"), t.path("disk"), 96)
    with disk:
        cluster = Cluster(t.program, t.path("disk/c"), 1, flags=SMALL_LOG)
        node, past = cluster.nodes[0], Past()
        node.log = t.path("n1.log")
        try:
            node.start()
            cluster.leader()
            past.grow(node, 100)
            disk.break_read_only()
            check(live_until_it_ends(node, past), "it goes on, on a disk that it can't "
                  "write to")
            stopped_line(node, "(log-[0-9]+|meta|snapshot-[0-9])",
                         "(Read-only file system|Input/output error)")
            node.start()
            equal(node.process.wait(), 125)
            contains(node.words(), "Read-only file system")
            disk.unmount()
            disk.mount()
            node.start()
            cluster.leader()
            past.verify(node)
        finally:
            cluster.close()


@test
def disk_that_is_gone__ends_the_node_and_loses_nothing(t):
    """Every write fails from one moment on, whichever way it goes to the kernel."""
    for way in ("threads", "aio"):
        with Disk(t.path(f"image-{way}"), t.path(f"disk-{way}"), 96) as disk:
            program = t.write(f"{way}.sh", f"#!/bin/sh\nexport PICKET_DISK={way}\n"
                              f"exec {t.program} \"$@\"\n", 0o755)
            cluster = Cluster(program, os.path.join(disk.path, "c"), 1, flags=SMALL_LOG)
            node, past = cluster.nodes[0], Past()
            node.log = t.path(f"{way}.log")
            try:
                node.start()
                cluster.leader()
                past.grow(node, 100)
                node.stop()
                wait_until(lambda n=node: is_still(n.pid), what="its writes to end")
                disk.cut_power()
                node.cont()
                check(live_until_it_ends(node, past), "it goes on without a disk")
                stopped_line(node, "(log-[0-9]+|meta|snapshot-[0-9])",
                             "Input/output error")
                disk.unmount()
                disk.mount()
                node.start()
                cluster.leader()
                past.verify(node)
            finally:
                cluster.close()


# ---- a full disk ----

def health(node, path):
    c = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=60)
    with contextlib.closing(c):
        c.request("GET", path)
        return c.getresponse().status


def refused(node, *words):
    """The command is refused because the disk is full."""
    try:
        with node.connect() as c:
            raise Failed(f"{words} was answered: {c.ask(*words)}")
    except ServerError as e:
        equal(str(e), "NOSPACE the disk is full; nothing was changed")


def grow_until_refused(node):
    """New registers: no snapshot of them fits, and so the log fills up too."""
    n = 0
    with node.connect() as c:
        while True:
            try:
                c.ask("FENCE", "SET", f"more/{n}", 1, "x" * 60000)
                n += 1
            except ServerError as e:
                equal(str(e), "NOSPACE the disk is full; nothing was changed")
                return n


@test
def full_disk__refuses_commands_and_serves_again_when_there_is_room(t):
    # Three snapshots of up to 12 MB and a log of 16 MB must fit when it is not full.
    disk = Disk(t.path("image"), t.path("disk"), 96)
    with disk:
        cluster = Cluster(t.program, t.path("disk/c"), 1, flags=SMALL_LOG)
        node, past = cluster.nodes[0], Past()
        node.log = t.path("n1.log")
        try:
            node.start()
            cluster.leader()
            past.grow(node, 400)  # several snapshots
            disk.fill()
            for _ in range(4):  # the log goes round, and the state grows only a little
                past.grow(node, 150, holds=100)
            n = grow_until_refused(node)
            print(f"# {n} new registers of 60 kB until the full disk refused one")
            check(node.alive(), f"ended: {node.last_words()}")
            equal(health(node, "/healthz"), 200)
            equal(node.ask("CLUSTER", "STATUS")["standing"], "leader")
            refused(node, "LEASE", "OPEN", 60000)
            equal(node.ask("LOCK", "SHOW", "db")["status"], "OK")
            check("event=disk-ok" not in node.words(), "a read is no sign of room")
            check(node.metric("picket_no_space_total") > 0, "not counted")
            node.kill()  # and again, on the full disk
            node.start()
            wait_until(lambda: node.alive() and health_or_none(node) == 200)
            disk.free()
            cluster.leader()
            past.verify(node)
            with node.connect() as c:  # a snapshot comes first, then there is room
                wait_until(lambda: past.fence(c, 100) == 0, what="room for much")
            past.grow(node, 100)
            past.verify(node)
        finally:
            cluster.close()


def health_or_none(node):
    with contextlib.suppress(OSError):
        return health(node, "/healthz")
    return None


# ---- power cuts ----

class Client(threading.Thread):
    """Takes locks for ever, and notes those that it was told it has."""

    def __init__(self, node, number):
        super().__init__(daemon=True)
        self.node, self.number = node, number
        self.tokens = {}

    def run(self):
        with contextlib.suppress(*ENDED), Connection(self.node.port) as c:
            lease = fields(c.ask("LEASE", "OPEN", 86400000))["lease"]
            while True:
                name = f"client/{self.number}/{len(self.tokens)}"
                told = fields(c.ask("LOCK", "ACQUIRE", lease, name, "VALUE", "v" * 500))
                self.tokens[name] = told["token"]


def is_still(pid):
    """All threads are stopped: no write is under way."""
    with contextlib.suppress(FileNotFoundError):
        return all(stat(f"{pid}/task/{task}")[0] in "Tt"
                   for task in os.listdir(f"/proc/{pid}/task"))
    return False


def cut_power(disk, cluster, numbers, most):
    """Runs a node under load and cuts its power; returns what was acknowledged."""
    node = cluster.nodes[0]
    clients = [Client(node, next(numbers)) for _ in range(4)]
    for c in clients:
        c.start()
    wait_until(lambda: sum(len(c.tokens) for c in clients) > most, what="some load")
    node.stop()
    wait_until(lambda: is_still(node.pid), what="the end of what is under way")
    disk.cut_power()
    node.kill()
    for c in clients:
        c.join()
    disk.unmount()
    disk.mount()
    return {name: token for c in clients for name, token in c.tokens.items()}


def held(node):
    """The token of each lock."""
    out, rows = {}, [{"name": ""}]
    with node.connect() as c:
        while rows:
            rows = c.ask("LOCK", "LIST", "COUNT", 1000, "AFTER",
                         rows[-1]["name"]).get("rows") or []
            out |= {row["name"]: row["token"] for row in rows}
    return out


@test(timeout=600 + 60 * CUTS)
def power_cut__takes_nothing_that_was_acknowledged(t):
    """Again and again, on one disk."""
    disk = Disk(t.path("image"), t.path("disk"), 192)
    rng, numbers, acknowledged = random.Random(CUTS), itertools.count(), {}
    with disk:
        cluster = Cluster(t.program, t.path("disk/c"), 1, flags=SMALL_LOG)
        node = cluster.nodes[0]
        node.log = t.path("n1.log")
        try:
            for _ in range(CUTS):
                node.start()
                cluster.leader()
                acknowledged |= cut_power(disk, cluster, numbers, rng.randrange(20, 2000))
                node.start()
                cluster.leader()
                found = held(node)
                lost = [n for n, token in acknowledged.items() if found.get(n) != token]
                equal(lost, [])
                lease = node.ask("LEASE", "OPEN", 60000)["lease"]
                token = node.ask("LOCK", "ACQUIRE", lease, "after")["token"]
                check(token > max(acknowledged.values()), "a token came twice")
                node.ask("LEASE", "CLOSE", lease)
                node.kill()
            print(f"# {CUTS} power cuts, {len(acknowledged)} grants, none lost")
        finally:
            cluster.close()


@test
def power_cut__without_syncs_does_take_something(t):
    """The control: the cuts of the test above are real ones."""
    disk = Disk(t.path("image"), t.path("disk"), 192)
    unsynced = t.write("unsynced.sh", f"#!/bin/sh\nexport LD_PRELOAD={NOSYNC}\n"
                       f"exec {t.program} \"$@\"\n", 0o755)
    with disk:
        cluster = Cluster(t.program, t.path("disk/c"), 1, flags=SMALL_LOG)
        node = cluster.nodes[0]
        node.log = t.path("n1.log")
        try:
            node.start()
            cluster.leader()
            equal(node.terminate(), 0)
            cluster.program = unsynced
            node.start()
            cluster.leader()
            acknowledged = cut_power(disk, cluster, itertools.count(), 1000)
            cluster.program = t.program
            node.start()
            wait_until(lambda: not node.alive() or node.serves(), what="a start")
            found = held(node) if node.alive() else {}
            lost = [n for n, token in acknowledged.items() if found.get(n) != token]
            print(f"# {len(lost)} of {len(acknowledged)} grants lost")
            check(lost, "nothing is lost without syncs: these are no power cuts")
        finally:
            cluster.close()


# ---- a disk that stalls ----

def freeze_leader(t, way, nth=0):
    """The leader's file system is frozen: its writes neither fail nor end. Returns what
    it said meanwhile."""
    program = t.write("picket.sh", f"#!/bin/sh\nexport PICKET_DISK={way}\n"
                      f"exec {t.program} \"$@\"\n", 0o755)
    with Disk(t.path(f"image{nth}"), t.path(f"disk{nth}"), 96) as disk:
        cluster = Cluster(program, t.path(f"c{nth}"), 3)
        first = cluster.nodes[0]
        first.data = os.path.join(disk.path, "n1")
        try:
            cluster.start()
            wait_until(lambda: t.picket("cluster", "transfer", "n1", "--on",
                                        cluster.url).returncode == 0, what="n1 leads")
            run("fsfreeze", "--freeze", disk.path)
            try:
                wait_until(lambda: write_something(first) and
                           any(leads(n) for n in cluster.nodes[1:]),
                           what="another leader")
            finally:
                run("fsfreeze", "--unfreeze", disk.path)
            wait_until(lambda: t.picket("cluster", "status", "--on",
                                        cluster.url).returncode == 0,
                       what="a healthy cluster")
            return first.words()
        finally:
            cluster.close()


@test
def stalled_disk__makes_a_leader_hand_over(t):
    """On a busy machine an election may be faster than the leader notices."""
    check(any("event=disk-stalls" in freeze_leader(t, "threads", nth)
              for nth in range(8)), "no leader of 8 noticed that its disk stalled")


@test
def stalled_disk__never_holds_the_cluster_up(t):
    """Also when the kernel itself waits for the disk: then an election decides."""
    freeze_leader(t, "aio")


def write_something(node):
    with contextlib.suppress(*ENDED):
        node.ask("LEASE", "OPEN", 60000, timeout=1)
    return True


def leads(node):
    with contextlib.suppress(*ENDED):
        return node.ask("CLUSTER", "STATUS", timeout=1)["serving"] == 1
    return False


main(on_disk=True)

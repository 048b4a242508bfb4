#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How much memory and disk a node takes, whatever its clients do: docs/operations.md
names the ceilings ("Disk and memory"). One client that wrote large values to a few
registers once took 3.7 GB of each.

$PICKET_LIMIT_WRITES is how many values it writes (default 3000, 100000 for a campaign).
"""
import contextlib
import os

from cluster import Cluster
from disks import Disk
from tap import check, equal, main, skip, test, wait_until

WRITES = int(os.environ.get("PICKET_LIMIT_WRITES", "3000"))
MIB = 1 << 20
VALUE = 65000          # close to the most that a register keeps
REGISTERS = 4
STATE = REGISTERS * VALUE
MEMORY_CGROUP = "/sys/fs/cgroup/memory"
with open(os.environ.get("PICKET", "build/picket"), "rb") as program:
    SANITIZED = b"__asan_init" in program.read()  # which takes memory of its own


def disk_ceiling(log_mib):
    """Log, three snapshots with a quarter more room each, and small files."""
    return (log_mib + 1) * MIB + 3 * (STATE * 5 // 4 + 64 * 1024)


def memory_ceiling(log_mib):
    """The process itself, entries in flight, the log, the state and what a snapshot
    holds of it."""
    return (log_mib + 96) * MIB + 2 * STATE


def on_disk(folder):
    """Bytes of blocks, those of files that are being made too."""
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(os.path.join(at, name)).st_blocks * 512
    return total


class Largest:
    """What a node ever had on disk and in memory."""

    def __init__(self, node):
        self.node = node
        self.disk = self.memory = 0

    def look(self):
        self.disk = max(self.disk, on_disk(self.node.data))
        self.memory = max(self.memory, self.node.peak_memory())

    def judge(self, log_mib):
        self.look()
        print(f"# log of {log_mib} MiB: {self.disk / MIB:.0f} MiB on disk (at most "
              f"{disk_ceiling(log_mib) / MIB:.0f}), {self.memory / MIB:.0f} MiB of "
              f"memory (at most {memory_ceiling(log_mib) / MIB:.0f})")
        check(self.disk <= disk_ceiling(log_mib), "too much on disk")
        check(self.memory <= memory_ceiling(log_mib) or SANITIZED, "too much memory")


def write(node, n, largest):
    """`n` values, a hundred under way at a time; none of them may be refused."""
    with node.connect() as c:
        for i in range(n):
            if i >= 100:
                equal(c.reply()["status"], "OK")
            c.send("FENCE", "SET", f"register/{i % REGISTERS}", 1, f"{i} " + "x" * VALUE)
            if i % 500 == 0:
                largest.look()
        for _ in range(min(100, n)):
            equal(c.reply()["status"], "OK")


def use_and_restart(cluster, log_mib):
    node = cluster.nodes[0]
    node.start()
    cluster.leader()
    largest = Largest(node)
    write(node, WRITES, largest)
    largest.judge(log_mib)
    for end in (node.kill, node.terminate):
        end()
        node.start()
        cluster.leader()
        largest = Largest(node)
        largest.judge(log_mib)
        write(node, 300, largest)
        largest.judge(log_mib)


@test
def memory_and_disk__stay_below_their_ceilings(t):
    for log_mib in (16, 64):
        config = t.write(f"{log_mib}.conf", f"log-mb = {log_mib}\n")
        cluster = Cluster(t.program, t.path(f"c{log_mib}"), 1, flags=["--config", config])
        try:
            use_and_restart(cluster, log_mib)
        finally:
            cluster.close()


class Group:
    """A memory limit of the kernel for one process."""

    def __init__(self, t, limit):
        self.path = os.path.join(MEMORY_CGROUP, f"picket-test-{os.getpid()}")
        try:
            os.mkdir(self.path)
            with open(f"{self.path}/memory.limit_in_bytes", "w", encoding="ascii") as f:
                f.write(str(limit))
        except OSError as e:
            skip(f"no memory cgroup: {e}")
        self.program = t.write(
            "limited.sh", f"#!/bin/sh\necho $$ > {self.path}/cgroup.procs || exit 99\n"
            f"exec {t.program} \"$@\"\n", 0o755)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        def gone():
            with contextlib.suppress(OSError):
                os.rmdir(self.path)
            return not os.path.exists(self.path)
        wait_until(gone, what="the end of the group")


@test
def memory__of_1_gib_is_enough_for_the_default_log(t):
    with Group(t, 1 << 30) as group:
        cluster = Cluster(group.program, t.path("c"), 1)
        try:
            use_and_restart(cluster, 256)
        finally:
            cluster.close()


@test
def disk__of_96_mb_is_enough_for_the_default_settings(t):
    """The log takes what there is, and leaves room for snapshots."""
    with Disk(t.path("image"), t.path("disk"), 96) as disk:
        cluster = Cluster(t.program, t.path("disk/c"), 1)
        cluster.nodes[0].log = t.path("n1.log")
        try:
            use_and_restart(cluster, 96)
            check(disk.room() > 0, "no room is left")
            equal(cluster.nodes[0].metric("picket_no_space_total"), 0)
        finally:
            cluster.close()


main(on_disk=True)

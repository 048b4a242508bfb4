# SPDX-License-Identifier: MIT
"""A cluster under steady load for a long time must not grow.

    PICKET=build/picket python3 test/e2e/soak.py

Three nodes serve lock pairs, handoffs, renewals and jobs of `picket run` in turn, while
memory, descriptors and the size of the data folder of each node are sampled. After a
warm-up of a third of the time none of them may grow beyond what the next third needed.
PICKET_SOAK_SECONDS is how long (60); `make soak` does it in parts of ten minutes.
"""
import json
import os
import threading
import time

from cluster import Cluster
from tap import check, equal, main, test

SECONDS = float(os.environ.get("PICKET_SOAK_SECONDS", "60"))
LOADS = ("pairs", "handoff", "renew", "latency")
# What may come on top of the middle third's highest sample: freed memory that the
# allocator has not given back, a snapshot that is being written.
SLACK = {"memory": 32 << 20, "descriptors": 16, "disk": 64 << 20}


def folder_size(folder):
    total = 0
    for at, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(at, name)).st_blocks * 512
            except FileNotFoundError:
                pass  # deleted meanwhile, as old snapshots are
    return total


def sample(node):
    return {"memory": node.memory(),
            "descriptors": len(os.listdir(f"/proc/{node.pid}/fd")),
            "disk": folder_size(node.data)}


class Sampler(threading.Thread):
    """Samples all nodes once a second, until stop() is called."""

    def __init__(self, nodes):
        super().__init__(daemon=True)
        self.nodes = nodes
        self.samples = {n.name: [] for n in nodes}
        self.stopped = threading.Event()

    def run(self):
        while not self.stopped.wait(1):
            for node in self.nodes:
                self.samples[node.name].append(sample(node))

    def stop(self):
        self.stopped.set()
        self.join()


def growth(samples):
    """Sentences about what grew in the last third of the samples."""
    third = len(samples) // 3
    said = []
    for what, slack in SLACK.items():
        middle = max(s[what] for s in samples[third:2 * third])
        last = max(s[what] for s in samples[2 * third:])
        if last > middle + middle // 2 + slack:
            said.append(f"{what} grew from {middle} to {last}")
    return said


def work(t, url, end):
    """Puts loads on the cluster until `end`; returns how many lock pairs were done."""
    number = 0
    while time.monotonic() < end:
        load = LOADS[number % len(LOADS)]
        done = t.picket("bench", "--on", url, "-t", "5s", "-o", "json", load)
        equal((done.returncode, done.stderr), (0, ""))
        json.loads(done.stdout)
        for i in range(5):
            equal(t.picket("run", "--on", url, f"job-{i}", "--", "true").returncode, 0)
        number += 1
    return number


@test
def soak__memory_descriptors_and_disk_stop_growing(t):
    with Cluster(t.program, t.path("cluster"), 3) as cluster:
        sampler = Sampler(cluster.nodes)
        sampler.start()
        loads = work(t, cluster.url, time.monotonic() + SECONDS)
        sampler.stop()
        check(loads > 0, "no load was put on the cluster")
        for node in cluster.nodes:
            check(node.alive(), f"{node.name} did not live to the end")
            print(f"# {node.name}: {sampler.samples[node.name][-1]}")
            said = growth(sampler.samples[node.name])
            check(not said, f"{node.name}: {'; '.join(said)}")


@test
def soak__sees_growth(t):
    del t
    flat = [{"memory": 50 << 20, "descriptors": 20, "disk": 10 << 20}] * 30
    equal(growth(flat), [])
    for what in SLACK:
        grown = flat[:20] + [flat[0] | {what: 10 * flat[0][what] + SLACK[what]}] * 10
        equal(len(growth(grown)), 1)


if __name__ == "__main__":
    main(on_disk=True)

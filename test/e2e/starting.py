#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Nodes whose log takes long to be read: they answer meanwhile, and say that they are
starting."""
import contextlib
import glob
import http.client
import os

from cluster import Cluster, Connection, ServerError
from tap import check, contains, equal, main, skip, test, wait_until

HANGING = os.path.realpath(os.environ.get("HANGING", "build/test/hanging.so"))
HANG_S = 120  # only a node that stands still takes so long


class Host:
    """Its disk hangs while it is told to, but for the first thread of a process."""
    address = "127.0.0.1"

    def __init__(self, folder):
        self.folder = folder
        os.mkdir(folder)
        self.enter = ("env", f"LD_PRELOAD={HANGING}", f"PICKET_HANG={folder}")

    def hang(self):
        with open(os.path.join(self.folder, "files"), "wb"):
            pass

    def go_on(self):
        os.unlink(os.path.join(self.folder, "files"))

    def reads(self, node):
        """Whether a read of that node hangs."""
        return bool(glob.glob(os.path.join(self.folder, f"waits-{node.pid}-*")))


@contextlib.contextmanager
def cluster_of(t, n):
    if not os.path.exists(HANGING):
        skip("there is no hanging.so; the sanitizers can't be preloaded over")
    host = Host(t.path("host"))
    with Cluster(t.program, t.path("c"), n, hosts=[host] * n) as cluster:
        yield host, cluster


def page(node, path):
    c = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=HANG_S)
    with contextlib.closing(c):
        c.request("GET", path)
        answer = c.getresponse()
        return answer.status, answer.read().decode()


def restart_hanging(host, node):
    """Kills the node, and starts it on a disk that hangs."""
    node.kill()
    host.hang()
    node.start()
    wait_until(lambda: host.reads(node), what="a read that hangs")


@test
def start__is_answered_before_the_log_is_read(t):
    with cluster_of(t, 1) as (host, cluster):
        node = cluster.nodes[0]
        with node.connect() as c:
            lease = c.ask("LEASE", "OPEN", 600000)["lease"]
            token = c.ask("LOCK", "ACQUIRE", lease, "db")["token"]
        restart_hanging(host, node)
        status = node.ask("CLUSTER", "STATUS")
        equal((status["state"], status["serving"]), ("starting", 0))
        contains(status["waits_for"], "log")
        contains(node.ask("INFO"), "loading:1")
        equal(page(node, "/healthz"), (200, "ok\n"))
        code, said = page(node, "/readyz")
        equal(code, 503)
        contains(said, "log")
        equal(page(node, "/metrics")[0], 200)
        with Connection(node.port, timeout=HANG_S) as c:
            try:
                check(False, f"served: {c.ask('LOCK', 'SHOW', 'db')}")
            except ServerError as e:
                equal(e.code, "NOLEADER")
        host.go_on()
        cluster.leader()
        contains(node.ask("INFO"), "loading:0")
        equal(node.ask("CLUSTER", "STATUS")["state"], "member")
        equal(node.ask("LOCK", "SHOW", "db")["rows"][0]["token"], token)


@test
def start__is_waited_for_by_the_others(t):
    """They have a majority, and it is back as soon as it has read its log."""
    with cluster_of(t, 3) as (host, cluster):
        node = cluster.followers()[0]
        restart_hanging(host, node)
        with cluster.leader().connect() as c:
            lease = c.ask("LEASE", "OPEN", 600000)["lease"]
            check(c.ask("LOCK", "ACQUIRE", lease, "db")["token"] > 0, "no token")
        equal(node.ask("CLUSTER", "STATUS")["state"], "starting")
        host.go_on()
        wait_until(lambda: page(node, "/readyz")[0] == 200, what="its return")
        other = next(n for n in cluster.followers() if n is not node)
        other.kill()  # now its vote counts
        equal(cluster.leader().ask("LEASE", "RENEW", lease)["status"], "OK")


@test
def start__can_be_called_off(t):
    with cluster_of(t, 1) as (host, cluster):
        node = cluster.nodes[0]
        restart_hanging(host, node)
        node.process.terminate()
        wait_until(lambda: "event=stopping" in node.words(), what="its end to begin")
        host.go_on()
        equal(node.process.wait(HANG_S), 0)
        node.start()
        cluster.leader()


main()

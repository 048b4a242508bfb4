#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Nodes whose resolver hangs: only what needs the name waits for it."""
import glob
import http.client
import os

from cluster import Cluster, Connection, ServerError
from tap import Failed, check, equal, main, skip, test, wait_until

HANGING = os.path.realpath(os.environ.get("HANGING", "build/test/hanging.so"))
FOR_THE_LEADER = ("FENCE", "CLAIM", "-", 1)  # harmless, and no other node answers it
HANG_S = 120  # only a node that stands still takes so long


class Named:
    """A host that others know by name; its own resolver hangs when it is told to."""
    address = "127.0.0.1"

    def __init__(self, folder):
        self.enter = ("env", f"LD_PRELOAD={HANGING}", f"PICKET_HANG={folder}")


class Site:
    """Three nodes that advertise names to each other's clients."""

    def __init__(self, t):
        if not os.path.exists(HANGING):
            skip("there is no hanging.so; the sanitizers can't be preloaded over")
        self.folder = t.path("resolver")
        os.mkdir(self.folder)
        self.cluster = Cluster(t.program, t.path("c"), 3, hosts=[Named(self.folder)] * 3)
        for node in self.cluster.nodes:
            node.place += ["--advertise", f"{node.name}.test"]

    def hang(self):
        with open(os.path.join(self.folder, "names"), "wb"):
            pass

    def go_on(self):
        os.unlink(os.path.join(self.folder, "names"))

    def waiting(self, node):
        """How many lookups of that node hang."""
        return len(glob.glob(os.path.join(self.folder, f"waits-{node.pid}-*")))

    def __enter__(self):
        self.cluster.__enter__()
        return self

    def __exit__(self, *_):
        self.cluster.close()


def plain(node):
    """A connection that lets the node relay."""
    return Connection(node.port, timeout=HANG_S)


def is_relayed(node):
    try:
        with plain(node) as c:
            c.ask(*FOR_THE_LEADER)
        return True
    except (ServerError, OSError):
        return False


def is_closed(c):
    """Whether the node has closed the connection without an answer."""
    try:
        raise Failed(f"answered: {c.reply()}")
    except ConnectionError:
        return True


@test
def follower__goes_on_while_its_resolver_hangs(t):
    with Site(t) as s:
        leader = s.cluster.leader()
        follower = s.cluster.followers()[0]
        wait_until(lambda: is_relayed(follower), what="a relay by name")
        s.hang()
        with plain(follower) as c, plain(follower) as other:
            c.send(*FOR_THE_LEADER)
            wait_until(lambda: s.waiting(follower) > 0, what="a lookup that hangs")
            equal(other.ask("PING"), "PONG")
            # Now nobody has a majority without it.
            next(n for n in s.cluster.nodes if n not in (leader, follower)).kill()
            equal(s.cluster.leader().ask("LEASE", "OPEN", 60000)["status"], "OK")
            check(s.waiting(follower) > 0, "the lookup ended by itself")
            check(is_closed(c), "a relay without an address")
        s.go_on()
        wait_until(lambda: is_relayed(follower), what="a relay after the hang")


@test
def clients__that_leave_while_the_resolver_hangs_are_forgotten(t):
    """More of them than libuv has threads; the node's own disk needs some of those."""
    with Site(t) as s:
        follower = s.cluster.followers()[0]
        wait_until(lambda: is_relayed(follower), what="a relay by name")
        s.hang()
        clients = [plain(follower) for _ in range(20)]
        for c in clients:
            c.send(*FOR_THE_LEADER)
        wait_until(lambda: s.waiting(follower) > 0, what="a lookup that hangs")
        for c in clients:
            c.close()
        wait_until(lambda: follower.metric("picket_relays") == 0, what="no relays")
        equal(s.cluster.leader().ask("LEASE", "OPEN", 60000)["status"], "OK")
        s.go_on()
        wait_until(lambda: is_relayed(follower), what="a relay after the hang")


@test
def node__ends_while_its_resolver_hangs(t):
    with Site(t) as s:
        follower = s.cluster.followers()[0]
        wait_until(lambda: is_relayed(follower), what="a relay by name")
        s.hang()
        with plain(follower) as c:
            c.send(*FOR_THE_LEADER)
            wait_until(lambda: s.waiting(follower) > 0, what="a lookup that hangs")
            equal(follower.terminate(), 0)
            check("event=stopped" in follower.words(), follower.last_words())
        follower.start()
        wait_until(follower.alive)
        wait_until(lambda: ready(follower), what="its return")


def ready(node):
    try:
        c = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=HANG_S)
        c.request("GET", "/readyz")
        return c.getresponse().status == 200
    except OSError:
        return False


main()

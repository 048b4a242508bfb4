#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Real nodes and clients on a network that misbehaves: cuts in both directions and in
one, black holes, peers that vanish without a word.

Nothing is told to anybody when a cable is cut (lan.py), so every bound in here is
"not for ever", not a measure of speed.
"""
import contextlib
import ctypes
import os
import socket
import subprocess
import time

from cluster import ELECTION_MS, Cluster, Connection, ServerError, fields
from lan import Lan
from tap import Failed, alive, check, contains, equal, main, skip, test, wait_until

LONG_MS = 600000
SHORT_MS = 5000  # may run out, but not before the network is cut
SOON_S = 120  # far less than LONG_MS: nobody waits for a lease to end
TERMS_MAX = 3  # that one fault may cost, however long it lasts
SMALL_LOG = ("--log-mb", "16")
LEADERLESS = ("NOLEADER", "NOTLEADER", "UNKNOWN")
SYS_PIDFD_GETFD = 438

# In a build with the address sanitizer, what was freed shall count as free soon.
os.environ["ASAN_OPTIONS"] = ":".join(
    (os.environ.get("ASAN_OPTIONS", ""), "quarantine_size_mb=1",
     "thread_local_quarantine_size_kb=64")).strip(":")


@contextlib.contextmanager
def three(t, clients=0):
    """Three nodes on hosts of their own, and more hosts for clients."""
    with Lan(3 + clients) as lan, \
            Cluster(t.program, t.path("c"), 3, hosts=lan.hosts) as cluster:
        yield lan, cluster


def open_lease(c, ttl_ms=LONG_MS):
    """Over RESP2 or RESP3."""
    reply = c.ask("LEASE", "OPEN", ttl_ms)
    return (reply if isinstance(reply, dict) else fields(reply))["lease"]


def plain(node, timeout=SOON_S):
    """A connection in RESP2 that lets the node relay."""
    return Connection(node.port, node.host.address, timeout)


def status(node):
    return node.ask("CLUSTER", "STATUS")


def others_than(cluster, node):
    return [n for n in cluster.nodes if n is not node]


def tokens(node):
    """Which token holds which lock, as the cluster sees it: once it has a leader, which a
    busy machine may keep it from."""
    held = {}

    def answered():
        held.clear()
        try:
            with node.connect() as c:
                for lock in c.ask("LOCK", "LIST", "COUNT", 1000).get("rows") or []:
                    for row in c.ask("LOCK", "SHOW", lock["name"]).get("rows") or []:
                        if row["kind"] == "hold":
                            held[lock["name"]] = row["token"]
        except (ServerError, ConnectionError) as e:
            check(not isinstance(e, ServerError) or e.code in LEADERLESS, str(e))
            return False
        return True
    wait_until(answered, what="an answer of the cluster")
    return held


def agreed_leader(cluster):
    """The one node that serves when all name it; None while they don't."""
    said = [status(n) for n in cluster.nodes]
    serving = [s["node"] for s in said if s["serving"]]
    agreed = len(serving) == 1 and {s["leader"] for s in said} == set(serving)
    return cluster.node(serving[0]) if agreed else None


def wait_for_agreement(cluster):
    return wait_until(lambda: agreed_leader(cluster), SOON_S, "agreement on one leader")


def ends(c):
    """How the request under way ends: its error's code, or CLOSED. It must end."""
    try:
        raise Failed(f"answered: {c.reply()}")
    except ServerError as e:
        return e.code
    except ConnectionError:
        return "CLOSED"
    except TimeoutError:
        raise Failed(f"silence for {SOON_S} s") from None


FOR_THE_LEADER = ("FENCE", "CLAIM", "-", 1)  # harmless, and no other node answers it


def relays(node):
    """Whether a client that only knows this node is served."""
    try:
        with plain(node) as c:
            c.ask(*FOR_THE_LEADER)
        return True
    except (ServerError, OSError):
        return False


# ---- the leader is cut off ----

@test
def leader_isolated__another_serves_and_nothing_is_lost(t):
    with three(t) as (lan, cluster):
        old = cluster.leader()
        with old.connect(SOON_S) as c:
            lease = open_lease(c)
            acknowledged = {f"l{i}": c.ask("LOCK", "ACQUIRE", lease, f"l{i}")["token"]
                            for i in range(20)}
            lan.isolate(old.host)
            c.send("LOCK", "ACQUIRE", lease, "pending", "REQUEST", 7)
            equal(ends(c), "UNKNOWN")
            check(not status(old)["serving"], "it serves, and nobody hears it")
            new = cluster.leader()
            check(new is not old, "the one cut off leads")
            with new.connect() as other:
                equal(other.ask("LEASE", "RENEW", lease)["status"], "OK")
                first = other.ask("LOCK", "ACQUIRE", lease, "pending", "REQUEST", 7)
                acknowledged["pending"] = first["token"]
                last = other.ask("LOCK", "ACQUIRE", lease, "more")["token"]
                acknowledged["more"] = last
        equal(tokens(new), acknowledged)
        equal(len(set(acknowledged.values())), len(acknowledged))
        equal(last, max(acknowledged.values()))
        lan.heal()
        wait_until(lambda: status(old)["leader"] == new.name, SOON_S, "its return")
        wait_until(lambda: relays(old), SOON_S, "a relay")
        equal(tokens(cluster.leader()), acknowledged)


@test
def leader_isolated__who_listens_there_is_not_left_in_silence(t):
    """A wait in RESP2, and a watch, can't learn otherwise that their node is alone."""
    with three(t) as (lan, cluster):
        old = cluster.leader()
        with old.connect() as holder, plain(old) as waiter, \
                old.connect(SOON_S) as watcher:
            holder.ask("LOCK", "ACQUIRE", open_lease(holder), "db")
            lease = open_lease(waiter)
            watcher.ask("LOCK", "WATCH", "PREFIX", "none")
            waiter.send("LOCK", "ACQUIRE", lease, "db", "WAIT", 1000)
            wait_until(lambda: holder.ask("LOCK", "SHOW", "db").get("waiters"))
            lan.isolate(old.host)
            equal([ends(waiter), ends(watcher)], ["CLOSED", "CLOSED"])


@test
def leader_isolated__for_a_moment__events_come_once(t):
    """Who listened at the old leader and asks on is served by the new one. It must not be
    told by both, and least of all in the middle of each other's bytes."""
    with three(t) as (lan, cluster):
        old = cluster.leader()
        with plain(old) as c:
            c.ask("HELLO", 3)
            lease = open_lease(c)
            token = c.ask("LOCK", "ACQUIRE", lease, "db")["token"]
            lan.isolate(old.host)
            wait_until(lambda: not status(old)["serving"], SOON_S, "the old one's end")
            new = cluster.leader()
            lan.heal()
            wait_for_agreement(cluster)
            with contextlib.suppress(ConnectionError):
                c.ask("LEASE", "RENEW", lease)
                new.ask("LOCK", "BREAK", "db", token)
                equal(c.push()[1], "ended")
                ended = status(new)["commit_index"]
                wait_until(lambda: status(old)["applied_index"] >= ended)
                equal((c.ask("PING"), c.pushes), ("PONG", []))


# ---- cuts in one direction ----

def single_server(cluster):
    """The node that serves if there is exactly one, whatever the others think."""
    serving = [n for n in cluster.nodes if status(n)["serving"]]
    return serving[0] if len(serving) == 1 and serving[0].serves() else None


def highest_term(cluster):
    return max(status(n)["term"] for n in cluster.nodes)


def cut_one_way(lan, cluster, victim, deaf):
    """Cuts one direction of all the victim's cables, heals it, and returns how many terms
    that cost."""
    term = highest_term(cluster)
    for other in others_than(cluster, victim):
        lan.cut(*((other.host, victim.host) if deaf else (victim.host, other.host)))
    time.sleep(4 * ELECTION_MS / 1000)  # timeouts: runaway terms would show
    serving = wait_until(lambda: single_server(cluster), SOON_S, "one that serves")
    with serving.connect() as c:
        c.ask("LOCK", "TRY", open_lease(c), "db", "MAXHOLD", 1)
    lan.heal()
    wait_for_agreement(cluster)
    wait_until(lambda: all(relays(n) for n in cluster.nodes), SOON_S, "service by all")
    return highest_term(cluster) - term


def one_way(t, deaf):
    with three(t) as (lan, cluster):
        leader = cluster.leader()
        follower = others_than(cluster, leader)[0]
        costs = [cut_one_way(lan, cluster, victim, deaf) for victim in (follower, leader)]
        check(max(costs) <= TERMS_MAX, f"terms run away: {costs}")


@test
def one_way__a_node_that_hears_nobody(t):
    """First a follower, then the leader, which must notice that nobody follows it."""
    one_way(t, deaf=True)


@test
def one_way__a_node_whom_nobody_hears(t):
    one_way(t, deaf=False)


# ---- a follower is cut off ----

@test
def follower_isolated__its_clients_are_answered(t):
    with three(t) as (lan, cluster):
        leader = cluster.leader()
        cut = others_than(cluster, leader)[0]
        with plain(cut) as idle, plain(cut) as waiter, leader.connect() as holder:
            holder.ask("LOCK", "ACQUIRE", open_lease(holder), "db")
            lease = open_lease(waiter)
            idle.ask(*FOR_THE_LEADER)
            waiter.send("LOCK", "ACQUIRE", lease, "db")
            wait_until(lambda: holder.ask("LOCK", "SHOW", "db").get("waiters"))
            lan.isolate(cut.host)
            idle.send(*FOR_THE_LEADER)
            equal([ends(waiter), ends(idle)], ["CLOSED", "CLOSED"])
        with plain(cut) as c, cut.connect() as impatient:
            for connection in (impatient, c):
                connection.send("LOCK", "SHOW", "db")  # nobody can confirm it
                equal(ends(connection), "NOLEADER")
            check(leader.serves(), "the others are no longer served")
            lan.heal()
            wait_until(lambda: relays(cut), SOON_S, "a relay")
            check(c.ask("LOCK", "SHOW", "db"), "the refused connection is of no use")


@test
def black_hole__a_follower_catches_up(t):
    with three(t) as (lan, cluster):
        leader = cluster.leader()
        lost = others_than(cluster, leader)[0]
        with leader.connect() as c:
            lease = open_lease(c)
            term = status(leader)["term"]
            lan.isolate(lost.host)
            until = time.monotonic() + 5
            held = {}
            while time.monotonic() < until:
                name = f"l{len(held)}"
                held[name] = c.ask("LOCK", "ACQUIRE", lease, name)["token"]
                time.sleep(0.02)
            behind = status(leader)["commit_index"]
            check(status(lost)["applied_index"] < behind, "the hole was none")
            lan.heal()
            wait_until(lambda: status(lost)["applied_index"] >= behind, SOON_S,
                       "catching up")
            equal(tokens(cluster.leader()), held)
            check(status(lost)["term"] - term <= TERMS_MAX, "terms ran away")


@test
def slow_link__a_follower_gets_a_large_state_while_others_write(t):
    """Eight seconds' worth of it; the log that the follower would need is gone."""
    with Lan(3) as lan, Cluster(t.program, t.path("c"), 3, flags=SMALL_LOG,
                                hosts=lan.hosts) as cluster:
        leader = cluster.leader()
        behind = others_than(cluster, leader)[0]
        behind.kill()
        with leader.connect() as c:
            for i in range(500):
                c.send("FENCE", "SET", f"register/{i % 130}", 1, f"{i} " + "x" * 60000)
                equal(c.reply()["status"], "OK")
            term, state = status(leader)["term"], status(leader)["commit_index"]
            behind.host.slow_down("8mbit")
            behind.start()
            lease = open_lease(c)
            held = {"db": c.ask("LOCK", "ACQUIRE", lease, "db")["token"]}
        writes = 0
        while not has(behind, state):
            with contextlib.suppress(ServerError, OSError):  # a busy machine may elect
                equal(cluster.leader().ask("LEASE", "RENEW", lease)["status"], "OK")
                writes += 1
        check(writes > 0, "nothing was written meanwhile")
        leader = cluster.leader()
        wait_until(lambda: has(behind, status(leader)["commit_index"]), SOON_S,
                   "catching up")
        check(status(behind)["term"] - term <= TERMS_MAX, "terms ran away")
        leader.kill()  # now the slow one has to agree
        equal(tokens(cluster.leader()), held)


def has(node, index):
    """Whether the node has run that entry; not while it starts."""
    with contextlib.suppress(OSError):
        return status(node)["applied_index"] >= index
    return False


@test
def power_cut__a_node_that_vanished_comes_back(t):
    """Its old connections were never ended: they must not stand in its way."""
    with three(t) as (lan, cluster):
        victim = cluster.leader()
        lan.isolate(victim.host)
        victim.kill()
        wait_until(lambda: not sockets(victim.host), SOON_S, "its last words")
        cluster.leader()
        lan.heal()
        victim.start()
        wait_until(lambda: relays(victim), SOON_S, "the node's return")
        leader = wait_for_agreement(cluster)
        wait_until(lambda: heard_from(leader, victim), SOON_S, "its voice")


def heard_from(leader, node):
    """Whether the leader knows that the node has all there is."""
    said = status(leader)
    match = {m["name"]: m["match"] for m in said["members"]}
    return match[node.name] >= said["commit_index"]


def sockets(host):
    """Connections of a host, of processes that are gone as well."""
    done = subprocess.run([*host.enter, "ss", "-Htn", "state", "connected"], text=True,
                          capture_output=True, check=True)
    return [line for line in done.stdout.splitlines() if "TIME-WAIT" not in line]


# ---- clients that vanish ----

@contextlib.contextmanager
def one_with_clients(t):
    with Lan(2) as lan, Cluster(t.program, t.path("c"), 1, hosts=lan.hosts) as cluster:
        yield lan, cluster.nodes[0], lan.hosts[1]


def connect_from(host, node, resp3=True):
    with host.inside():
        return node.connect() if resp3 else plain(node)


@test
def half_open__locks_move_on_by_ttl(t):
    with one_with_clients(t) as (lan, node, away), contextlib.ExitStack() as stack:
        holder, pushed = (stack.enter_context(connect_from(away, node)) for _ in range(2))
        blocked = stack.enter_context(connect_from(away, node, resp3=False))
        here = stack.enter_context(node.connect(SOON_S))
        first = holder.ask("LOCK", "ACQUIRE", open_lease(holder, SHORT_MS), "db")["token"]
        pushed.ask("LOCK", "ACQUIRE", open_lease(pushed, SHORT_MS), "db")
        blocked.send("LOCK", "ACQUIRE", open_lease(blocked, SHORT_MS), "db")
        wait_until(lambda: here.ask("LOCK", "SHOW", "db").get("waiters") == 2)
        lan.isolate(away)
        lease = open_lease(here)
        equal(here.ask("LOCK", "ACQUIRE", lease, "db")["status"], "QUEUED")
        _, kind, event = here.push()
        equal((kind, event["lease"]), ("granted", lease))
        check(event["token"] > first, "tokens went back")
        contains(here.ask("INFO"), "connected_clients:4\r\n")
        equal(here.ask("LOCK", "SHOW", "db").get("waiters"), None)


@test
def half_open__memory_stays_bounded(t):
    """500 that vanished, some of which had wanted to know everything."""
    n, watchers, events, value = 500, 32, 3000, "v" * 4000
    with one_with_clients(t) as (lan, node, away), contextlib.ExitStack() as stack:
        for i in range(n):
            c = stack.enter_context(connect_from(away, node))
            open_lease(c, 1500)
            if i < watchers:
                c.ask("LOCK", "WATCH")
        here = stack.enter_context(node.connect(SOON_S))
        lease = open_lease(here)
        token = here.ask("LOCK", "ACQUIRE", lease, "db")["token"]
        before = node.memory()
        lan.isolate(away)
        wait_until(lambda: "leases:1\r\n" in here.ask("INFO"), SOON_S, "the leases' end")
        for i in range(events):
            here.send("LOCK", "VALUE", lease, "db", token, value)
            if i >= 100:
                equal(here.reply()["status"], "OK")
        for _ in range(100):
            here.reply()
        grown = node.memory() - before
        contains(here.ask("INFO"), f"connected_clients:{n + 1}\r\n")
        log = 2 * events * len(value)  # its last entries are kept in memory
        check(grown < n * 4096 + log + watchers * 3 * 2**20, f"{grown} bytes more")


@test
def half_open__the_kernel_is_told_to_look_after_them(t):
    """Connections with clients, between nodes, and of a relay: what their options say."""
    with three(t) as (_, cluster), contextlib.ExitStack() as stack:
        leader = cluster.leader()
        relay = others_than(cluster, leader)[0]
        stack.enter_context(plain(leader))
        stack.enter_context(plain(relay)).ask(*FOR_THE_LEADER)
        for node in (leader, relay):
            found = [stack.enter_context(s) for s in connections_of(node)]
            for s in found:
                after = notices_death_after_s(s)
                check(after <= 60, f"{s.getsockname()} to {s.getpeername()}: {after} s")
            if not found:
                skip("one can't look at the sockets of others here")
            check(len(found) >= 4, f"only {len(found)} connections")


def notices_death_after_s(s):
    """As the kernel does it: idle, then probes, until they have been unanswered for the
    user timeout when the next one is due."""
    if not s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE):
        return float("inf")
    idle, interval, user_ms = (
        s.getsockopt(socket.IPPROTO_TCP, option) for option in
        (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT))
    if user_ms == 0:
        return float("inf")  # what was sent is repeated for a quarter of an hour
    return max(idle, user_ms / 1000) + interval


def connections_of(node):
    """Copies of the node's connected TCP sockets."""
    libc, pidfd, found = ctypes.CDLL(None), os.pidfd_open(node.pid), []
    for name in os.listdir(f"/proc/{node.pid}/fd"):
        fd = libc.syscall(SYS_PIDFD_GETFD, pidfd, int(name), 0)
        if fd < 0:
            continue
        try:
            s = socket.socket(fileno=fd)
        except OSError:
            os.close(fd)
            continue
        try:
            s.getpeername()
            found.append(s)
        except OSError:
            s.close()
    os.close(pidfd)
    return found


# ---- the client library ----

JOB = r"""
echo $$ >"$1/pid"; echo "$PICKET_TOKEN" >"$1/token"
trap '' TERM
while :; do echo >"$1/beat"; sleep 0.02; done
"""


@contextlib.contextmanager
def job_elsewhere(t, ttl):
    """A job under lock `db` on a host of its own."""
    with three(t, clients=1) as (lan, cluster):
        away = lan.hosts[3]
        job = t.write("job.sh", JOB)
        words = " ".join(away.enter)
        program = t.program
        t.program = t.write("picket-away", f'#!/bin/sh\nexec {words} {program} "$@"\n',
                            0o755)
        run = t.start("run", "--on", cluster.url, "--ttl", ttl, "--kill-after", "300ms",
                      "db", "--", "sh", job, t.dir)
        t.program = program
        wait_until(lambda: t.read("token") and t.read("beat"), what="the job's start")
        yield lan, cluster, away, run


def wait_for_renewal(cluster):
    """Until the lease that holds `db` has more time left than it had."""
    least = float("inf")

    def renewed():
        nonlocal least
        row, = cluster.leader().ask("LOCK", "SHOW", "db")["rows"]
        least = min(least, row["left_ms"])
        return row["left_ms"] > least + 1000
    wait_until(renewed, what="a renewal")


@test
def job__survives_a_short_cut(t):
    with job_elsewhere(t, "12s") as (lan, cluster, away, run):
        leader, pid = cluster.leader(), int(t.read("pid"))
        token = int(t.read("token"))
        equal(tokens(leader), {"db": token})
        lan.part([away], [leader.host])
        time.sleep(0.7)
        lan.heal()
        wait_for_renewal(cluster)
        equal((run.poll(), alive(pid)), (None, True))
        equal(tokens(cluster.leader()), {"db": token})


@test
def job__takes_a_detour_when_only_the_leader_is_out_of_reach(t):
    with job_elsewhere(t, "30s") as (lan, cluster, away, run):
        leader, pid = cluster.leader(), int(t.read("pid"))
        token = int(t.read("token"))
        lan.part([away], [leader.host])
        wait_for_renewal(cluster)  # through a follower
        equal((run.poll(), alive(pid)), (None, True))
        equal(tokens(cluster.leader()), {"db": token})


@test
def job__is_dead_before_the_lock_moves_on(t):
    with job_elsewhere(t, "10s") as (lan, cluster, away, run):
        leader, pid = cluster.leader(), int(t.read("pid"))
        with leader.connect(SOON_S) as next_one:
            lease = open_lease(next_one)
            equal(next_one.ask("LOCK", "ACQUIRE", lease, "db")["status"], "QUEUED")
            lan.isolate(away)
            cut_ns = time.time_ns()
            _, kind, event = next_one.push()
            granted_ns = time.time_ns()
            lived = alive(pid)
            beat_ns = os.stat(t.path("beat")).st_mtime_ns
            equal(kind, "granted")
            check(not lived, "the job runs on beside the next holder")
            check(cut_ns < beat_ns < granted_ns, "the job's last sign of life is later")
            check(event["token"] > int(t.read("token")), "tokens went back")
        equal(run.wait(SOON_S), 123)


main()

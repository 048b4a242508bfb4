# SPDX-License-Identifier: MIT
"""What a node counts and shows to monitors, and `picket bench`, which measures it."""
import http.client
import json
import os
import re
import time

from cluster import READY_S, Cluster, Connection, ServerError
from tap import Failed, check, contains, equal, main, skip, test, wait_until

LONG_MS = 60000
OPERATIONS = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                          "../../docs/operations.md")


def three(t):
    return Cluster(t.program, t.path("c"), 3)


def open_lease(c, ttl_ms=LONG_MS):
    return c.ask("LEASE", "OPEN", ttl_ms)["lease"]


def acquire(c, lease, name):
    return c.ask("LOCK", "ACQUIRE", lease, name)["token"]


def refusal(c, *words):
    """The error that must come."""
    try:
        reply = c.ask(*words)
    except ServerError as e:
        return e
    raise Failed(f"{words} was answered: {reply}")


def shown(node):
    """The text of /metrics."""
    c = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=READY_S)
    c.request("GET", "/metrics")
    text = c.getresponse().read().decode()
    c.close()
    return text


METRIC_ROW = r"^\| `((?:picket|process)_[a-z_]+)` \| (\w+) \| (.*?) ?\|"


@test
def metrics__are_those_of_the_document(t):
    """The table in docs/operations.md has each name, type and label, and no other."""
    with open(OPERATIONS, encoding="utf-8") as f:
        rows = re.findall(METRIC_ROW, f.read(), re.MULTILINE)
    told = {(name, kind, *sorted(re.findall("[a-z]+", labels)))
            for name, kind, labels in rows}
    with Cluster(t.program, t.path("c"), 1, flags=["--metrics-prefix", "jobs/"]) as c:
        with c.nodes[0].connect() as k:
            acquire(k, open_lease(k), "jobs/1")
        text = shown(c.nodes[0])
    found = set()
    for name, kind, samples in re.findall(
            r"^# TYPE (\S+) (\S+)\n((?:[^#].*\n)*)", text, re.MULTILINE):
        labels = set(re.findall(r'[{,]([a-z]+)="', samples)) - {"le"}
        found.add((name, kind, *sorted(labels)))
    equal(sorted(found ^ told), [])
    contains(text, 'picket_lock_acquire_wait_seconds_count{prefix="jobs/"} 1\n')


@test
def metrics__count_what_they_say(t):
    with three(t) as cluster:
        leader, follower = cluster.leader(), cluster.followers()[0]
        before = {name: leader.metric(name) for name in (
            "picket_commands_total", "picket_entries_total", "picket_ticks_total",
            "picket_bad_requests_total", "picket_requests_total", "picket_stored_bytes")}

        def grown(name):
            return leader.metric(name) - before[name]
        with Connection(leader.port) as c:
            # The others wait for the answer to the first, and count once all the same.
            c.socket.sendall(b"LEASE OPEN 60000\r\n" + b"PING\r\n" * 5)
            for _ in range(6):
                c.reply()
            equal(grown("picket_requests_total"), 6)
        with leader.connect() as c, Connection(follower.port) as relayed:
            acquire(c, open_lease(c), "db")
            for words in ("FROB", "LOCK FROB", "LOCK TRY", "LEASE OPEN 1"):
                refusal(c, *words.split())
            equal(grown("picket_bad_requests_total"), 4)
            check(grown("picket_commands_total") >= 2, "the commands are not counted")
            check(grown("picket_entries_total") >= 2, "the entries are not counted")
            check(grown("picket_stored_bytes") >= len("db"), "the bytes are not counted")
            equal(leader.metric("picket_locks"), 1)
            equal(leader.metric("picket_reigns_total"), 1)
            check(leader.metric("picket_last_index") > 1, "no entry")
            check(leader.metric("process_cpu_seconds_total") > 0, "no time was used")
            c.ask("LOCK", "WATCH")
            equal(leader.metric("picket_watchers"), 1)
            c.ask("LOCK", "UNWATCH")
            equal(leader.metric("picket_watchers"), 0)
            entries = leader.metric("picket_entries_total")
            relayed.ask("HELLO", 3)
            equal(relayed.ask("LOCK", "SHOW", "db")["holders"], 1)
            equal(follower.metric("picket_relays"), 0)  # it answers by itself,
            equal(follower.metric("picket_reads_total"), 1)
            check(follower.metric("picket_read_rounds_total") > 0, "nobody was asked")
            equal(leader.metric("picket_entries_total"), entries)  # without the log
            open_lease(relayed)
            equal(follower.metric("picket_relays"), 1)
            equal(relayed.ask("LOCK", "SHOW", "db")["holders"], 1)
            equal(follower.metric("picket_reads_total"), 1)
            open_lease(c, 100)  # ends by itself: an entry for a deadline alone
            wait_until(lambda: grown("picket_ticks_total") > 0, what="a tick")
            wait_until(lambda: leader.metric("picket_lease_expired_total") == 1)
        for n in cluster.followers():
            n.stop()
        with leader.connect() as c:
            c.send("LEASE", "OPEN", LONG_MS)  # in the log, and nobody else has it
            wait_until(lambda: leader.metric("picket_serving") == 0, what="its end")
            wait_until(lambda: leader.metric("picket_unknown_outcomes_total") == 1)
            wait_until(lambda: leader.metric("picket_leaderless_seconds_total") > 0)
        for n in cluster.nodes:
            n.cont()


@test
def loop_stalls__count_work_and_leave_out_sleep(t):
    with Cluster(t.program, t.path("c"), 1) as cluster:
        n1 = cluster.leader()
        began = time.monotonic()

        def stalls(what):
            return n1.metric("picket_loop_stall_" + what)
        longest = stalls("longest_seconds")  # asked for first: the sum only grows
        before = stalls("seconds_sum")
        check(0 < longest <= before, "the longest is not one of them")
        # With the sleep counted, which is at most a fraction of a second late, this would
        # stay untrue for ever.
        wait_until(lambda: time.monotonic() - began >
                   1 + 2 * (stalls("seconds_sum") - before), what="a loop that sleeps")
        with n1.connect() as c:
            lease = open_lease(c)
            wait_until(lambda: acquire(c, lease, "db") and
                       stalls("seconds_sum") > before, what="time for work")


def taken_in(node):
    """Requests so far, while it leads and has answered nothing that it can't; else None.
    """
    text = shown(node)
    for sample in ("picket_serving 1", "picket_unknown_outcomes_total 0"):
        if f"\n{sample}\n" not in text:
            return None
    return int(re.search(r"^picket_requests_total (\d+)$", text, re.M)[1])


def most_taken_in(t, attempt):
    """Of one connection, when nothing can be answered; None: leadership ended before."""
    with Cluster(t.program, t.path(f"c{attempt}"), 3,
                 flags=["--election-ms", "3000"]) as cluster:
        leader, followers = cluster.leader(), cluster.followers()
        with leader.connect() as c:
            before = taken_in(leader)
            for n in followers:
                n.stop()
            c.socket.sendall(b"LEASE OPEN 60000\r\n" * 5000)
            most = 0
            for _ in range(100):
                now = taken_in(leader)
                if now is None:
                    return None
                most = max(most, now - before)
        return most


@test
def pipeline__is_taken_in_up_to_its_bound(t):
    """What waits for its answer is bounded; the rest stays in the socket."""
    found = (most_taken_in(t, attempt) for attempt in range(5))
    most = next((n for n in found if n is not None), None)
    if most is None:
        skip("this machine is too busy to look at a leader without followers")
    equal(most, 1024)


# ---- picket bench ----

@test
def bench__puts_each_load_on_a_server(t):
    with three(t) as cluster:
        bench = lambda *w: t.picket("bench", "-o", "json", "--time", "200ms", *w)
        for load, unit in (("latency", "pairs"), ("pairs", "pairs"),
                           ("handoff", "hand-offs"), ("renew", "renewals"),
                           ("hold", "locks")):
            count = 0
            while count == 0:  # a busy machine may get nothing done in that time
                done = bench("--on", cluster.url, "--clients", 3, "--holds", 20, load)
                equal((load, done.returncode, done.stderr), (load, 0, ""))
                told = json.loads(done.stdout)
                equal((told["load"], told["unit"], told["errors"]), (load, unit, 0))
                count = told["count"]
        done = bench("--on", cluster.url, "--clients", 4, "--connections", 2, "pairs")
        equal((done.returncode, done.stderr), (0, ""))
        place = cluster.leader().url.replace("picket", "redis")
        equal(bench("--redis", "--on", place, "pairs").returncode, 0)
        done = t.picket("bench", "--on", cluster.url, "-t", "100ms", "latency")
        contains(done.stdout, "pairs in ")
        with cluster.leader().connect() as c:
            equal(len(c.ask("LOCK", "LIST", "COUNT", 1000)["rows"]), 20)  # of hold
            c.ask("CLUSTER", "CONFIGURE", "leases", 1)
        failed = t.picket("bench", "--on", cluster.url, "-t", "100ms", "renew")
        equal(failed.returncode, 1)
        contains(failed.stderr, "LIMIT")


main()

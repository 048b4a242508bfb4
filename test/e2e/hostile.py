# SPDX-License-Identifier: MIT
"""Clients that mean harm, or have bugs (P10): what they can take is bounded, and others
are served meanwhile. Memory is measured, time is not."""
import contextlib
import http.client
import json
import os
import random
import resource
import select
import socket

from cluster import (READY_S, Cluster, Connection, ServerError, dial_small,
                     fields)
from tap import Failed, check, contains, equal, main, test, wait_until

MB = 1024 * 1024
REQUEST_MAX = 1200 * 1024  # bytes of one request; docs of the protocol say so
# Buffers of the kernel are not the server's memory, but allocators keep some back.
SLACK = 24 * MB
# In a build with the address sanitizer, what was freed shall count as free soon.
os.environ["ASAN_OPTIONS"] = ":".join(
    (os.environ.get("ASAN_OPTIONS", ""), "quarantine_size_mb=1",
     "thread_local_quarantine_size_kb=64", "allocator_release_to_os_interval_ms=100"))


def one(t, *flags):
    return Cluster(t.program, t.path("c"), 1, flags=flags)


def honest(node, name="honest"):
    """Somebody who just wants a lock, and gives it back."""
    with Connection(node.port) as c:
        lease = fields(c.ask("LEASE", "OPEN", 10000))["lease"]
        token = fields(c.ask("LOCK", "ACQUIRE", lease, name))["token"]
        c.ask("LOCK", "RELEASE", lease, name, token)
        c.ask("LEASE", "CLOSE", lease)
    return token


def dial(port):
    return socket.create_connection(("127.0.0.1", port), 10)


def rest_of(s):
    """What the other side still says before it closes."""
    got = b""
    with contextlib.suppress(ConnectionError):
        while more := s.recv(65536):
            got += more
    return got


def send_until_full(s, data, most):
    """Sends `data` again and again until the other side takes no more, or `most` bytes
    have gone out; returns how many did."""
    s.setblocking(False)
    sent, at = 0, 0
    while sent < most:
        # Taking nothing for a whole second means that it has stopped reading.
        if not select.select([], [s], [], 1)[1]:
            break
        try:
            n = s.send(data[at:])
        except BlockingIOError:
            continue
        except ConnectionError:
            break
        sent, at = sent + n, (at + n) % len(data)
    return sent


def sample(node, name):
    """One number of the node's metrics."""
    c = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=READY_S)
    with contextlib.closing(c):
        c.request("GET", "/metrics")
        text = c.getresponse().read().decode()
    return int(next(l for l in text.splitlines() if l.startswith(name + " ")).split()[1])


@test
def garbage__is_answered_and_the_door_closed(t):
    rng = random.Random(7)
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        tokens = [honest(n1)]
        for _ in range(200):
            kind = rng.randrange(4)
            data = rng.randbytes(rng.randrange(1, 3000))
            if kind == 1:
                data = b"*" + data
            elif kind == 2:
                data = b"*3\r\n$5\r\nLEASE\r\n$" + data
            elif kind == 3:
                data = b"*2\r\n$4\r\nPING\r\n$5\r\n" + data[:5] + b"\r\n" + data
            for port in (n1.port, n1.raft_port, n1.http_port):
                with dial(port) as s, contextlib.suppress(OSError):
                    s.sendall(data)
                    s.shutdown(socket.SHUT_WR)
                    rest_of(s)
        tokens.append(honest(n1))
        check(tokens[0] < tokens[1], "tokens don't grow")
        with Connection(n1.port) as c:
            c.socket.sendall(b"*1\r\n+OK\r\n")
            said = rest_of(c.socket)
            check(said.startswith(b"-ERR ") and said.endswith(b"\r\n"), repr(said))
        check(n1.alive(), "the node is gone")


@test
def sizes__beyond_the_limits_are_refused_before_they_cost_memory(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        honest(n1)
        before = n1.memory()
        for head in (b"*8301\r\n", b"*99999999999\r\n", b"*1\r\n$1300000\r\n",
                     b"*1\r\n$99999999999999999999\r\n", b"*2\r\n$-1\r\n",
                     b"*3\r\n$600000\r\n" + b"x" * 600000 + b"\r\n$700000\r\n",
                     b"x" * 5000):
            with dial(n1.port) as s:
                with contextlib.suppress(ConnectionError):
                    s.sendall(head)
                said = rest_of(s)
                check(said.startswith(b"-ERR "), f"{head[:40]}: {said!r}")
        # A request as large as can be is read, though nothing wants it.
        with Connection(n1.port) as c:
            try:
                raise Failed(str(c.ask("FROB", "y" * (REQUEST_MAX - 100))))
            except ServerError as e:
                equal(e.code, "ERR")
            equal(c.ask("PING"), "PONG")
        honest(n1)
        check(n1.memory() - before < SLACK, f"{n1.memory() - before} bytes more")


@test
def requests__that_never_end_keep_nobody_from_being_served(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        honest(n1)
        before = n1.memory()
        with contextlib.ExitStack() as open_ones:
            for i in range(200):
                s = open_ones.enter_context(dial(n1.port))
                s.sendall(b"*3\r\n$5\r\nLEASE\r\n$4\r\nOP"[:5 + i % 20])
            for i in range(20):
                s = open_ones.enter_context(dial(n1.port))
                s.sendall(b"*2\r\n$4\r\nPING\r\n$1100000\r\n" + b"x" * 1000000)
                honest(n1)
            grown = n1.memory() - before
            check(grown < 20 * 3 * MB + SLACK, f"{grown} bytes more")
        wait_until(lambda: honest(n1) and n1.memory() - before < SLACK,
                   what="the memory's return")


@test
def unfinished_request__is_given_up_after_its_time_and_not_before(t):
    """A request has half a minute to arrive. While the node itself does not read on, that
    is not the client's time."""
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c:
            c.ask("FENCE", "SET", "big", 1, "v" * 60000)
        with dial(n1.port) as slow, Connection(n1.port) as c:
            n = 400
            c.socket.sendall(b"FENCE GET big\r\n" * n)
            select.select([c.socket], [], [])
            # It does not read its answers, so the node stops in the middle of this.
            c.socket.sendall(b"PING before\r\nPING af")
            slow.sendall(b"*2\r\n$4\r\nPING\r\n$9\r\nunfini")
            slow.settimeout(120)
            equal(rest_of(slow), b"")
            equal(sample(n1, "picket_slow_connections_closed_total"), 1)
            for _ in range(n):
                equal(len(fields(c.reply())["value"]), 60000)
            equal(c.reply(), "before")
            for _ in range(200):  # it looks for slow ones a few times a second
                honest(n1)
            c.socket.sendall(b"ter\r\n")
            equal(c.reply(), "after")


@test
def watcher__that_does_not_read_gets_a_gap(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c, contextlib.ExitStack() as open_ones:
            lease = c.ask("LEASE", "OPEN", 60000)["lease"]
            token = c.ask("LOCK", "ACQUIRE", lease, "db")["token"]
            for _ in range(10):
                watcher = open_ones.enter_context(n1.connect())
                watcher.ask("LOCK", "WATCH", "PREFIX", "d")
            before, value, n = n1.memory(), "v" * 60000, 600
            for i in range(n):
                c.ask("LOCK", "VALUE", lease, "db", token, value)
            honest(n1)
            grown = n1.memory() - before
            # The log is kept until the next snapshot; ten times that would be all events.
            check(grown < n * 2 * len(value) + SLACK, f"{grown} bytes more")
            # It reads at last: what fitted, and with the next event after that, a gap.
            kinds = []

            def gap():
                c.ask("LOCK", "VALUE", lease, "db", token, "more")
                watcher.ask("PING")
                kinds.extend(push[1] for push in watcher.pushes)
                watcher.pushes.clear()
                return "gap" in kinds
            wait_until(gap, what="a gap")
            kept = kinds.index("gap")
            check(0 < kept < n, f"{kept} of {n} events were kept")
            equal(kinds.count("gap"), 1)
            check(n1.metric("picket_watch_gaps_total") >= 1, "the gap is not counted")


@test
def owner__that_does_not_read_is_disconnected(t):
    """Of a lease: what it is told must not be left out, so it can't go on unread."""
    n = 200  # grants of 60 KB each: more than the kernel takes
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as holder, n1.connect() as deaf:
            lease = holder.ask("LEASE", "OPEN", 60000)["lease"]
            theirs = deaf.ask("LEASE", "OPEN", 60000)["lease"]
            for i in range(n):
                holder.ask("LOCK", "ACQUIRE", lease, f"l{i}")
                deaf.ask("LOCK", "ACQUIRE", theirs, f"l{i}", "VALUE", "v" * 60000)
            before = n1.metric("picket_slow_connections_closed_total")
            holder.ask("LEASE", "CLOSE", lease)
            wait_until(lambda: n1.metric("picket_connections") == 1, what="its end")
            equal(n1.metric("picket_slow_connections_closed_total"), before + 1)
            contains(n1.words(), "event=slow-client")
            # It has lost the connection, and nothing else.
            equal(holder.ask("LEASE", "RENEW", theirs)["status"], "OK")
            equal(holder.ask("LEASE", "SHOW", theirs, "COUNT", 1)["holders"], n)


@test
def request__that_takes_too_long_is_closed(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with dial(n1.port) as half, Connection(n1.port) as idle:
            half.sendall(b"*2\r\n$4\r\nPING\r\n$5\r\nhe")
            half.settimeout(120)
            equal(rest_of(half), b"")
            equal(idle.ask("PING"), "PONG")  # who has begun nothing may take its time
            equal(n1.metric("picket_slow_connections_closed_total"), 1)


@contextlib.contextmanager
def memory_that_counts():
    """What is started here has all the memory that it asks for, used or not."""
    before = os.environ.get("MALLOC_PERTURB_", "0")
    os.environ["MALLOC_PERTURB_"] = "107"
    try:
        yield
    finally:
        os.environ["MALLOC_PERTURB_"] = before


@test
def requests__that_are_unfinished_are_bounded_together(t):
    """256 MiB for all, also for those that arrive at once; then large ones are closed,
    and small ones are served."""
    most = 256 * MB
    with contextlib.ExitStack() as stack:
        with memory_that_counts():
            n1 = stack.enter_context(one(t)).nodes[0]
        honest(n1)
        before = n1.memory()
        many = [stack.enter_context(dial(n1.port)) for _ in range(400)]
        honest(n1)  # it has taken all of them
        n1.stop()
        for s in many:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * MB)
            s.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                s.send(b"*2\r\n$4\r\nPING\r\n$1200000\r\n" + b"x" * MB)
        n1.cont()
        # Long before the time for a request is over, which would close all of them.
        wait_until(lambda: n1.metric("picket_slow_connections_closed_total") >= 100,
                   what="the end of those that are too many")
        grown = n1.peak_memory() - before
        check(grown < most + most // 5 + SLACK, f"{grown} bytes more")
        honest(n1)


@test
def reader__that_never_reads_is_not_read_from(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c:
            lease = c.ask("LEASE", "OPEN", 60000)["lease"]
            token = c.ask("LOCK", "ACQUIRE", lease, "db", "VALUE", "v" * 60000)["token"]
        before = n1.memory()
        with contextlib.ExitStack() as open_ones:
            for words in (b"LOCK SHOW db\r\n", b"INFO\r\n", b"LOCK LIST\r\n",
                          b"FENCE CLAIM r %d\r\n" % token, b"PING\r\n"):
                s = open_ones.enter_context(dial(n1.port))
                sent = send_until_full(s, words * 1000, 64 * MB)
                check(sent < 64 * MB, f"{words}: {sent} bytes were taken in")
            honest(n1)
            grown = n1.memory() - before
            check(grown < 96 * MB, f"{grown} bytes more")
        honest(n1)


def large_locks(node, n, size=60000):
    """Locks with large values, held for long."""
    with node.connect() as c:
        lease = c.ask("LEASE", "OPEN", 600000)["lease"]
        for i in range(n):
            c.ask("LOCK", "ACQUIRE", lease, f"large/{i:03}", "VALUE", "v" * size)
        return lease


@test
def lists__of_large_values_come_in_pages_that_say_so(t):
    n = 30
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        lease = large_locks(n1, n)
        names = [f"large/{i:03}" for i in range(n)]
        with n1.connect() as c:
            found, after, pages = [], (), 0
            while after is not None:
                page = c.ask("LOCK", "LIST", "COUNT", 1000, *after)
                rows = [r["name"] for r in page["rows"]]
                check(len(rows) * 60000 < 400 * 1024, f"{len(rows)} rows in a page")
                found, pages = found + rows, pages + 1
                after = ("AFTER", rows[-1]) if page.get("more") else None
            equal(found, names)
            check(pages > 3, f"{pages} pages")
            shown = c.ask("LEASE", "SHOW", lease, "COUNT", 1000)
            equal((shown["holders"], shown["more"]), (n, 1))
            check(len(shown["rows"]) < n, "all rows")
        # Who lists locks for people gets all of them.
        listed = t.picket("ls", "--on", n1.url, "-q").stdout.split()
        equal(listed, names)
        equal(len(json.loads(t.picket("ls", "--on", n1.url, "-o", "json").stdout)), n)


@test
def readers__that_never_read_large_answers_cost_little(t):
    """What 28 bytes can ask for: 60 MB of rows, a large value, a blocker's value."""
    with one(t) as cluster, contextlib.ExitStack() as open_ones:
        n1 = cluster.nodes[0]
        lease = large_locks(n1, 300)
        with n1.connect() as c:
            c.ask("FENCE", "SET", "large", 1, "v" * 60000)
        honest(n1)
        before = n1.memory()
        for words in (b"LOCK LIST COUNT 1000\r\n", b"FENCE GET large\r\n",
                      b"LOCK TRY %d large/001\r\n" % lease,
                      b"LEASE SHOW %d COUNT 1000\r\n" % lease,
                      b"LOCK SHOW large/001 COUNT 1\r\n"):
            for _ in range(10):
                s = open_ones.enter_context(dial(n1.port))
                s.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    s.send(words * 1000)
        for _ in range(50):
            honest(n1)
        wait_until(lambda: n1.metric("picket_unsent_bytes") > 0, what="unread answers")
        grown = n1.peak_memory() - before
        check(grown < 50 * MB + SLACK, f"{grown} bytes more")
        check(n1.metric("picket_unsent_bytes") < 50 * MB, "too much is kept")


@test
def answers__that_nobody_reads_are_bounded_together(t):
    """256 MiB for all; then those that leave much unread are closed, others served."""
    most = 256 * MB
    with one(t) as cluster, contextlib.ExitStack() as open_ones:
        n1 = cluster.nodes[0]
        with n1.connect() as c:
            c.ask("CLUSTER", "CONFIGURE", "value_bytes", MB)
            c.ask("FENCE", "SET", "large", 1, "v" * (MB - 100))
        honest(n1)
        before = n1.memory()
        for _ in range(400):
            s = open_ones.enter_context(dial_small(n1.port))
            s.sendall(b"FENCE GET large\r\n" * 3)
        wait_until(lambda: n1.metric("picket_slow_connections_closed_total") >= 100,
                   what="the end of those that are too many")
        grown = n1.peak_memory() - before
        check(grown < most + most // 5 + SLACK, f"{grown} bytes more")
        check(most // 2 < n1.metric("picket_unsent_bytes") <= most, "miscounted")
        honest(n1)
        open_ones.close()
        wait_until(lambda: n1.metric("picket_unsent_bytes") == 0, what="nothing unread")


@test
def answers__that_grew_after_they_were_asked_for_are_bounded(t):
    with Cluster(t.program, t.path("c"), 3, flags=["--election-ms", "5000"]) as cluster:
        leader, followers = cluster.leader(), cluster.followers()
        with leader.connect() as writer, dial_small(leader.port) as s:
            writer.ask("CLUSTER", "CONFIGURE", "value_bytes", MB)
            writer.ask("FENCE", "SET", "r", 1, "small")
            closed = leader.metric("picket_slow_connections_closed_total")
            taken = sample(leader, "picket_requests_total")
            for n in followers:
                n.stop()
            writer.send("FENCE", "SET", "r", 1, "v" * (MB - 100))
            wait_until(lambda: sample(leader, "picket_requests_total") == taken + 1)
            s.sendall(b"FENCE GET r\r\n" * 30)  # for each of which little was paid
            wait_until(lambda: sample(leader, "picket_requests_total") == taken + 31)
            for n in followers:
                n.cont()
            wait_until(lambda: leader.metric("picket_slow_connections_closed_total") >
                       closed, what="its end")
            equal(writer.reply()["status"], "OK")
        contains(leader.words(), "event=slow-client")


@test
def requests_in_flight__of_one_client_are_bounded(t):
    with Cluster(t.program, t.path("c"), 3, flags=["--election-ms", "2000"]) as cluster:
        leader, followers = cluster.leader(), cluster.followers()

        def taken():
            """Requests that were proposed, or were to be and then refused."""
            return sum(sample(leader, f"picket_commands_{word}total")
                       for word in ("", "refused_"))
        with Connection(leader.port) as c:
            equal(c.ask("PING"), "PONG")
            for n in followers:
                n.stop()  # nothing is answered any more
            before = taken()
            c.socket.sendall(b"FENCE GET none\r\n" * 3000)
            wait_until(lambda: sample(leader, "picket_serving") == 0,
                       what="the leader to give up")
            got = taken() - before
            check(512 < got <= 1024, f"{got} requests were taken in")
        for n in followers:
            n.cont()


@test
def relay__keeps_little_for_a_side_that_does_not_read(t):
    with Cluster(t.program, t.path("c"), 3, flags=["--election-ms", "2000"]) as cluster:
        leader, (follower, _) = cluster.leader(), cluster.followers()
        with leader.connect() as c:
            c.ask("FENCE", "SET", "big", 1, "v" * 60000)
        honest(follower)
        before = follower.memory()
        # The client does not read: 180 MB of answers, of which the follower keeps little.
        asked = sample(leader, "picket_requests_total")
        with dial(follower.port) as s:
            s.sendall(b"FENCE GET big TOKEN 1\r\n" * 3000)  # the leader's to answer
            wait_until(lambda: sample(leader, "picket_requests_total") > asked + 50)
            for _ in range(100):
                honest(follower)
            grown = follower.memory() - before
            check(grown < SLACK, f"{grown} bytes more")
        # The leader does not read: the follower takes no more than it can keep.
        with dial(follower.port) as s:
            s.sendall(b"FENCE CLAIM big 1\r\n")
            check(s.recv(1) == b"*", "not relayed")
            leader.stop()
            sent = send_until_full(s, b"FENCE CLAIM big 1\r\n" * 4096, 64 * MB)
            leader.cont()
            check(sent < 64 * MB, f"{sent} bytes were taken in")


@test
def connections__beyond_the_limit_are_told_so(t):
    with one(t, "--connections", "20") as cluster, contextlib.ExitStack() as open_ones:
        n1 = cluster.nodes[0]
        first = open_ones.enter_context(Connection(n1.port))
        equal(first.ask("PING"), "PONG")
        inside = [first]
        refused = 0
        for _ in range(200):
            c = open_ones.enter_context(Connection(n1.port))
            ready = select.select([c.socket], [], [], 0 if len(inside) < 15 else 0.2)[0]
            if not ready:
                inside.append(c)
                continue
            said = rest_of(c.socket)
            check(said.startswith(b"-OVERLOAD too many connections"), repr(said))
            refused += 1
            if refused == 100:
                break
        equal((len(inside), refused), (20, 100))
        equal(n1.metric("picket_connections_refused_total"), 100)
        for c in inside:
            equal(c.ask("PING"), "PONG")
        lease = fields(first.ask("LEASE", "OPEN", 10000))["lease"]
        first.ask("LOCK", "ACQUIRE", lease, "db")
        inside.pop().close()
        wait_until(lambda: _served(n1), what="room for one more")


def _served(node):
    try:
        return honest(node)
    except (ServerError, ConnectionError):
        return None


@test
def idle_connections__are_cheap(t):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = min(2000, hard - 100)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n + 100), hard))
    with one(t) as cluster, contextlib.ExitStack() as open_ones:
        n1 = cluster.nodes[0]
        honest(n1)
        before = n1.memory()
        for _ in range(n):
            open_ones.enter_context(dial(n1.port))
        honest(n1)
        with Connection(n1.port) as c:
            contains(c.ask("INFO"), f"connected_clients:{n + 1}\r\n")
        check(n1.memory() - before < n * 4096 + SLACK, f"{n1.memory() - before} bytes")


@test
def floods__come_and_go(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        honest(n1)
        before = n1.memory()
        for _ in range(1500):
            s = dial(n1.port)
            s.sendall(b"*2\r\n$5\r\nLEASE\r\n")
            s.close()
        honest(n1)
        with Connection(n1.port) as c:
            wait_until(lambda: "connected_clients:1\r\n" in c.ask("INFO"))
        check(n1.memory() - before < SLACK, f"{n1.memory() - before} bytes more")
        equal(n1.terminate(), 0)


main()

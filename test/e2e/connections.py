# SPDX-License-Identifier: MIT
"""The requests of one connection: each is answered, in order and to whoever asked; and
what is told without being asked for."""
import contextlib
import fcntl
import os
import random
import re
import select
import struct
import termios

from cluster import Cluster, Connection, ServerError, fields
from tap import Failed, check, contains, equal, main, test, wait_until

LONG_MS = 60000


def one(t):
    return Cluster(t.program, t.path("c"), 1)


def three(t):
    return Cluster(t.program, t.path("c"), 3)


def open_lease(c, ttl_ms=LONG_MS):
    """Over RESP2 or RESP3."""
    reply = c.ask("LEASE", "OPEN", ttl_ms)
    return (reply if isinstance(reply, dict) else fields(reply))["lease"]


def acquire(c, lease, name, *more):
    return c.ask("LOCK", "ACQUIRE", lease, name, *more)["token"]


def refusal(c, *words):
    """The error that must come."""
    try:
        reply = c.ask(*words)
    except ServerError as e:
        return e
    raise Failed(f"{words} was answered: {reply}")


def packed(*words):
    """One request as bytes."""
    parts = [str(w).encode() for w in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p)
                                              for p in parts)


@test
def resp2__blocks_and_resp3__pushes(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with Connection(n1.port) as a, Connection(n1.port) as b, n1.connect() as c:
            leases = [open_lease(x) for x in (a, b, c)]
            first = fields(a.ask("LOCK", "ACQUIRE", leases[0], "db"))["token"]
            b.send("LOCK", "ACQUIRE", leases[1], "db", "WAIT", "forever")
            b.send("PING")
            wait_until(lambda: fields(a.ask("LOCK", "SHOW", "db")).get("waiters") == 1)
            queued = c.ask("LOCK", "ACQUIRE", leases[2], "db", "REQUEST", 77)
            equal((queued["status"], queued["place"]), ("QUEUED", 2))
            equal(c.ask("PING"), "PONG")
            a.ask("LOCK", "RELEASE", leases[0], "db", first)
            second = fields(b.reply())["token"]
            equal(b.reply(), "PONG")
            b.ask("LOCK", "RELEASE", leases[1], "db", second)
            kind, what, event = c.push()
            equal((kind, what, event["lease"], event["request"]),
                  ("event", "granted", leases[2], 77))
            check(first < second < event["token"], "tokens don't grow")
            # A wait that ends without a grant says so, and how.
            late = refusal(b, "LOCK", "ACQUIRE", leases[1], "db", "WAIT", 50)
            equal(late.code, "TIMEOUT")


@test
def pipeline__of_10000_is_answered_in_order(t):
    with one(t) as cluster, Connection(cluster.nodes[0].port) as c:
        lease, n = open_lease(c), 5000
        out = []
        for i in range(n):
            out.append(f"LOCK TRY {lease} l{i}\r\n")
            out.append(f"ECHO {i}\r\n" if i % 100 == 0 else f"LOCK SHOW l{i} COUNT 1\r\n")
        c.socket.settimeout(None)
        data = "".join(out).encode()
        pid = os.fork()
        if pid == 0:
            c.socket.sendall(data)
            os._exit(0)
        tokens = []
        for i in range(n):
            tokens.append(fields(c.reply())["token"])
            second = c.reply()
            if i % 100 == 0:
                equal(second, str(i))
            else:
                equal(fields(fields(second)["rows"][0])["token"], tokens[-1])
        os.waitpid(pid, 0)
        equal(tokens, list(range(tokens[0], tokens[0] + n)))


@test
def pipeline__of_words_that_need_no_log_is_answered_in_order(t):
    """Refusals are quicker than the log, and garbage ends the connection; neither may
    pass the answers to what was sent before."""
    with one(t) as cluster, Connection(cluster.nodes[0].port) as c:
        quick = [("SET", "k", "v"), ("FROB",), ("LOCK", "FROB"), ("LEASE", "OPEN"),
                 ("CLUSTER", "FROB"), ("LOCK", "WATCH"), ("PING", "x"), ("AUTH", "x"),
                 ("SCRIPT", "EXISTS", "x"), ("HELLO", "2"), ("LOCK", "UNWATCH")]
        requests = []
        for i, words in enumerate(quick):
            requests += [packed("FENCE", "SET", f"r{i}", i + 1, "v"), packed(*words)]
        requests += [packed("FENCE", "SET", "last", 99, "v"), b"*1\r\n+garbage\r\n"]
        c.socket.sendall(b"".join(requests))
        for i in range(len(quick)):
            equal(fields(c.reply())["token"], i + 1)
            with contextlib.suppress(ServerError):
                c.reply()
        equal(fields(c.reply())["token"], 99)
        try:
            raise Failed(f"taken: {c.reply()}")
        except ServerError as e:
            equal(e.code, "ERR")
        equal(c.socket.recv(1), b"")


@test
def pipeline__with_long_answers_does_not_get_stuck(t):
    with three(t) as cluster:
        for node in cluster.nodes:
            with Connection(node.port) as c:
                lease = open_lease(c)
                value = "v" * 50000
                c.ask("LOCK", "ACQUIRE", lease, node.name, "VALUE", value)
                c.socket.sendall(b"INFO\r\n" * 3000)
                c.socket.sendall(f"LOCK SHOW {node.name}\r\n".encode() * 100)
                for _ in range(3000):
                    contains(c.reply(), "picket_version")
                for _ in range(100):
                    equal(fields(fields(c.reply())["rows"][0])["value"], value)


@test
def pipeline__goes_on_when_its_client_reads_again(t):
    with one(t) as cluster, Connection(cluster.nodes[0].port, small=True) as c:
        n1, value = cluster.nodes[0], "v" * 50000
        c.ask("FENCE", "SET", "big", 1, value)
        c.socket.sendall(b"FENCE GET big\r\n" * 200)
        wait_until(lambda: n1.metric("picket_unsent_bytes") > 256 * 1024)
        for _ in range(200):
            equal(fields(c.reply())["value"], value)


def on_its_way(sock):
    """Bytes that the peer's kernel has not acknowledged."""
    return struct.unpack("i", fcntl.ioctl(sock, termios.TIOCOUTQ, b"\0" * 4))[0]


def send_at_once(node, c, requests):
    """Sends while the node is frozen, so that it finds all of a short text at once.
    Returns the process that sends a long one."""
    data = b"".join(packed(*r) for r in requests)
    node.stop()
    pid = os.fork()
    if pid == 0:
        c.socket.settimeout(None)
        c.socket.sendall(data)
        os._exit(0)
    # Frozen, it takes no more than the kernel's buffers hold.
    short = len(data) < 32768
    if short:
        os.waitpid(pid, 0)
        wait_until(lambda: on_its_way(c.socket) == 0, what="the node's kernel to have it")
    node.cont()
    return None if short else pid


def nothing_passes_a_blocked_acquire(t, before, unread=False):
    """Sends `before`, then an acquire that has to wait, and more. What follows the
    acquire must be answered after it; so must another acquire that waits."""
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as holder, Connection(n1.port, small=unread) as c:
            def waits_for(name):
                return holder.ask("LOCK", "SHOW", name).get("waiters") == 1

            def granted():
                reply = c.reply()
                check(isinstance(reply, list), f"{reply!r} in place of a grant")
                return fields(reply)["token"]
            holder.ask("FENCE", "SET", "big", 1, "v" * 1000)
            held, lease = open_lease(holder), open_lease(c)
            tokens = [acquire(holder, held, name) for name in ("a", "b")]
            after = [("LOCK", "ACQUIRE", lease, "a"), ("PING", "one"),
                     ("LOCK", "TRY", lease, "free"), ("LOCK", "ACQUIRE", lease, "b"),
                     ("PING", "two")]
            if unread:
                send_at_once(n1, c, before)
                select.select([c.socket], [], [])
                send_at_once(n1, c, after)
                wait_until(lambda: waits_for("a"))
                sender = None
            else:
                sender = send_at_once(n1, c, before + after)
            for _ in before:
                with contextlib.suppress(ServerError):
                    c.reply()
            wait_until(lambda: waits_for("a"))
            holder.ask("LOCK", "RELEASE", held, "a", tokens[0])
            tokens.append(granted())
            equal(c.reply(), "one")
            tokens.append(granted())
            wait_until(lambda: waits_for("b"))
            holder.ask("LOCK", "RELEASE", held, "b", tokens[1])
            tokens.append(granted())
            equal(c.reply(), "two")
            equal(tokens, sorted(set(tokens)))
            if sender is not None:
                os.waitpid(sender, 0)


@test
def resp2__nothing_passes_a_blocked_acquire_behind_several_entries(t):
    nothing_passes_a_blocked_acquire(t, [("FENCE", "SET", "r", 1, "v" * 50000)] * 60)


@test
def resp2__nothing_passes_a_blocked_acquire_at_the_limit_of_requests(t):
    nothing_passes_a_blocked_acquire(t, [("FENCE", "GET", "x")] * 1023)


@test
def resp2__nothing_passes_a_blocked_acquire_behind_unread_answers(t):
    nothing_passes_a_blocked_acquire(t, [("FENCE", "GET", "big")] * 450, unread=True)


@test
def answers__never_go_to_another_client(t):
    with Cluster(t.program, t.path("c"), 3, flags=["--election-ms", "2000"]) as cluster:
        leader, followers = cluster.leader(), cluster.followers()
        with leader.connect() as other:
            def clients():
                return re.search(r"connected_clients:(\d+)", other.ask("INFO"))[1]

            def pending():
                status = other.ask("CLUSTER", "STATUS")
                return status["last_index"] > status["commit_index"]
            for n in followers:
                n.stop()
            with Connection(leader.port) as gone:
                gone.send("LEASE", "OPEN", LONG_MS)
                wait_until(pending)
            wait_until(lambda: clients() == "1", what="the end of the connection")
            with Connection(leader.port) as c:
                equal(c.ask("PING", "mine"), "mine")  # it has the other one's place now
                for n in followers:
                    n.cont()
                wait_until(lambda: not pending(), what="the answer to nobody")
                equal(c.ask("PING", "mine"), "mine")


@test
def leases__are_to_be_renewed_long_before_their_end(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        for _ in range(50):
            opened = c.ask("LEASE", "OPEN", LONG_MS)
            renewed = c.ask("LEASE", "RENEW", opened["lease"])
            for wish in (opened["renew_after_ms"], renewed["renew_after_ms"]):
                check(LONG_MS // 4 < wish <= LONG_MS // 2, f"after {wish} ms")


@test
def watchers__of_many_prefixes_are_each_told_what_concerns_them(t):
    rng = random.Random(11)

    def text(longest):
        return "".join(rng.choice("ab/") for _ in range(rng.randrange(longest + 1)))
    with one(t) as cluster, contextlib.ExitStack() as stack:
        n1 = cluster.nodes[0]
        c = stack.enter_context(n1.connect())
        lease = open_lease(c)
        watchers = []
        for i in range(120):
            w, prefix = stack.enter_context(n1.connect()), text(4)
            for again in (text(4), prefix):  # the last one counts
                w.ask("LOCK", "WATCH", "PREFIX", again)
            if i % 10 == 1:
                w.ask("LOCK", "UNWATCH")
            elif i % 10 == 2:
                w.close()
            else:
                watchers.append((w, prefix))
        equal(n1.metric("picket_watchers"), len(watchers))
        names = sorted({"a" + text(5) for _ in range(40)} | {"b" * 255})
        for name in names:
            c.ask("LOCK", "ACQUIRE", lease, name)
        for w, prefix in watchers:
            w.ask("PING")
            told = [push[2]["name"] for push in w.pushes if push[1] == "granted"]
            equal(told, [n for n in names if n.startswith(prefix)])


@test
def watch__tells_of_names_that_begin_with_the_prefix(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c, n1.connect() as watcher:
            lease = open_lease(c)
            equal(refusal(watcher, "LOCK", "WATCH", "PREFIX", "p" * 256).code, "BADARG")
            equal(watcher.ask("LOCK", "WATCH", "PREFIX", "p" * 255), "OK")
            equal(watcher.ask("LOCK", "WATCH", "PREFIX", "db/"), "OK")
            for name in ("db", "dbx", "db/", "db/a", "d", "x/db/"):
                acquire(c, lease, name)
            equal([watcher.push()[2]["name"] for _ in range(2)], ["db/", "db/a"])
            equal(watcher.ask("LOCK", "UNWATCH"), "OK")
            acquire(c, lease, "db/b")
            equal((watcher.ask("PING"), watcher.pushes), ("PONG", []))


@test
def watch__ends_with_resp3(t):
    """RESP2 has no pushes: an event would be taken for the next answer."""
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c, n1.connect() as watcher:
            lease = open_lease(c)
            equal(watcher.ask("LOCK", "WATCH"), "OK")
            watcher.ask("HELLO", "3")
            acquire(c, lease, "a")
            equal(watcher.push()[2]["name"], "a")
            watcher.ask("HELLO", "2")
            acquire(c, lease, "b")
            equal(watcher.ask("PING"), "PONG")
            watcher.ask("HELLO", "3")
            acquire(c, lease, "c")
            equal((watcher.ask("PING"), watcher.pushes), ("PONG", []))


def told(c):
    """The kinds of the pushes that have come to it."""
    c.ask("PING")
    return [push[1] for push in c.pushes]


@test
def owners__of_a_lease_are_the_latest_four(t):
    """Who loses its place is told so, and of what."""
    with one(t) as cluster, contextlib.ExitStack() as all_of_them:
        n1 = cluster.nodes[0]
        c = all_of_them.enter_context(n1.connect())
        lease = open_lease(c)
        token = acquire(c, lease, "db")
        owners = [c]
        for _ in range(5):
            owners.append(all_of_them.enter_context(n1.connect()))
            equal(owners[-1].ask("LEASE", "RENEW", lease)["status"], "OK")
        n1.ask("LOCK", "BREAK", "db", token)
        equal([told(owner) for owner in owners], [["gap"]] * 2 + [["ended"]] * 4)
        equal(owners[0].pushes[0][2], {"lease": lease})


@test
def owners__that_act_keep_their_place(t):
    with one(t) as cluster, contextlib.ExitStack() as all_of_them:
        n1 = cluster.nodes[0]
        c = all_of_them.enter_context(n1.connect())
        lease = open_lease(c)
        token = acquire(c, lease, "db")
        others = []
        for _ in range(6):
            c.ask("LEASE", "RENEW", lease)
            others.append(all_of_them.enter_context(n1.connect()))
            others[-1].ask("LEASE", "RENEW", lease)
        n1.ask("LOCK", "BREAK", "db", token)
        equal(told(c), ["ended"])
        equal([told(o) for o in others], [["gap"]] * 3 + [["ended"]] * 3)


@test
def owners__are_not_those_who_look_or_release(t):
    with one(t) as cluster, contextlib.ExitStack() as all_of_them:
        n1 = cluster.nodes[0]
        c = all_of_them.enter_context(n1.connect())
        lease = open_lease(c)
        token = acquire(c, lease, "db")
        others = []
        for i in range(6):
            other = all_of_them.enter_context(n1.connect())
            other.ask("LEASE", "SHOW", lease)
            acquire(c, lease, f"x{i}")
            other.ask("LOCK", "VALUE", lease, f"x{i}", token + i + 1, "v")
            other.ask("LOCK", "RELEASE", lease, f"x{i}", token + i + 1)
            others.append(other)
        n1.ask("LOCK", "BREAK", "db", token)
        equal(told(c), ["ended"] * 7)
        equal([told(o) for o in others], [[]] * 6)


@test
def renewal__tells_what_was_missed(t):
    """Whatever becomes of pushes and connections: docs/protocol.md."""
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c:
            lease = open_lease(c)
            token = acquire(c, lease, "db", "REQUEST", 1)
            other = open_lease(c)
            acquire(c, other, "queue")
            equal(c.ask("LOCK", "ACQUIRE", lease, "queue", "REQUEST", 2)["status"],
                  "QUEUED")
            acquire(c, lease, "kept", "REQUEST", 3, "VALUE", "v")
            reply = c.ask("LEASE", "RENEW", lease, "HEARD", 0)
            check("event" not in reply and "rows" not in reply, str(reply))
        with n1.connect() as operator:  # nobody else is there to be told
            operator.ask("LOCK", "BREAK", "db", token, "REASON", "stuck")
            granted = token + 3
            operator.ask("LOCK", "RELEASE", other, "queue", token + 1)
            plain = operator.ask("LEASE", "RENEW", lease)
            check(plain["event"] == 2 and "rows" not in plain, str(plain))
            both = operator.ask("LEASE", "RENEW", lease, other, "HEARD", 0, 1)
            equal([r["event"] for r in both], [2, 1])
            rows = [(r["kind"], r["request"], r.get("token"), r.get("end"))
                    for r in both[0]["rows"]]
            equal(rows, [("hold", 2, granted, None), ("hold", 3, token + 2, None),
                         ("outcome", 1, token, "broken")])
            check("value" not in both[0]["rows"][1], "a value")
            check("rows" not in both[1], str(both[1]))
            # Of many, which are renewed in pieces, too; and over RESP2.
            many, heard = [other] * 100 + [lease] * 300, [1] * 100 + [2] * 299 + [0]
            reply = operator.ask("LEASE", "RENEW", *many, "HEARD", *heard)
            equal([len(r.get("rows", [])) for r in reply if "rows" in r], [3])
            check("rows" in reply[-1], "the rows of another lease")
            with Connection(n1.port) as old:
                flat = fields(old.ask("LEASE", "RENEW", lease, "HEARD", 1))
                equal(fields(flat["rows"][2])["end"], "broken")
            for words in (("HEARD",), ("HEARD", "x"), ("HEARD", 1, 2)):
                refusal(operator, "LEASE", "RENEW", lease, *words)


@test
def pushes__have_the_number_of_their_event(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c, n1.connect() as other:
            lease, rival = open_lease(c), open_lease(other)
            acquire(other, rival, "db")
            c.ask("LOCK", "ACQUIRE", lease, "db", "AND", "x", "REQUEST", 1)
            token = other.ask("LOCK", "SHOW", "db")["rows"][0]["token"]
            equal(other.ask("LOCK", "RELEASE", rival, "db", token)["event"], 1)
            told(c)
            equal([(p[1], p[2]["event"]) for p in c.pushes], [("granted", 1)] * 2)
            c.pushes.clear()
            token = c.ask("LOCK", "SHOW", "db")["rows"][0]["token"]
            equal(c.ask("LOCK", "RELEASE", lease, "x", token, "REQUEST", 2)["event"], 2)
            again = c.ask("LOCK", "RELEASE", lease, "x", token, "REQUEST", 2)
            check("event" not in again, str(again))
            equal(told(c), [])


@test
def resp2__each_wait_is_answered_by_its_own_grant(t):
    """Two waits of one lease without a REQUEST, on two connections."""
    with one(t) as cluster:
        port = cluster.nodes[0].port
        with Connection(port) as holder, Connection(port) as a, Connection(port) as b:
            theirs, lease = open_lease(holder), open_lease(holder)
            tokens = {name: fields(holder.ask("LOCK", "ACQUIRE", theirs, name))["token"]
                      for name in "ab"}
            a.send("LOCK", "ACQUIRE", lease, "a", "WAIT", "forever")
            b.send("LOCK", "ACQUIRE", lease, "b", "WAIT", "forever")

            def waiting():
                return fields(holder.ask("LEASE", "SHOW", lease)).get("waiters") == 2
            wait_until(waiting, what="both waits")
            holder.ask("LOCK", "RELEASE", theirs, "a", tokens["a"])
            first = fields(a.reply())
            equal((first["status"], first["name"]), ("OK", "a"))
            # Nothing comes to the other one, which goes on waiting.
            equal(fields(holder.ask("LEASE", "SHOW", lease))["waiters"], 1)
            equal(select.select([b.socket], [], [], 0)[0], [])
            holder.ask("LOCK", "RELEASE", theirs, "b", tokens["b"])
            second = fields(b.reply())
            equal((second["status"], second["name"]), ("OK", "b"))
            check(second["token"] > first["token"], "tokens grow")
            # Both have their connections back; a repeat under one REQUEST is one wait.
            holder.ask("LOCK", "ACQUIRE", theirs, "c")
            for c in (a, b):
                c.send("LOCK", "ACQUIRE", lease, "c", "WAIT", "forever", "REQUEST", 9)

            def one_waits():
                return fields(holder.ask("LOCK", "SHOW", "c")).get("waiters") == 1
            wait_until(one_waits, what="one wait")
            a.send("PING")
            holder.ask("LEASE", "CLOSE", theirs)
            equal(fields(a.reply())["token"], fields(b.reply())["token"])
            equal(a.reply(), "PONG")


@test
def words__are_read_as_typed_by_hand_and_by_redis_clients(t):
    with one(t) as cluster, Connection(cluster.nodes[0].port) as c:
        c.socket.sendall(b"PING\r\n\r\nping hello\r\n")
        equal((c.reply(), c.reply()), ("PONG", "hello"))
        equal(c.ask("SET", "k", "v", "NX", "PX", 5000), "OK")
        equal(c.ask("SET", "k", "w", "NX", "PX", 5000), None)
        equal(c.ask("GET", "k"), "v")
        contains(c.ask("INFO"), "picket_version:")
        for words in (("FROB",), ("LOCK", "FROB"), ("LOCK", "ACQUIRE"), ("HELLO", "4")):
            refusal(c, *words)
        equal(c.ask("QUIT"), "OK")
        equal(c.socket.recv(1), b"")


@test
def connection__has_words_of_its_own(t):
    """The table of docs/protocol.md."""
    with three(t) as cluster:
        follower = cluster.followers()[0]
        with Connection(follower.port) as c, Connection(follower.port) as other:
            said = c.ask("HELLO", 3)
            equal([said[k] for k in ("server", "proto", "role", "modules")],
                  ["picket", 3, "replica", []])
            check({"version", "id", "mode"} <= set(said), str(said))
            with Connection(cluster.leader().port) as leader:
                equal(fields(leader.ask("HELLO"))["role"], "master")
            equal(c.ask("HELLO", 3, "SETNAME", "me")["proto"], 3)
            equal(c.ask("CLIENT", "SETNAME", "myself"), "OK")
            check(c.ask("CLIENT", "ID") != other.ask("CLIENT", "ID"), "one id for two")
            equal(fields(c.ask("HELLO", 2))["proto"], 2)
            equal(refusal(c, "HELLO", 4).code, "NOPROTO")
            equal((c.ask("ECHO", "x y"), c.ask("PING")), ("x y", "PONG"))
            status = fields(c.ask("CLUSTER", "STATUS"))
            equal((status["node"], status["leader"], len(status["members"])),
                  (follower.name, cluster.leader().name, 3))
            c.ask("CLIENT", "REDIRECT", "ON")
            equal(refusal(c, "LEASE", "OPEN", 1000).code, "NOTLEADER")
            equal(refusal(other, "LOCK", "WATCH").code, "ERR")  # RESP2 has no pushes


@test
def pushes__go_to_who_used_the_lease_last(t):
    with one(t) as cluster, contextlib.ExitStack() as stack:
        mine = [stack.enter_context(cluster.nodes[0].connect()) for _ in range(6)]
        lease = open_lease(mine[0])
        token = acquire(mine[0], lease, "db")
        for c in mine[1:]:
            c.ask("LEASE", "RENEW", lease)
        with cluster.nodes[0].connect() as operator:
            operator.ask("LOCK", "BREAK", "db", token)
        for c in mine[:2]:
            equal(c.push()[1:], ["gap", {"lease": lease}])
        for c in mine[2:]:  # the last four
            equal(c.push()[1], "ended")
        for c in mine:
            equal((c.ask("PING"), c.pushes), ("PONG", []))


main()

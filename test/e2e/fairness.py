# SPDX-License-Identifier: MIT
"""Turns of a node are shared by cost: whoever asks for little is not kept waiting by
those who ask for much. What is asserted is the order in the log, not time."""
import contextlib
import re

from cluster import Cluster, Connection, ServerError, fields, get
from tap import Failed, check, equal, main, test, wait_until

LONG_MS = 600000
RENEW_MAX = 4096


def one(t):
    return Cluster(t.program, t.path("c"), 1)


def words(*parts):
    parts = [str(p).encode() for p in parts]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(p), p)
                                              for p in parts)


def answers(c, n):
    """The next `n` replies, errors among them."""
    got = []
    for _ in range(n):
        try:
            got.append(c.reply())
        except ServerError as e:
            got.append(e)
    return got


def open_leases(c, n):
    c.socket.sendall(words("LEASE", "OPEN", LONG_MS) * n)
    return [a["lease"] for a in answers(c, n)]


def histogram(node, name):
    """{upper bound: how many are not above it}"""
    text = get(node, "/metrics")[1]
    found = re.findall(rf'^{name}_bucket{{le="([^"]+)"}} (\d+)$', text, re.MULTILINE)
    return {float(le): int(n) for le, n in found}


@test
def renewal__of_many_leases_is_cut_and_answered_as_one(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c, Connection(n1.port) as two:
            leases = open_leases(c, RENEW_MAX)
            for gone in (0, 62, 63, 2000, RENEW_MAX - 1):  # at the edges of pieces, too
                c.ask("LEASE", "CLOSE", leases[gone])
            before = n1.metric("picket_commands_total")
            asked = n1.metric("picket_requests_total")
            c.socket.sendall(words("LEASE", "RENEW", *leases, "TTL", LONG_MS - 1) +
                             words("FENCE", "CHECK", "none", 1) + words("PING"))
            got, behind, pong = answers(c, 3)
            equal(pong, "PONG")
            equal(behind.code, "UNCLAIMED")  # answered after what was asked before it
            equal(len(got), RENEW_MAX)
            for i, a in enumerate(got):
                if i in (0, 62, 63, 2000, RENEW_MAX - 1):
                    equal(a.code, "LOST")
                    check(f"lease={leases[i]} " in str(a) + " ", str(a))
                else:
                    equal((a["status"], a["lease"], a["left_ms"]),
                          ("OK", leases[i], LONG_MS - 1))
            check(n1.metric("picket_commands_total") - before > 20, "it was not cut")
            equal(n1.metric("picket_requests_total") - asked, 3)
            # RESP2 has its own form of it; and one that is not cut is the same.
            for n in (2, 63, 64, 65, 1000):
                equal([fields(a)["lease"] for a in two.ask("LEASE", "RENEW",
                                                           *leases[100:100 + n])],
                      leases[100:100 + n])


@test
def renewal__of_many_leases_is_refused_once(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        leases = open_leases(c, 200)
        try:
            raise Failed(str(c.ask("LEASE", "RENEW", *leases, "TTL", 1)))
        except ServerError as e:
            equal(e.code, "BADARG")
        equal(c.ask("PING"), "PONG")


@test
def renewal__that_loses_its_leader_is_unknown_as_a_whole(t):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        leader = cluster.leader()
        with leader.connect() as c:
            leases = open_leases(c, RENEW_MAX)
            for n in cluster.followers():
                n.stop()
            c.socket.sendall(words("LEASE", "RENEW", *leases) + words("PING"))
            refused, pong = answers(c, 2)
            equal((refused.code, pong), ("UNKNOWN", "PONG"))
            for n in cluster.nodes:
                if n is not leader:
                    n.cont()
        with contextlib.closing(cluster.leader().connect()) as c:
            renewed = c.ask("LEASE", "RENEW", *leases)
            equal({a["status"] for a in renewed}, {"OK"})


@test
def connection__that_goes_in_the_middle_of_a_renewal_leaves_nothing(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c:
            leases = open_leases(c, RENEW_MAX)
        for _ in range(20):
            with n1.connect() as c:
                c.socket.sendall(words("LEASE", "RENEW", *leases) * 4)
        wait_until(lambda: n1.metric("picket_connections") == 0, what="their end")
        equal(n1.ask("LEASE", "RENEW", leases[5])["status"], "OK")


def flood(t, n_floods, requests, honest):
    """All that `requests(i, connection)` says for `n_floods` connections arrives while
    the node is frozen, and one acquire of an honest client after it. Returns its token,
    the answers to the others, and how many units the turns had."""
    with one(t) as cluster, contextlib.ExitStack() as stack:
        n1 = cluster.nodes[0]
        floods = [stack.enter_context(n1.connect()) for _ in range(n_floods)]
        sent = [requests(i, c) for i, c in enumerate(floods)]
        c = stack.enter_context(n1.connect())
        lease = c.ask("LEASE", "OPEN", LONG_MS)["lease"]
        n1.stop()
        for flooding, (data, _) in zip(floods, sent):
            flooding.socket.sendall(data)
        c.send("LOCK", "ACQUIRE", lease, honest)
        n1.cont()
        token = c.reply()["token"]
        check(n1.metric("picket_share_waits_total") > 0, "nobody waits for a share")
        all_answers = [answers(f, n) for f, (_, n) in zip(floods, sent)]
        return token, all_answers, histogram(n1, "picket_turn_units")


@test
def pipelines__of_others_are_passed_by_a_single_request(t):
    n, floods = 1000, 16

    def acquires(i, c):
        lease = c.ask("LEASE", "OPEN", LONG_MS)["lease"]
        return b"".join(words("LOCK", "ACQUIRE", lease, f"flood/{i}/{k}")
                        for k in range(n)), n
    token, got, units = flood(t, floods, acquires, "honest")
    # Each of them has a share of two units for each acquire, and they have the budget.
    check(token <= floods * 64 // 2 + 512 // 2 + 64, f"{token} grants came before it")
    for each in got:
        tokens = [a["token"] for a in each]
        equal((len(tokens), tokens), (n, sorted(tokens)))
    equal(units[4096], units[float("inf")])
    # Nobody has more than the others: when one was done, all were nearly done.
    last = [max(a["token"] for a in each) for each in got]
    check(max(last) - min(last) < 16 * 64 + 512, f"from {min(last)} to {max(last)}")


@test
def renewals__of_others_are_passed_by_a_single_request(t):
    def renewals(_, c):
        return words("LEASE", "RENEW", *open_leases(c, RENEW_MAX)) * 3, 3
    _, got, units = flood(t, 4, renewals, "honest")
    for each in got:
        equal([len(a) for a in each], [RENEW_MAX] * 3)
    equal(units[1024], units[float("inf")])
    check(units[float("inf")] >= 3 * 4 * RENEW_MAX // 1024, f"{units} is too few turns")


@test
def connections__that_ask_for_much_and_go_do_not_pile_up(t):
    with one(t) as cluster, contextlib.ExitStack() as stack:
        n1, n = cluster.nodes[0], 200
        c = stack.enter_context(n1.connect())
        lease = c.ask("LEASE", "OPEN", LONG_MS)["lease"]
        c.socket.sendall(b"".join(words("LOCK", "ACQUIRE", lease, f"l{i}")
                                  for i in range(1000)))
        answers(c, 1000)
        others = [stack.enter_context(Connection(n1.port)) for _ in range(n)]
        wait_until(lambda: n1.metric("picket_connections") == n + 1)
        before = n1.metric("picket_requests_total")
        n1.stop()
        for other in others:
            other.send("LOCK", "LIST", "COUNT", 1000)
            other.close()
        n1.cont()
        wait_until(lambda: n1.metric("picket_connections") == 1, what="their end")
        served = n1.metric("picket_requests_total") - before
        check(served < n // 2, f"{served} of {n} were served for nobody")


@test
def reads__of_little_cost_little_whatever_count_they_have(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        n1 = cluster.nodes[0]
        before = n1.metric("picket_share_waits_total")
        for request in (("LOCK", "SHOW", "none"), ("LOCK", "LIST", "COUNT", 1000),
                        ("LOCK", "SHOW", "none", "COUNT", 1000)):
            c.ask(*request)
        equal(n1.metric("picket_share_waits_total"), before)


main()

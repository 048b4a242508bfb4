#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`picket cluster` when nodes hang: live nodes are asked, and the health of the cluster
is told as it is.

A frozen node accepts connections, because the kernel does, and never answers. Fake nodes
(fakes.py) count what they are asked and answer as a test tells them to.
"""
import contextlib
import http.client
import json
import shutil

from cluster import QUICK, Cluster
from fakes import FakeNode, encode, member, says
from tap import check, contains, equal, main, stopped, test, wait_until


# ---- helpers ----

def url_of(nodes):
    return "picket://" + ",".join(f"127.0.0.1:{n.port}" for n in nodes)


class Site:
    """Three nodes, one of them frozen, which is named first or last."""

    def __init__(self, t, cluster, frozen, first):
        self.t = t
        self.frozen = frozen
        others = [n for n in cluster.nodes if n is not frozen]
        self.url = url_of([frozen, *others] if first else [*others, frozen])
        frozen.stop()
        wait_until(lambda: stopped(frozen.pid), what="a frozen node")

    def cluster(self, *words, **options):
        done = self.t.picket("cluster", *words, "--on", self.url, **options)
        check(stopped(self.frozen.pid), "the node is not frozen any more")
        return done

    def done(self, *words):
        done = self.cluster(*words)
        equal((words, done.returncode, done.stderr if done.returncode else ""),
              (words, 0, ""))
        return done

    def status(self):
        done = self.cluster("status", "-o", "json")
        return done.returncode, json.loads(done.stdout)


def node_of(status, name):
    return next(n for n in status["nodes"] if n["node"] == name)


def ready(node):
    """The code and the text of /readyz; None: nobody is there."""
    try:
        c = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=120)
        with contextlib.closing(c):
            c.request("GET", "/readyz")
            answer = c.getresponse()
            return answer.status, answer.read().decode()
    except OSError:
        return None


def healthy(t, cluster):
    """Whether `picket cluster status` calls every member healthy."""
    return t.picket("cluster", "status", "--on", cluster.url).returncode == 0


# ---- a node that hangs ----

def every_command_is_done(t, first):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        wait_until(lambda: healthy(t, cluster), what="a healthy cluster")
        frozen, other = cluster.followers()
        s = Site(t, cluster, frozen, first)
        file = t.path("backup")
        s.done("limits")
        s.done("configure", "leases=77")
        s.done("backup", file)
        s.done("restore", file, "--yes")
        s.done("add", "n9=127.0.0.1:1", "00000000000000a9")
        s.done("remove", "n9")
        s.done("promote", other.name)
        contains(s.done("transfer", other.name).stderr, f"{other.name} leads")
        contains(s.done("remove", frozen.name).stderr, "is removed")
        status = when(s.status, 0)[1]
        equal((status["voters"], status["healthy_voters"]), (2, 2))


@test
def frozen_node__named_first_is_not_waited_for(t):
    every_command_is_done(t, first=True)


@test
def frozen_node__named_last_is_not_waited_for(t):
    every_command_is_done(t, first=False)


@test
def frozen_leader__is_replaced_by_another_and_removed(t):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        wait_until(lambda: healthy(t, cluster), what="a healthy cluster")
        s = Site(t, cluster, cluster.leader(), first=True)
        contains(s.done("remove", s.frozen.name).stderr, "is removed")
        check(s.frozen.name not in [n["node"] for n in s.status()[1]["nodes"]
                                    if n["role"]], "it is still a member")


@test
def silent_address__is_never_sent_a_command(t):
    """And the other nodes are found without it, also those that the URL does not name."""
    with Cluster(t.program, t.path("c"), 3) as cluster, FakeNode() as silent:
        wait_until(lambda: healthy(t, cluster), what="a healthy cluster")
        url = url_of([silent, cluster.followers()[0]])
        for words in (("limits",), ("configure", "leases=99"), ("promote", "n1"),
                      ("backup", t.path("backup")), ("transfer",)):
            done = t.picket("cluster", *words, "--on", url)
            equal((words, done.returncode), (words, 0))
        equal(silent.asked, [])


@test
def leader__that_hangs_under_a_command_is_left_for_its_successor(t):
    with FakeNode() as old, FakeNode(lambda words: "+OK\r\n") as new:
        members = [member("n1", old), member("n2", new), member("n3", old)]
        old.status = says("n1", members, leader="n1")
        new.status = says("n2", members, leader="n1")

        def freeze(_words):
            """It has taken the command, and another node is elected."""
            old.status = None
            new.status = says("n2", members, leader="n2", term=2)
        old.answer = freeze
        done = t.picket("cluster", "remove", "n3", "--on", url_of([old, new]))
        equal((done.returncode, done.stdout), (0, ""))
        contains(done.stderr, "n3 is removed")
        equal((old.asked, new.asked), ([["CLUSTER", "REMOVE", "n3"]],) * 2)


def lost_answers(t, words, answer):
    """A leader that loses the first answer to a command; what it answers to the next."""
    with FakeNode() as node:
        node.status = says("n1", [member("n1", node)], leader="n1")
        node.answer = lambda words: "" if len(node.asked) == 1 else answer
        done = t.picket("cluster", *words, "--on", url_of([node]))
        return done, node.asked


@test
def lost_answer__is_asked_for_again(t):
    for words, answer in (
            (("remove", "n2"), "-NOTFOUND there is no node of that name\r\n"),
            (("promote", "n2"), "+OK\r\n"), (("add", "n2=127.0.0.1:1"), "+OK\r\n"),
            (("configure", "leases=5"), "+OK\r\n")):
        done, asked = lost_answers(t, words, answer)
        equal((words, done.returncode), (words, 0))
        equal((words, len(asked)), (words, 2))


@test
def lost_answer__and_a_change_in_the_way_of_itself(t):
    """The new leader refuses while the first attempt is not committed yet."""
    with FakeNode() as node:
        node.status = says("n1", [member("n1", node)], leader="n1")
        replies = ["", "-ERR another change of members is under way\r\n", "+OK\r\n"]
        node.answer = lambda words: replies[len(node.asked) - 1]
        done = t.picket("cluster", "promote", "n2", "--on", url_of([node]))
        equal((done.returncode, len(node.asked)), (0, 3))


@test
def unknown_outcome__says_how_to_find_out(t):
    with FakeNode() as node:
        node.status = says("n1", [member("n1", node)], leader="n1")

        def vanish(_words):
            """The answer is lost, and the node is never seen again."""
            node.status = None
            node.listener.close()
            return ""
        node.answer = vanish
        done = t.picket("cluster", "promote", "n2", "--on", url_of([node]))
        equal((done.returncode, done.stderr.count("\n")), (125, 1))
        contains(done.stderr, "may or may not have been done")
        contains(done.stderr, "picket cluster status")


def restore_with_lost_adoption(t, leap):
    """A restore whose last answer is lost; tokens have leapt by `leap` since."""
    with Cluster(t.program, t.path("real"), 1) as cluster:
        equal(t.picket("cluster", "backup", t.path("backup"), "--on",
                       cluster.url).returncode, 0)
    with FakeNode() as node:
        node.status = says("n1", [member("n1", node)], leader="n1")

        def answer(words):
            adopted = node.asked.count(["CLUSTER", "ADOPT"])
            if words == ["INFO"]:
                return encode(f"last_token:{5 + (leap if adopted else 0)}")
            if words[1] == "ADOPT":
                return "" if adopted == 1 else "-BADARG there is nothing to adopt\r\n"
            return "+OK\r\n"
        node.answer = answer
        return t.picket("cluster", "restore", t.path("backup"), "--yes", "--on",
                        url_of([node]))


@test
def lost_adoption__is_looked_up(t):
    done = restore_with_lost_adoption(t, 1 << 32)
    equal(done.returncode, 0)
    contains(done.stderr, "restored")


@test
def lost_adoption__that_was_not_done_is_told(t):
    done = restore_with_lost_adoption(t, 0)
    equal((done.returncode, done.stderr.count("\n")), (125, 1))
    contains(done.stderr, "nothing to adopt")


# ---- the truth about health ----

def status_of(t, cluster):
    done = t.picket("cluster", "status", "-o", "json", "--on", cluster.url)
    return done.returncode, json.loads(done.stdout)


def state_of(t, cluster, name):
    return node_of(status_of(t, cluster)[1], name)["state"]


def when(look, code):
    """What look() returns once its exit code is that: on a busy machine there may be an
    election at any time."""
    return wait_until(lambda: (lambda x: x if x[0] == code else None)(look()),
                      what=f"exit code {code}")


def doctor(t, cluster):
    done = t.picket("doctor", "-o", "json", "--on", cluster.url)
    return done.returncode, json.loads(done.stdout)


@test
def wiped_node__is_not_counted(t):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        wait_until(lambda: healthy(t, cluster), what="a healthy cluster")
        equal(status_of(t, cluster)[1]["failures_tolerated"], 1)
        wiped = cluster.followers()[0]
        wiped.kill()
        shutil.rmtree(wiped.data)
        wiped.start()
        wait_until(lambda: state_of(t, cluster, wiped.name) == "refused",
                   what="a refused node")
        code, status = when(lambda: status_of(t, cluster), 2)
        equal((code, status["voters"], status["healthy_voters"],
               status["failures_tolerated"]), (2, 3, 2, 0))
        contains(node_of(status, wiped.name)["refused"], "belongs to no cluster yet")
        done = wait_until(lambda: (lambda d: d if d.returncode == 2 else None)(
            t.picket("cluster", "status", "--on", cluster.url)))
        equal(len(done.stdout.splitlines()), 6)
        equal(done.stdout.splitlines()[-1], "this cluster has 3 voters, 2 of them "
                                            "healthy: it bears 0 more failures")
        contains(done.stderr, "belongs to no cluster yet")
        code, report = when(lambda: doctor(t, cluster), 2)
        equal((code, report["failures_tolerated"]), (2, 0))
        found = {f["code"]: f["text"] for f in report["findings"]}
        contains(found["unhealthy-nodes"], f"{wiped.name} is refused")
        check("nodes" not in found, found)
        answer = ready(wiped)
        equal(answer[0], 503)
        contains(answer[1], "not ready")


@test
def frozen_node__is_not_counted(t):
    with Cluster(t.program, t.path("c"), 3, QUICK) as cluster:
        wait_until(lambda: healthy(t, cluster), what="a healthy cluster")
        frozen = cluster.followers()[0]
        frozen.stop()
        wait_until(lambda: stopped(frozen.pid), what="a frozen node")
        # The leader need not have noticed yet when it is asked first.
        check(status_of(t, cluster)[0] != 0, "a healthy cluster")
        equal(when(lambda: doctor(t, cluster), 2)[1]["failures_tolerated"], 0)
        status = when(lambda: status_of(t, cluster), 2)[1]
        equal(node_of(status, frozen.name)["state"], "unreachable")
        frozen.cont()
        wait_until(lambda: healthy(t, cluster), what="a healthy cluster again")
        when(lambda: doctor(t, cluster), 0)


@test
def standby__without_its_leader_is_not_ready(t):
    """It never stands for election, and so never finds out by itself."""
    with Cluster(t.program, t.path("c"), 1) as cluster:
        n1 = cluster.nodes[0]
        n2 = cluster.join("n2", n1)
        wait_until(lambda: healthy(t, cluster) and (ready(n2) or [0])[0] == 200,
                   what="a standby that takes part")
        n1.stop()
        wait_until(lambda: ready(n2)[0] == 503, what="a standby that is not ready")
        n1.cont()
        wait_until(lambda: ready(n2)[0] == 200, what="a standby that is ready again")


def judged(t, **of_n3):
    """The state of a voter about which the leader says this, and how many are healthy."""
    with FakeNode() as n1, FakeNode() as n2, FakeNode() as n3:
        members = [member("n1", n1), member("n2", n2), member("n3", n3, **of_n3)]
        for name, node in (("n1", n1), ("n2", n2), ("n3", n3)):
            node.status = says(name, members, leader="n1")
        done = t.picket("cluster", "status", "-o", "json", "--on", url_of([n1]))
        status = json.loads(done.stdout)
        return (node_of(status, "n3")["state"], done.returncode,
                status["failures_tolerated"])


@test
def member__is_judged_by_what_the_leader_knows(t):
    equal(judged(t), ("follower", 0, 1))
    equal(judged(t, match=9), ("lagging", 2, 0))
    equal(judged(t, heard_ms=901), ("silent", 2, 0))
    equal(judged(t, heard_ms=None), ("silent", 2, 0))
    equal(judged(t, heard_ms=None, refused="why"), ("refused", 2, 0))
    # A standby is a member, but no voter.
    equal(judged(t, role="standby", match=9), ("lagging", 2, 0))
    # A refusal of the past does not count against a member that is heard.
    equal(judged(t, refused="why"), ("follower", 0, 1))


main()

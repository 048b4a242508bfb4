# SPDX-License-Identifier: MIT
"""Nodes come and go while somebody holds a lock: `picket cluster`."""
import json
import os
import shutil

from cluster import Cluster, ServerError, free_ports, get
from tap import Failed, alive, check, contains, equal, main, test, wait_until


class Site:
    """Three nodes, a job under a lock that must live through everything, and a row of
    tokens that must grow."""

    def __init__(self, t, cluster):
        self.t = t
        self.cluster = cluster
        self.url = cluster.url
        self.tokens = []
        self.job = t.start("run", "--on", self.url, "--ttl", "10s", "job", "--",
                           "sleep", "1000")
        wait_until(lambda: self.job_token() is not None, what="the job's hold")
        self.held = self.job_token()
        self.tokens.append(self.held)

    def picket(self, *words):
        return self.t.picket(*words, "--on", self.url)

    def change(self, *words):
        done = self.picket("cluster", *words)
        equal((words, done.returncode, done.stdout), (words, 0, ""))
        return done.stderr

    def refused(self, *words):
        done = self.picket("cluster", *words)
        equal((words, done.returncode, done.stderr.count("\n")), (words, 125, 1))
        return done.stderr

    def job_token(self):
        done = self.picket("show", "-o", "json", "job")
        holds = json.loads(done.stdout)["holds"] if done.returncode == 0 else []
        return holds[0]["token"] if holds else None

    def status(self):
        done = self.picket("cluster", "status", "-o", "json")
        check(done.returncode in (0, 1, 2), done.stderr)
        return json.loads(done.stdout)

    def node(self, name):
        return next((n for n in self.status()["nodes"] if n["node"] == name), None)

    def roles(self):
        """Of the members; a node that was removed may still answer."""
        return {n["node"]: n["role"] for n in self.status()["nodes"] if n["role"]}

    def leader(self):
        return wait_until(lambda: self.status()["leader"], what="a leader")

    def go_on(self):
        """The cluster gives out a higher token, and the job has never lost its lock."""
        done = self.picket("acquire", "-o", "json", f"l{len(self.tokens)}")
        equal((done.returncode, done.stderr), (0, ""))
        token = json.loads(done.stdout)["token"]
        check(token > self.tokens[-1], f"token {token} after {self.tokens}")
        self.tokens.append(token)
        check(alive(self.job.pid), "the job has lost its lock")
        equal(self.job_token(), self.held)

    def end(self):
        self.job.terminate()
        equal(self.job.wait(20), 128 + 15)


def site(t):
    return Cluster(t.program, t.path("c"), 3)


@test
def nodes__come_and_go_under_a_lock(t):
    with site(t) as cluster:
        s = Site(t, cluster)
        n4 = cluster.join("n4", through=cluster.followers()[0])
        wait_until(lambda: s.node("n4") and s.node("n4")["behind"] == 0)
        equal(s.roles(), {"n1": "voter", "n2": "voter", "n3": "voter", "n4": "standby"})
        contains(s.change("add", f"n4=127.0.0.1:{n4.raft_port}"), "promote n4")
        s.go_on()
        contains(s.change("promote", "n4"), "has a vote")
        contains(s.change("promote", "n4"), "has a vote")
        equal(s.roles()["n4"], "voter")

        check(any("event=membership node=n4" in n.words() for n in cluster.nodes),
              "the change is not in any log")

        contains(s.change("transfer", "n3"), "n3 leads")
        contains(s.change("transfer", "n3"), "n3 leads already")
        equal(s.leader(), "n3")
        s.go_on()
        contains(s.change("remove", "n2"), "for good")
        equal(sorted(s.roles()), ["n1", "n3", "n4"])
        equal(cluster.node("n2").terminate(), 0)
        s.go_on()

        # A name is free again for a new directory, and never for the old one.
        n2 = cluster.node("n2")
        shutil.rmtree(n2.data)
        n2.place = ["--join", f"127.0.0.1:{cluster.node('n3').port}"]
        n2.start()
        wait_until(lambda: s.node("n2") and s.node("n2")["behind"] == 0)
        equal(s.roles()["n2"], "standby")
        s.change("remove", "n2")
        equal(n2.terminate(), 0)
        s.go_on()

        contains(s.change("remove", "n3"), "for good")
        check(s.leader() in ("n1", "n4"), "nobody took over")
        equal(s.roles(), {"n1": "voter", "n4": "voter"})
        cluster.node("n3").kill()
        s.go_on()

        other = {"n1": "n4", "n4": "n1"}[s.leader()]
        contains(s.change("transfer"), f"{other} leads")
        s.go_on()
        contains(s.refused("remove", "n2"), "no node of that name")
        contains(s.refused("promote", "n2"), "no node of that name")
        contains(s.refused("transfer", "n9"), "no node of that name")
        contains(s.refused("add", "n9=nonsense"), "HOST:PORT")
        contains(s.refused("add", f"n1=127.0.0.1:{n4.raft_port}"), "is a member already")
        s.end()


def waits(node, words):
    """The node says that it waits, and for what."""
    return (f"event=waiting node={node.name}" in node.words()
            and words in node.words().replace("\\", ""))


@test
def wiped_node__waits_and_is_admitted_by_replace(t):
    with site(t) as cluster:
        s = Site(t, cluster)
        s.change("transfer", "n1")
        n2 = cluster.node("n2")
        wait_until(lambda: s.node("n2")["behind"] == 0)
        contains(s.refused("replace", "n2"), "not lost")
        n2.kill()
        wait_until(lambda: s.node("n2")["state"] == "unreachable", what="its absence")
        contains(s.refused("replace", "n2"), "start it with an empty directory")
        shutil.rmtree(n2.data)
        n2.start()
        wait_until(lambda: waits(n2, "picket cluster replace n2"), what="its words")
        equal(get(n2, "/readyz")[0], 503)
        contains(get(n2, "/readyz")[1], "picket cluster replace n2")
        s.go_on()
        contains(s.change("replace", "n2"), "its vote again")
        equal(s.roles(), {"n1": "voter", "n2": "voter", "n3": "voter"})
        wait_until(lambda: s.node("n2")["state"] == "follower", what="a healthy n2")
        wait_until(lambda: get(n2, "/readyz")[0] == 200, what="its readiness")
        # Its vote is worth one: with it the cluster survives another loss.
        cluster.node("n1").kill()
        check(s.leader() in ("n2", "n3"), "nobody took over")
        s.go_on()
        n2.restart()
        s.go_on()
        s.end()


def tokens_of(node, n, name="db"):
    """Takes and gives back the lock n times."""
    with node.connect() as c:
        lease = c.ask("LEASE", "OPEN", 600000)["lease"]
        got = []
        for _ in range(n):
            got.append(c.ask("LOCK", "TRY", lease, name)["token"])
            c.ask("LOCK", "RELEASE", lease, name, got[-1])
    return got


@test
def wiped_node__has_no_vote_for_a_node_that_missed_grants(t):
    """A follower sleeps while tokens are given out; the leader dies, the other follower
    loses its directory. The sleeper must not lead with the vote of the wiped one."""
    with Cluster(t.program, t.path("c"), 3) as cluster:
        leader = cluster.leader()
        sleeper, wiped = cluster.followers()
        sleeper.stop()
        before = tokens_of(leader, 5)
        leader.kill()
        wiped.kill()
        shutil.rmtree(wiped.data)
        wiped.start()
        sleeper.cont()
        wait_until(lambda: waits(wiped, f"picket cluster replace {wiped.name}"),
                   what="the wiped node's words")
        with sleeper.connect() as c:
            equal(c.ask("CLUSTER", "STATUS")["serving"], 0)
        leader.start()
        after = tokens_of(cluster.leader(), 1)
        check(after[0] > max(before), f"{after} after {before}")


@test
def wiped_majority__does_not_begin_anew(t):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        before = tokens_of(cluster.leader(), 3)
        *lost, survivor = cluster.nodes  # the one that founded the cluster is lost
        with cluster.leader().connect() as leader, survivor.connect() as c:
            last = leader.ask("CLUSTER", "STATUS")["last_index"]
            wait_until(lambda: c.ask("CLUSTER", "STATUS")["applied_index"] >= last,
                       what="the survivor to know all grants")
        for n in cluster.nodes:
            n.kill()
        for n in lost:
            shutil.rmtree(n.data)
        for n in cluster.nodes:
            n.start()
        for n in lost:
            wait_until(lambda n=n: waits(n, f"picket cluster replace {n.name}"),
                       what=f"the words of {n.name}")
            with n.connect() as c:
                equal(c.ask("CLUSTER", "STATUS")["serving"], 0)
        for n in cluster.nodes:
            n.kill()
        # What the survivor knows goes to a new cluster, and tokens go on above it.
        backup = t.path("backup")
        done = t.picket("cluster", "recover", survivor.data, backup)
        equal((done.returncode, done.stdout), (0, ""))
        contains(done.stderr, f"the log of node {survivor.name} ends with entry")
        for n in cluster.nodes:
            shutil.rmtree(n.data)
            n.start()
        cluster.leader()
        done = t.picket("cluster", "restore", backup, "--yes", "--on", cluster.url)
        equal(done.returncode, 0)
        after = tokens_of(cluster.leader(), 1)
        check(after[0] > max(before) + 2 ** 32 - 1, f"{after} after {before}")


@test
def node__that_slept_through_a_change_can_lead_and_make_one(t):
    with site(t) as cluster:
        s = Site(t, cluster)
        s.change("transfer", "n2")
        n1 = cluster.node("n1")
        n1.kill()
        s.go_on()
        n4 = cluster.join("n4", through=cluster.node("n2"))
        wait_until(lambda: s.node("n4") and s.node("n4")["behind"] == 0)
        s.change("promote", "n4")
        s.go_on()
        n1.start()
        wait_until(lambda: s.node("n1")["behind"] == 0)
        s.change("transfer", "n1")
        s.change("remove", "n3")
        equal(s.roles(), {"n1": "voter", "n2": "voter", "n4": "voter"})
        s.change("transfer", n4.name)
        s.change("add", "n6=127.0.0.1:1", "00000000000000a6")
        equal(s.roles()["n6"], "standby")
        s.change("remove", "n6")
        s.go_on()
        s.end()


@test
def status__shows_who_is_missing(t):
    with site(t) as cluster:
        url = cluster.url
        leader, followers = cluster.leader(), cluster.followers()

        def status(*more, on=url):
            return t.picket("cluster", "status", *more, "--on", on)
        # Any node of the URL leads to the others.
        done = wait_until(lambda: (lambda d: d if d.returncode == 0 else None)(
            status(on=leader.url)), what="a healthy cluster")
        equal(len(done.stdout.splitlines()), 6)
        equal(done.stderr, "")
        equal(done.stdout.splitlines()[-1], "this cluster has 3 voters, 3 of them "
                                            "healthy: it bears 1 more failure")
        row = next(r for r in done.stdout.splitlines() if r.startswith(leader.name))
        equal(row.split()[1:3], ["voter", "leader"])

        followers[0].kill()
        done = wait_until(lambda: (lambda d: d if d.returncode == 2 else None)(status()),
                          what="a cluster without one node")
        contains(done.stdout, "3 voters, 2 of them healthy: it bears 0 more failures")
        row = next(r for r in done.stdout.splitlines() if r.startswith(followers[0].name))
        equal(row.split()[2], "unreachable")

        leader.kill()
        wait_until(lambda: status().returncode == 1, what="no leader")
        contains(status().stdout, "nobody leads this cluster: 1 of 3 voters answer, and "
                                  "it takes 2")
        value = json.loads(status("-o", "json").stdout)
        equal(value["leader"], None)
        done = t.picket("cluster", "transfer", "--on", url)
        equal(done.returncode, 125)
        contains(done.stderr, "nobody leads")
        followers[1].kill()
        done = status()
        equal((done.returncode, done.stdout, done.stderr.count("\n")), (125, "", 1))
        contains(done.stderr, "no node of picket://")


def refusal(c, *words):
    """The error that must come."""
    try:
        reply = c.ask(*words)
    except ServerError as e:
        return str(e)
    raise Failed(f"{words} was answered: {reply}")


@test
def changes__that_cannot_be_are_refused(t):
    with Cluster(t.program, t.path("c"), 1) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c, n1.connect() as slow:
            equal(refusal(c, "CLUSTER", "REMOVE", "n1"),
                  "ERR the last node can't be removed")
            # A node that is not there can be listed, but never catches up.
            equal(c.ask("CLUSTER", "ADD", "n2", f"127.0.0.1:{free_ports(1)[0]}",
                        "00000000000000a2"), "OK")
            slow.socket.sendall(b"PING\r\nCLUSTER PROMOTE n2\r\n")
            equal(slow.reply(), "PONG")
            for words in (("REMOVE", "n2"), ("PROMOTE", "n2")):
                equal(refusal(c, "CLUSTER", *words),
                      "ERR another membership change is under way")
            try:
                raise Failed(f"promoted: {slow.reply()}")
            except ServerError as e:
                equal(e.code, "ERR")
            equal(c.ask("CLUSTER", "REMOVE", "n2"), "OK")
            equal([m["name"] for m in c.ask("CLUSTER", "STATUS")["members"]], ["n1"])


@test
def join__of_a_node_of_another_cluster_is_not_asked_for(t):
    """Whoever restarts a node with the address of the wrong cluster changes nothing."""
    def members(node):
        return [m["name"] for m in node.ask("CLUSTER", "STATUS")["members"]]
    with Cluster(t.program, t.path("a"), 1) as mine, \
            Cluster(t.program, t.path("b"), 1) as other:
        n2 = mine.join("n2", mine.nodes[0])
        wait_until(lambda: members(mine.nodes[0]) == ["n1", "n2"])
        wait_until(lambda: "event=started" in n2.words())
        n2.kill()
        n2.place = ["--join", f"127.0.0.1:{other.nodes[0].port}"]
        n2.start()
        wait_until(lambda: n2.words().count("event=started") == 2)
        equal(members(other.nodes[0]), ["n1"])
        contains(n2.words(), "event=join-refused")
        contains(n2.words(), "another cluster")
        equal(members(mine.nodes[0]), ["n1", "n2"])


@test
def remove__of_a_node_that_never_was_is_refused(t):
    with Cluster(t.program, t.path("c"), 1) as cluster:
        done = t.picket("cluster", "remove", "n9", "--on", cluster.url)
        equal((done.returncode, done.stderr.count("\n")), (125, 1))
        check("is removed" not in done.stderr, done.stderr)


@test
def cluster__finds_a_node_that_answers(t):
    with Cluster(t.program, t.path("c"), 1) as cluster:
        url = cluster.url.replace("picket://", "picket://127.0.0.1:1,")
        done = t.picket("cluster", "limits", "-o", "json", "--on", url)
        equal((done.returncode, done.stderr), (0, ""))
        check(json.loads(done.stdout)["leases"] > 0, done.stdout)


@test
def configure__two_at_once_both_hold(t):
    """Each names what it changes; what the other one changes meanwhile stays."""
    with Cluster(t.program, t.path("c"), 3, flags=["--election-ms", "10000"]) as cluster:
        leader, followers = cluster.leader(), cluster.followers()
        with leader.connect() as a, leader.connect() as b, leader.connect() as other:
            def pending():
                status = other.ask("CLUSTER", "STATUS")
                return status["last_index"] > status["commit_index"]
            for node in followers:
                node.stop()
            a.send("CLUSTER", "CONFIGURE", "leases", 55)
            b.send("CLUSTER", "CONFIGURE", "fences", 66)
            wait_until(pending)
            for _ in range(3):  # in each of these the node reads what has come
                other.ask("CLUSTER", "STATUS")
            for node in followers:
                node.cont()
            equal([c.reply()["status"] for c in (a, b)], ["OK", "OK"])
            limits = other.ask("CLUSTER", "LIMITS")
            equal((limits["leases"], limits["fences"]), (55, 66))


@test
def limits__are_shown_changed_and_the_same_on_every_node(t):
    with site(t) as cluster:
        def limits(node):
            done = t.picket("cluster", "limits", "-o", "json", "--on", node.url)
            equal((done.returncode, done.stderr), (0, ""))
            return json.loads(done.stdout)
        before = limits(cluster.nodes[0])
        # As docs/protocol.md, gate.md and the manual page say.
        equal([before[k] for k in ("fences", "value_bytes", "label_bytes", "replies")],
              [1000000, 65536, 512, 16])
        equal(before["stored_bytes"], 256 << 20)
        done = t.picket("cluster", "configure", "fences=1", "leases=77", "--on",
                        cluster.url)
        equal((done.returncode, done.stdout), (0, ""))
        for node in cluster.nodes:
            equal(limits(node), before | {"fences": 1, "leases": 77})
        claim = lambda name: t.picket("fence", "claim", name, "--token", 1, "--on",
                                      cluster.url)
        equal(claim("first").returncode, 0)
        full = claim("second")
        equal((full.returncode, full.stderr.count("\n")), (125, 1))
        contains(full.stderr, "fences")
        for wrong in ("leases=0", "leeses=5", "leases=many"):
            done = t.picket("cluster", "configure", wrong, "--on", cluster.url)
            equal((wrong, done.returncode, done.stderr.count("\n")), (wrong, 125, 1))
        equal(limits(cluster.nodes[0])["leases"], 77)


@test
def words__that_are_wrong_cost_one_line(t):
    for words, part in (
            ((), "what to do"), (("frob",), "none of status, add"),
            (("status", "x"), "no words"), (("add",), "NAME=HOST:PORT"),
            (("add", "n4"), "NAME=HOST:PORT"), (("promote",), "NAME"),
            (("remove",), "NAME"), (("transfer", "a", "b"), "at most one"),
            (("backup",), "FILE"), (("restore",), "FILE"),
            (("configure",), "NAME=VALUE"), (("configure", "leases"), "NAME=VALUE"),
            (("status", "--force"), "is for backup"), (("status", "--yes"), "restore"),
            (("remove", "n1", "-o", "json"), "status and limits"),
            (("status", "--on", "local:"), "not a cluster"),
            (("status", "--on", "picket:x"), "two slashes"),
            (("status", "--on", "picket://h:0"), "port"),
            (("remove", "n1", "--on", "picket://127.0.0.1:1"), "no leader that answers"),
            (("status", "--on", "picket://127.0.0.1:1"), "refused")):
        done = t.picket("cluster", *words, env={"PICKET_URL": "picket://127.0.0.1:1"})
        equal((words, done.returncode, done.stdout), (words, 125, ""))
        check(done.stderr.startswith("picket: ") and done.stderr.count("\n") == 1,
              f"{words}: not one line: {done.stderr!r}")
        check(part in done.stderr, f"{words}: {part!r} is not in {done.stderr!r}")
    done = t.picket("cluster", "status", env={"PICKET_URL": ""})
    contains(done.stderr, "which cluster?")


main()

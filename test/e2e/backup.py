# SPDX-License-Identifier: MIT
"""Backup and restore, a full disk, and a damaged log."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading

from cluster import Cluster, Connection, ServerError
from fakes import FakeNode, encode, member, says
from tap import Failed, check, contains, equal, main, skip, test, wait_until

LONG_MS = 3600000
LEAP = 2**32
BIG = 60000  # bytes of a value, just below the limit


def refusal(c, *words):
    """The error that must come."""
    try:
        reply = c.ask(*words)
    except ServerError as e:
        return e
    raise Failed(f"{words} was answered: {reply}")


def hold(c, name):
    lease = c.ask("LEASE", "OPEN", LONG_MS)["lease"]
    return lease, c.ask("LOCK", "ACQUIRE", lease, name)["token"]


def grant(t, url, name):
    done = t.picket("acquire", "-o", "json", name, "--on", url)
    equal((done.returncode, done.stderr), (0, ""))
    return json.loads(done.stdout)["token"]


def ok(done):
    equal((done.args[1:], done.returncode), (done.args[1:], 0))
    return done


def ended(c):
    """True once the other side has closed the connection."""
    try:
        c.socket.settimeout(10)
        while c.socket.recv(65536):
            pass
        return True
    except ConnectionError:
        return True


@test
def restore__ends_all_leases_and_raises_all_tokens(t):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        url, leader = cluster.url, cluster.leader()
        cli = lambda *w: t.picket("cluster", *w, "--on", url)
        with leader.connect() as holder, leader.connect() as later, \
                leader.connect() as watcher:
            lease, first = hold(holder, "old")
            for i in range(20):
                holder.ask("FENCE", "SET", f"fence/{i}", first, chr(ord("a") + i) * BIG)
            said = ok(cli("backup", t.path("b"))).stderr
            contains(said, " bytes in ")
            contains(said, "verified: the state of node n")
            check("event=backup" not in leader.words(), "the leader had to do it")
            check(any("event=backup" in n.words() for n in cluster.followers()),
                  "no follower says that it was backed up")
            check(os.path.getsize(t.path("b")) > 16 * 64 * 1024, "fits into one piece")

            # Life goes on, and all of it will be undone, but for the tokens.
            holder.ask("FENCE", "SET", "fence/0", first, "newer")
            late, _ = hold(later, "late")
            job = t.start("run", "--on", url, "--ttl", "30s", "job", "--", "sleep", "99")
            wait_until(lambda: t.picket("show", "-q", "job", "--on", url).returncode == 0)
            tokens = [first] + [grant(t, url, f"l{i}") for i in range(5)]
            watcher.ask("LOCK", "WATCH")
            equal(ok(cli("restore", t.path("b"), "--yes")).stdout, "")

            event = holder.push()
            equal(event[:2], ["event", "lease-ended"])
            equal((event[2]["lease"], event[2]["end"]), (lease, "restored"))
            check(ended(later), "the holder of a later lease was not told")
            kinds = []
            while "gap" not in kinds:
                kinds.append(watcher.push()[1])
            check("leapt" in kinds, f"the watcher was told {kinds}")
            equal(job.wait(20), 123)
            with cluster.leader().connect() as c:
                # A new lease is nobody's old one, which would be renewed by two.
                new, _ = hold(c, "mine")
                check(new not in (lease, late), f"lease {new} is there again")
                for old in (lease, late):
                    equal(refusal(c, "LEASE", "RENEW", old).code, "LOST")
                    with contextlib.suppress(ServerError):
                        c.ask("LEASE", "CLOSE", old)
                rows = c.ask("LOCK", "LIST")["rows"]
                equal([r["name"] for r in rows], ["mine"])
                equal(c.ask("FENCE", "GET", "fence/0")["value"], "a" * BIG)
            token = grant(t, url, "old")
            check(token > max(tokens) + LEAP // 2, f"token {token} after {max(tokens)}")

        # Once more, through a follower: tokens leap again.
        follower = cluster.followers()[0]
        ok(t.picket("cluster", "backup", t.path("b2"), "--on", follower.url))
        with open(t.path("b2"), "rb") as f:
            ok(t.picket("cluster", "restore", "-", "--yes", "-q", "--on", follower.url,
                        stdin=f))
        again = grant(t, url, "old")
        check(again > token + LEAP // 2, f"token {again} after {token}")
        # And what was restored survives the loss of a node, like everything else.
        cluster.leader().kill()
        check(grant(t, url, "new") > again, "tokens don't grow")


@test
def restore__works_in_a_new_cluster(t):
    with Cluster(t.program, t.path("a"), 1) as old:
        token = grant(t, old.url, "db")
        ok(t.picket("fence", "put", "r", "--token", token, "kept", "--on", old.url))
        ok(t.picket("cluster", "configure", "leases=77", "--on", old.url))
        done = ok(t.picket("cluster", "backup", "-", "--on", old.url, text=False))
        late = grant(t, old.url, "after the backup")
    with open(t.path("b"), "wb") as f:
        f.write(done.stdout)
    with Cluster(t.program, t.path("b.d"), 1) as new:
        ok(t.picket("cluster", "restore", t.path("b"), "--yes", "--on", new.url))
        check(grant(t, new.url, "db") > late, "a token was given out twice")
        equal(ok(t.picket("fence", "get", "r", "--on", new.url)).stdout, "kept")
        limits = ok(t.picket("cluster", "limits", "-o", "json", "--on", new.url)).stdout
        equal(json.loads(limits)["leases"], 77)


@test
def damaged_backup__is_refused_and_changes_nothing(t):
    with Cluster(t.program, t.path("c"), 1) as cluster:
        url, n1 = cluster.url, cluster.nodes[0]
        with n1.connect() as c:
            lease, token = hold(c, "db")
            ok(t.picket("cluster", "backup", t.path("good"), "--on", url))
            with open(t.path("good"), "rb") as f:
                good = f.read()

            def flipped(at):
                return good[:at] + bytes([good[at] ^ 0x20]) + good[at + 1:]
            bad = [b"", b"PKBK", good[:-1], good + b"\0", good * 2, b"x" * 1000]
            bad += [flipped(at) for at in range(0, len(good), 7)]
            for data in bad:
                with open(t.path("bad"), "wb") as f:
                    f.write(data)
                done = t.picket("cluster", "restore", t.path("bad"), "--yes", "--on", url)
                equal((done.returncode, done.stderr.count("\n")), (125, 1))
                contains(done.stderr, "nothing was changed")
            # The server does not trust the command line to have looked.
            for data in bad[:8]:
                c.ask("CLUSTER", "RESTORE", 0, data)
                equal(refusal(c, "CLUSTER", "ADOPT").code, "BADARG")
            c.ask("CLUSTER", "RESTORE", 0, good[:10])
            equal(refusal(c, "CLUSTER", "RESTORE", 11, good[11:]).code, "BADARG")
            equal(refusal(c, "CLUSTER", "RESTORE", "x", good).code, "ERR")
            equal(refusal(c, "CLUSTER", "RESTORE", 0, b"x" * 262145).code, "BADARG")
            equal(c.ask("LEASE", "RENEW", lease)["status"], "OK")
            c.ask("LOCK", "RELEASE", lease, "db", token)
            equal(hold(c, "db")[1], token + 1)


@test
def files__are_treated_with_care(t):
    with Cluster(t.program, t.path("c"), 1) as cluster:
        cli = lambda *w: t.picket("cluster", *w, "--on", cluster.url)
        t.write("there", "precious")
        done = cli("backup", t.path("there"))
        equal(done.returncode, 125)
        contains(done.stderr, "--force")
        equal(t.read("there"), "precious")
        ok(cli("backup", t.path("there"), "--force"))
        check(open(t.path("there"), "rb").read(4) == b"PKBK", "not replaced")
        equal(os.stat(t.path("there")).st_mode & 0o777, 0o600)
        for words, part in ((("backup", t.path("no/such")), "No such file"),
                            (("restore", t.path("no/such"), "--yes"), "No such file"),
                            (("restore", t.path("there")), "--yes")):
            done = cli(*words)
            equal((words, done.returncode, done.stderr.count("\n")), (words, 125, 1))
            contains(done.stderr, part)
        equal([f for f in os.listdir(t.dir) if f.endswith(".part")], [])
        with open(t.path("large"), "wb") as f:
            f.truncate((4 << 30) + 1)
        done = cli("restore", t.path("large"), "--yes")
        equal((done.returncode, done.stderr.count("\n")), (125, 1))
        contains(done.stderr, "at most 4 GiB; nothing was changed")


@test
def restore__that_may_have_been_done_is_told_so(t):
    with Cluster(t.program, t.path("c"), 1) as cluster:
        ok(t.picket("cluster", "backup", t.path("b"), "--on", cluster.url))
    for word, wanted in (("RESTORE", ["RESTORE"] * 9),  # three times each, three starts
                         ("ADOPT", ["RESTORE"] + ["ADOPT"] * 3)):
        with FakeNode() as node:
            node.status = says("n1", [member("n1", node)], leader="n1")
            node.answer = lambda words, word=word: (
                "+OK\r\n" if words[-1] == "INFO" or words[1] != word
                else "-UNKNOWN the leader is gone\r\n")
            done = t.picket("cluster", "restore", t.path("b"), "--yes", "--on",
                            f"picket://127.0.0.1:{node.port}")
            equal((done.returncode, done.stderr.count("\n")), (125, 1))
            contains(done.stderr, "it may or may not have been done")
            equal([w[1] for w in node.asked if w != ["INFO"]], wanted)


# ---- in chunks ----

def fill(c, n):
    """So many registers with a value of BIG bytes; returns a token."""
    _, token = hold(c, "filler")
    for i in range(n):
        c.ask("FENCE", "SET", f"fence/{i}", token, chr(ord("a") + i % 26) * BIG)
    return token


def chunk(c, *words):
    return c.ask("CLUSTER", "BACKUP", *words).encode("utf-8", "surrogateescape")


class Writer:
    """Takes and gives back a lock without end; .tokens are those that it got."""

    def __init__(self, cluster, name):
        self.tokens, self.stops = [], False
        self.thread = threading.Thread(target=self._run, args=(cluster, name))
        self.thread.start()

    def _run(self, cluster, name):
        while not self.stops:
            with contextlib.suppress(OSError, ServerError), \
                    cluster.leader().connect() as c:
                lease = c.ask("LEASE", "OPEN", LONG_MS)["lease"]
                while not self.stops:
                    self.tokens.append(c.ask("LOCK", "ACQUIRE", lease, name)["token"])
                    c.ask("LOCK", "RELEASE", lease, name, self.tokens[-1])

    def more(self):
        """Waits until it has got another one."""
        seen = len(self.tokens)
        wait_until(lambda: len(self.tokens) > seen, what="another token")

    def __enter__(self):
        self.more()
        return self

    def __exit__(self, *_):
        self.stops = True
        self.thread.join()


@test
def backup__comes_in_chunks_from_any_node_while_it_works(t):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        with cluster.leader().connect() as c:
            fill(c, 6)
        node = cluster.followers()[0]
        with Writer(cluster, "busy"), node.connect() as c, node.connect() as other:
            seen = cluster.leader().ask("CLUSTER", "STATUS")["commit_index"]
            of = c.ask("CLUSTER", "BACKUP", "AFTER", seen)
            equal(of["node"], node.name)
            check(of["index"] >= seen, str(of))
            check(of["bytes"] > 5 * BIG and of["last_token"] > 0, str(of))
            check(0 < of["index"] <= c.ask("CLUSTER", "STATUS")["applied_index"], str(of))
            key, size = of["id"], of["bytes"]
            # One at a time, and nobody takes it away from who reads it.
            equal(refusal(other, "CLUSTER", "BACKUP").code, "BUSY")
            first = chunk(c, key, 0)
            equal(len(first), 256 * 1024)
            data = first
            while piece := chunk(c, key, len(data), 50000):
                data += piece
            equal(len(data), size)
            # Any part again, for whoever knows the id, in RESP2 too.
            with Connection(node.port) as old:
                equal(chunk(old, key, 100, 1000), data[100:1100])
                equal(chunk(old, key, size), b"")
            for words, code in (((key + 1, 0), "NOTFOUND"), ((key, size + 1), "BADARG"),
                                ((key, "x"), "BADARG"), ((key, 0, 0), "BADARG"),
                                ((key, 0, 256 * 1024 + 1), "BADARG"), ((key,), "ERR"),
                                (("x", 0), "ERR"), ((key, 0, 1, 2), "ERR")):
                equal((words, refusal(c, "CLUSTER", "BACKUP", *words).code),
                      (words, code))
            equal(c.ask("CLUSTER", "BACKUP", key, "END"), "OK")
            equal(refusal(c, "CLUSTER", "BACKUP", key, 0).code, "NOTFOUND")
            equal(c.ask("CLUSTER", "BACKUP", key, "END"), "OK")
            check(other.ask("CLUSTER", "BACKUP")["id"] != key, "the same id again")
        with open(t.path("b"), "wb") as f:
            f.write(data)
        ok(t.picket("cluster", "restore", t.path("b"), "--yes", "--on", cluster.url))
        done = ok(t.picket("fence", "get", "fence/5", "--on", cluster.url))
        equal(done.stdout, "f" * BIG)


@test
def backup__waits_for_an_entry_and_no_longer_than_its_client(t):
    with Cluster(t.program, t.path("c"), 1) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c:
            later = n1.ask("CLUSTER", "STATUS")["commit_index"] + 3
            c.send("CLUSTER", "BACKUP", "AFTER", later)
            wait_until(lambda: is_busy(n1), what="a backup that waits")
            with n1.connect() as other:
                for _ in range(3):
                    other.ask("LEASE", "OPEN", LONG_MS)
            check(c.reply()["index"] >= later, "it was made too early")
        with n1.connect() as c:
            c.ask("CLUSTER", "BACKUP", "1", "END")
        n1.restart()
        cluster.leader()
        with n1.connect() as c:
            c.send("CLUSTER", "BACKUP", "AFTER", 1 << 40)
            wait_until(lambda: is_busy(n1), what="a backup that waits")
        wait_until(lambda: not is_busy(n1), what="the end of a wait for nobody")


def is_busy(node):
    """Whether the node makes or keeps a backup for another client. If not, one is made
    and dropped."""
    with node.connect() as c:
        try:
            c.ask("CLUSTER", "BACKUP", c.ask("CLUSTER", "BACKUP")["id"], "END")
            return False
        except ServerError as e:
            equal(e.code, "BUSY")
            return True


@test
def backup__goes_on_with_another_node_when_its_node_is_killed(t):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        with cluster.leader().connect() as c:
            fill(c, 5)

        def killed_half_way(file, *options):
            """The node that was killed, the exit code, and what was said in the end."""
            before = [n.words().count("event=backup") for n in cluster.nodes]
            job = t.start("cluster", "backup", t.path(file), "--rate", "40K", *options,
                          "--on", cluster.url)
            part = t.path(file + ".part")
            wait_until(lambda: os.path.exists(part) and os.path.getsize(part) > 0)
            job.send_signal(signal.SIGSTOP)
            check(not os.path.exists(t.path(file)), "it has its name already")
            node = next(n for n, seen in zip(cluster.nodes, before)
                        if n.words().count("event=backup") > seen)
            node.kill()
            job.send_signal(signal.SIGCONT)
            said = job.communicate()[1]
            equal(said.count("\n"), 1)
            check(not os.path.exists(part), "a part was left behind")
            return node, job.returncode, said

        node, code, said = killed_half_way("b")
        equal(code, 0)
        contains(said, "verified: the state of node ")
        check(f"node {node.name} " not in said, said)
        node.start()
        wait_until(lambda: t.picket("cluster", "status", "--on",
                                    cluster.url).returncode == 0)
        ok(t.picket("cluster", "restore", t.path("b"), "--yes", "--on", cluster.url))
        equal(ok(t.picket("fence", "get", "fence/4", "--on", cluster.url)).stdout,
              "e" * BIG)
        # Who wants it of that very node is told that the node is gone.
        name = cluster.followers()[0].name
        node, code, said = killed_half_way("b2", "--from", name)
        equal((node.name, code, os.path.exists(t.path("b2"))), (name, 125, False))
        contains(said, f'node "{name}" does not answer')


@test
def backup__begins_anew_after_one_that_was_killed(t):
    with Cluster(t.program, t.path("c"), 1) as cluster:
        with cluster.leader().connect() as c:
            fill(c, 5)
        words = ("cluster", "backup", t.path("b"), "--on", cluster.url)
        part = t.path("b.part")
        job = t.start(*words, "--rate", "10K")
        wait_until(lambda: os.path.exists(part) and os.path.getsize(part) > 0)
        job.kill()
        job.communicate()
        check(os.path.exists(part) and not os.path.exists(t.path("b")), "it was whole")
        ok(t.picket(*words))
        check(not os.path.exists(part), "the part is still there")
        ok(t.picket("cluster", "restore", t.path("b"), "--yes", "--on", cluster.url))


@test
def progress__is_shown_on_a_terminal(t):
    def shown(*words):
        ours, theirs = os.openpty()
        with os.fdopen(ours, "rb", buffering=0) as f:
            job = t.start("cluster", *words, "--on", cluster.url, stderr=theirs)
            os.close(theirs)
            text = b""
            with contextlib.suppress(OSError):  # the end of a terminal
                while data := f.read(4096):
                    text += data
            equal(job.wait(), 0)
            return text.decode()
    with Cluster(t.program, t.path("c"), 1) as cluster:
        with cluster.leader().connect() as c:
            fill(c, 6)
        said = shown("backup", t.path("b"))
        size = os.path.getsize(t.path("b"))
        for part in (f" % of {size} bytes fetched", f"100 % of {size} bytes fetched",
                     "verified"):
            contains(said, part)
        contains(shown("restore", t.path("b"), "--yes"), f"100 % of {size} bytes sent")
        equal(shown("backup", t.path("q"), "-q"), "")


@test
def backup__from_a_node_that_is_gone_says_what_to_do(t):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        cli = lambda *w: t.picket("cluster", "backup", t.path("b"), *w, "--on",
                                  cluster.url)
        cluster.leader()
        follower = cluster.followers()[0]
        contains(ok(cli("--from", follower.name)).stderr, f"node {follower.name} after")
        os.unlink(t.path("b"))
        follower.kill()
        for words, part in ((("--from", follower.name), "does not answer"),
                            (("--from", "n9"), "is no member"),
                            (("--rate", "fast"), "is not a number"),
                            (("--rate", "0"), "is not a number"),
                            (("--rate", "10MB"), "is not a number")):
            done = cli(*words)
            equal((words, done.returncode, done.stderr.count("\n")), (words, 125, 1))
            contains(done.stderr, part)
        equal([f for f in os.listdir(t.dir) if f.startswith("b")], [])
        ok(cli())
        # A node that waits to be admitted has nothing to be backed up.
        shutil.rmtree(follower.data)
        follower.start()

        def waits():
            with contextlib.suppress(OSError):
                return follower.ask("CLUSTER", "STATUS")["state"] == "waiting"
        wait_until(waits)
        with follower.connect() as c:
            contains(str(refusal(c, "CLUSTER", "BACKUP")), "no state yet")


def fake_backup(data, lost=0):
    """Answers of a node that has the backup `data`, and loses the first chunks."""
    left = [lost]

    def answer(words):
        if words[:2] == ["CLUSTER", "BACKUP"] and words[2:3] in ([], ["AFTER"]):
            return encode({"id": 7, "node": "n1", "index": 5, "cluster_ms": 9,
                           "last_token": 3, "bytes": len(data)})
        if words[-1] == "END":
            return "+OK\r\n"
        left[0] -= 1
        if left[0] >= 0:
            return ""
        at, n = int(words[3]), int(words[4])
        return b"$%d\r\n%s\r\n" % (len(data[at:at + n]), data[at:at + n])
    return answer


@test
def backup__is_fetched_on_after_a_cut_and_verified(t):
    with Cluster(t.program, t.path("c"), 1) as cluster:
        with cluster.leader().connect() as c:
            fill(c, 6)
        ok(t.picket("cluster", "backup", t.path("good"), "--on", cluster.url))
    with open(t.path("good"), "rb") as f:
        good = f.read()
    t.write("there", "precious")
    damaged = good[:70000] + bytes([good[70000] ^ 1]) + good[70001:]
    for data, lost, code in ((good, 0, 0), (good, 3, 0), (damaged, 0, 125),
                             (good[:-1], 0, 125), (good + b"x", 0, 125), (b"x", 0, 125)):
        with FakeNode(fake_backup(data, lost)) as node:
            node.status = says("n1", [member("n1", node)], leader="n1")
            done = t.picket("cluster", "backup", t.path("there"), "--force", "--on",
                            f"picket://127.0.0.1:{node.port}")
            equal((done.returncode, done.stderr.count("\n")), (code, 1))
            with open(t.path("there"), "rb") as f:
                equal(f.read() == (good if code == 0 else b"precious"), True)
            equal(len([w for w in node.asked if w[1:3] == ["BACKUP", "AFTER"]]), 1)
            if code != 0:
                contains(done.stderr, "can't verify")
            else:
                t.write("there", "precious")
            equal(os.path.exists(t.path("there.part")), False)
            done = t.picket("cluster", "backup", "-", "--on",
                            f"picket://127.0.0.1:{node.port}", text=False)
            equal((done.returncode, done.stdout == data), (code, True))


@test
def restore__that_is_broken_off_changes_nothing(t):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        url = cluster.url
        with cluster.leader().connect() as c:
            fill(c, 5)
        ok(t.picket("cluster", "backup", t.path("b"), "--on", url))
        with open(t.path("b"), "rb") as f:
            data = f.read()
        pieces = [(at, data[at:at + 65536]) for at in range(0, len(data), 65536)]
        with cluster.leader().connect() as c:
            lease, token = hold(c, "mine")
            for at, piece in pieces[:3]:
                c.ask("CLUSTER", "RESTORE", at, piece)
            equal(c.ask("LEASE", "RENEW", lease)["status"], "OK")
            equal(c.ask("LOCK", "SHOW", "mine")["holders"], 1)
            equal(hold(c, "other")[1], token + 1)
        # The pieces are replicated: another leader goes on where this one stopped.
        cluster.leader().kill()
        with cluster.leader().connect() as c:
            equal(refusal(c, "CLUSTER", "RESTORE", pieces[2][0], b"again").code, "BADARG")
            for at, piece in pieces[3:]:
                c.ask("CLUSTER", "RESTORE", at, piece)
            equal(c.ask("LEASE", "RENEW", lease)["status"], "OK")
            # A new beginning drops all of them.
            c.ask("CLUSTER", "RESTORE", 0, b"nothing")
            equal(refusal(c, "CLUSTER", "ADOPT").code, "BADARG")
            equal(refusal(c, "CLUSTER", "ADOPT").code, "BADARG")
            equal(c.ask("LEASE", "RENEW", lease)["status"], "OK")
        ok(t.picket("cluster", "restore", t.path("b"), "--yes", "--rate", "1G", "--on",
                    url))
        with cluster.leader().connect() as c:
            equal(refusal(c, "LEASE", "RENEW", lease).code, "LOST")
            check(hold(c, "mine")[1] > token + LEAP // 2, "tokens did not leap")


@test
def restore__under_load_lets_tokens_only_grow(t):
    with Cluster(t.program, t.path("c"), 3) as cluster:
        with cluster.leader().connect() as c:
            fill(c, 5)
        with Writer(cluster, "a") as a, Writer(cluster, "b") as b:
            for i in range(3):
                ok(t.picket("cluster", "backup", t.path(f"b{i}"), "--on", cluster.url))
                a.more()
            for i in (2, 0, 1):
                ok(t.picket("cluster", "restore", t.path(f"b{i}"), "--yes", "--on",
                            cluster.url))
                a.more()
                b.more()
        for w in (a, b):
            check(all(x < y for x, y in zip(w.tokens, w.tokens[1:])), "tokens fell")
            check(w.tokens[-1] > 3 * LEAP, f"{w.tokens[-1]} after three restores")
        equal(len(set(a.tokens) & set(b.tokens)), 0)


# ---- the disk ----

class Disk:
    """A small file system, which only we and what we start can see."""

    def __init__(self, path, megabytes):
        os.mkdir(path)
        self.path = path
        self.filler = os.path.join(path, "filler")
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m",
                               "picket-test", path], check=False, capture_output=True)
        if done.returncode != 0:
            skip("mounting a small file system is not permitted here")

    def fill(self):
        with open(self.filler, "wb", buffering=0) as f, contextlib.suppress(OSError):
            while True:
                f.write(b"x" * 65536)

    def give_back(self, megabytes):
        os.truncate(self.filler, os.path.getsize(self.filler) - (megabytes << 20))

    def free(self):
        os.unlink(self.filler)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run(["umount", "-l", self.path], check=False)


@test
def full_disk__refuses_and_recovers(t):
    with Disk(t.path("disk"), 48) as disk, \
            Cluster(t.program, t.path("disk/c"), 1) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c:
            lease, token = hold(c, "db")
            disk.fill()
            # What little is left is for the log, not for a backup.
            disk.give_back(16)
            equal(refusal(c, "CLUSTER", "BACKUP").code, "NOSPACE")
            contains(n1.words(), "event=backup-failed")
            equal(c.ask("LEASE", "RENEW", lease)["status"], "OK")
            disk.fill()
            # The log has some room set aside; use it up.
            written = {}

            def write(i):
                try:
                    value = f"{i} " + "v" * BIG
                    c.ask("FENCE", "SET", f"r{i % 10}", token, value, "REQUEST", i + 1)
                    written[f"r{i % 10}"] = value
                    return None
                except ServerError as e:
                    return e
            error = next(filter(None, map(write, range(2000))), None)
            check(error is not None, "120 MB went onto a disk of 48 MB")
            equal(str(error).partition(":")[0],
                  "NOSPACE the disk is full; nothing was changed")
            for i in range(2000, 2020):
                equal(write(i).code, "NOSPACE")
            equal(refusal(c, "LOCK", "RELEASE", lease, "db", token).code, "NOSPACE")
            equal(c.ask("PING"), "PONG")
            check(n1.alive(), "the node has ended")
            check(n1.metric("picket_no_space_total") >= 22, "refusals are not counted")
            check(n1.metric("picket_commands_refused_total") >= 1, "nothing was refused")

            disk.free()
            wait_until(lambda: write(5000) is None, what="recovery")
            for name, value in written.items():
                equal(c.ask("FENCE", "GET", name)["value"], value)
            check(hold(c, "other")[1] > token, "tokens don't grow")
        # What was acknowledged is on the disk, and the node can start from it.
        n1.restart()
        with cluster.leader().connect() as c:
            for name, value in written.items():
                equal(c.ask("FENCE", "GET", name)["value"], value)
            equal(c.ask("LEASE", "RENEW", lease)["status"], "OK")


main(on_disk=True)

# SPDX-License-Identifier: MIT
"""`picket serve` and `picket dev`: a node's life, its doors, and whom it serves."""
import contextlib
import datetime
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

from cluster import READY_S, Cluster, Connection, ServerError, fields, free_ports, get
from tap import Failed, alive, check, contains, equal, main, skip, test, wait_until

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


# ---- life ----

@test
def restart__keeps_holds_and_tokens(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c:
            lease = open_lease(c)
            token = acquire(c, lease, "db")
        for end in (n1.terminate, n1.kill):
            before = n1.words().count("event=stopped")
            code = end()
            check(code in (0, None), f"exit code {code}")
            equal(n1.words().count("event=stopped") - before, 1 if code == 0 else 0)
            n1.start()
            cluster.leader()
            with n1.connect() as c:
                rows = c.ask("LOCK", "SHOW", "db")["rows"]
                equal([r["token"] for r in rows if r["kind"] == "hold"], [1])
                equal(c.ask("LEASE", "RENEW", lease)["status"], "OK")
                new = acquire(c, lease, f"other-{token}")
                check(new > token, f"token {new} after {token}")
                token = new


@test
def sigterm__ends_a_blocked_wait_and_exits_0(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as holder, Connection(n1.port) as waiter:
            acquire(holder, open_lease(holder), "db")
            lease = open_lease(waiter)
            waiter.send("LOCK", "ACQUIRE", lease, "db")
            wait_until(lambda: holder.ask("LOCK", "SHOW", "db").get("waiters"))
            equal(n1.terminate(), 0)
            try:
                check(False, f"the wait was answered: {waiter.reply()}")
            except (ServerError, ConnectionError):
                pass


@test
def sigterm__of_the_leader_hands_over_and_loses_no_answer(t):
    with three(t) as cluster:
        leader = cluster.leader()
        with leader.connect() as c:
            lease = open_lease(c)
            n, names = 200, []
            for i in range(n):
                c.send("LOCK", "ACQUIRE", lease, f"l{i}")
            leader.process.terminate()
            for i in range(n):
                try:
                    equal(c.reply()["status"], "OK")
                    names.append(f"l{i}")
                except ServerError as e:
                    check(e.code in ("NOLEADER", "UNKNOWN", "NOTLEADER"), str(e))
                except ConnectionError:
                    break
        equal(leader.process.wait(20), 0)
        contains(leader.words(), "event=draining")
        contains(leader.words(), "drained=yes")
        other = cluster.leader()
        check(other is not leader, "the leader that ended leads")
        with other.connect() as c:
            rows = c.ask("LOCK", "LIST", "COUNT", 1000).get("rows") or []
        held = {r["name"] for r in rows}
        check(set(names) <= held, f"acknowledged, but gone: {set(names) - held}")


@test
def sigterm__without_a_quorum_refuses_what_is_pending(t):
    with Cluster(t.program, t.path("c"), 3, flags=["--election-ms", "2000"]) as cluster:
        leader, followers = cluster.leader(), cluster.followers()
        with leader.connect() as c, leader.connect() as other:
            lease = open_lease(c)
            for n in followers:
                n.stop()
            for i in range(10):
                c.send("LOCK", "ACQUIRE", lease, f"l{i}")

            def pending():
                status = other.ask("CLUSTER", "STATUS")
                return status["last_index"] > status["commit_index"]
            wait_until(pending)
            leader.process.terminate()
            codes = []
            for _ in range(10):
                try:
                    raise Failed(f"answered: {c.reply()}")
                except ServerError as e:
                    codes.append(e.code)
            # What is in the log may yet happen; what is not, won't.
            equal((codes[0], set(codes) - {"UNKNOWN", "NOLEADER"}), ("UNKNOWN", set()))
        equal(leader.process.wait(20), 0)
        for n in followers:
            n.cont()


def log_ms(words, event):
    """When a node logged this event, in ms."""
    ts = re.search(rf"ts=(\S+) level=info event={event} ", words)[1]
    at = datetime.datetime.fromisoformat(ts.replace("Z", "+00:00"))
    return at.timestamp() * 1000


def is_full(node):
    """Whether it takes in no more requests of the client that reads no answers."""
    before = node.metric("picket_requests_total")
    time.sleep(0.2)
    return before > 20 and node.metric("picket_requests_total") == before


@test
def sigterm__twice_does_not_wait(t):
    """Answers that nobody takes are waited for, 5 s at most, unless it is asked again. A
    machine that stands still for as long proves nothing: then once more."""
    for attempt in range(5):
        with Cluster(t.program, t.path(f"c{attempt}"), 1) as cluster:
            n1 = cluster.nodes[0]
            with n1.connect() as c:
                c.ask("LOCK", "ACQUIRE", open_lease(c), "db", "VALUE", "v" * 60000)
                c.socket.sendall(b"LOCK SHOW db\r\n" * 1000)  # 60 MB of answers
                wait_until(lambda n=n1: is_full(n), what="answers that nobody takes")
                n1.process.terminate()
                wait_until(lambda n=n1: "event=draining" in n.words(), what="draining")
                n1.process.terminate()
                equal(n1.process.wait(), 0)
            words = n1.words()
        contains(words, "drained=no")
        if log_ms(words, "stopping") - log_ms(words, "draining") < 5000:
            return
    raise Failed("it waits although it was asked twice")


@test
def options__that_are_not_given_have_their_defaults(t):
    """In a network of its own, where nobody else has those ports."""
    script = f"ip link set lo up && exec {t.program} serve --log json"
    p = subprocess.Popen(["unshare", "-n", "sh", "-c", script], cwd=t.dir, text=True,
                         env=t.env, stderr=subprocess.PIPE)
    line = p.stderr.readline()
    if not line.startswith("{"):
        skip("making a network is not permitted here: " + line)
    event = json.loads(line)
    equal([event[k] for k in ("event", "node", "clients", "http", "raft")],
          ["started", "n1", "127.0.0.1:7420", "127.0.0.1:7421", "127.0.0.1:7422"])
    mode = os.stat(t.path("picket-data")).st_mode
    equal(mode & 0o777, 0o700)
    p.terminate()
    equal(p.wait(), 0)


@test
def advertised__host_is_what_others_are_told(t):
    with Cluster(t.program, t.path("c"), 3, flags=["--advertise", "localhost"]) as c:
        leader, follower = c.leader(), c.followers()[0]

        def told():
            with follower.connect() as k:
                return str(refusal(k, "LEASE", "OPEN", 1000))
        wait_until(lambda: told() == f"NOTLEADER localhost:{leader.port}",
                   what="the leader's address")
        equal(t.picket("run", "db", "--on", follower.url, "--", "true").returncode, 0)


@test
def sigterm__twice_waits_for_nobody_and_answers_what_is_pending(t):
    with Cluster(t.program, t.path("c"), 3, flags=["--election-ms", "2000"]) as cluster:
        leader, followers = cluster.leader(), cluster.followers()
        with leader.connect() as c, leader.connect() as other:
            for n in followers:
                n.stop()
            c.send("LEASE", "OPEN", LONG_MS)

            def pending():
                status = other.ask("CLUSTER", "STATUS")
                return status["last_index"] > status["commit_index"]
            wait_until(pending)
            leader.process.terminate()
            wait_until(lambda: "event=draining" in leader.words())
            leader.process.terminate()
            try:
                raise Failed(f"answered: {c.reply()}")
            except ServerError as e:
                equal(e.code, "UNKNOWN")
        equal(leader.process.wait(20), 0)
        for n in followers:
            n.cont()


@test
def config_file__counts_less_than_the_command_line(t):
    port, raft = free_ports(2)
    t.write("n.conf", f"# a remark\n\nname = from-file\nlisten = 127.0.0.1:{port}\n"
            f"raft=127.0.0.1:{raft}\nhttp = off\nlog = json\ndata = {t.path('d')}\n")
    p = t.start("serve", "--config", t.path("n.conf"), "--name", "mine")
    event = json.loads(p.stderr.readline())
    equal((event["event"], event["node"], event["clients"]),
          ("started", "mine", f"127.0.0.1:{port}"))
    p.terminate()
    equal(p.wait(10), 0)
    t.write("n.conf", "name = n1\nlisten 127.0.0.1:1\n")
    done = t.picket("serve", "--config", t.path("n.conf"))
    equal(done.returncode, 125)
    contains(done.stderr, "n.conf:2: a line is NAME = VALUE")


# ---- what is refused ----

@test
def bad_flags__cost_one_line(t):
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    for words, part in (
            (("--name", "no blanks"), "letters, digits"),
            (("--name", "x" * 64), "1 to 63 bytes"),
            (("--log", "xml"), "text or json"),
            (("--election-ms", "1"), "50 to 60000"),
            (("--connections", "0"), "whole number"),
            (("--listen", "nonsense"), "HOST:PORT"),
            (("--listen", "127.0.0.1:99999"), "65535"),
            (("--listen", f"127.0.0.1:{port}"), "address already in use"),
            (("--http", f"127.0.0.1:{port}"), "in use"),
            (("--raft", f"127.0.0.1:{port}"), "in use"),
            (("--raft", "127.0.0.1"), "HOST:PORT"),
            (("--cluster", "n1=127.0.0.1:7,n2=127.0.0.1:8"), "1, 3 or 5"),
            (("--cluster", "n1=127.0.0.1:7,n1=127.0.0.1:8,n3=127.0.0.1:9"), "same name"),
            (("--cluster", "n2=127.0.0.1:7"), "no node n1 in it"),
            (("--cluster", "127.0.0.1:7"), "NAME=HOST:PORT"),
            (("--cluster", "n1=127.0.0.1:0"), "can't be 0"),
            (("--join", "127.0.0.1:1", "--cluster", "n1=127.0.0.1:7"), "either"),
            (("--join", "127.0.0.1:1"), "refused"),
            (("--config", "no-such-file"), "no-such-file"),
            (("--data", "no/such/parent"), "No such file"),
            (("--frob",), "no option --frob"),
            (("word",), "one word too many")):
        flags = {"--listen": "127.0.0.1:0", "--http": "off", "--raft": "127.0.0.1:0",
                 "--data": t.path(f"d{abs(hash(words))}")}
        flags |= dict(zip(words[::2], words[1::2])) if len(words) > 1 else {}
        given = [w for pair in flags.items() for w in pair]
        done = t.picket("serve", *given, *(words if len(words) == 1 else ()))
        equal((words, done.returncode, done.stdout), (words, 125, ""))
        check(done.stderr.startswith("picket") and done.stderr.count("\n") == 1,
              f"{words}: not one line: {done.stderr!r}")
        check(part in done.stderr, f"{words}: {part!r} is not in {done.stderr!r}")
    taken.close()


@test
def data_directory__of_somebody_else_is_refused(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        flags = ["--listen", "127.0.0.1:0", "--http", "off", "--raft", "127.0.0.1:0"]
        done = t.picket("serve", *flags, "--data", n1.data)
        equal(done.returncode, 125)
        contains(done.stderr, f"in use by process {n1.pid}")
        check(n1.serves(), "the node that has it is gone")
        n1.terminate()
        done = t.picket("serve", *flags, "--data", n1.data, "--name", "n9")
        equal(done.returncode, 125)
        contains(done.stderr, "belongs to node n1, not n9")
        os.unlink(os.path.join(n1.data, "identity"))
        done = t.picket("serve", *flags, "--data", n1.data)
        equal(done.returncode, 125)
        contains(done.stderr, "picket cluster replace")
        os.mkdir(t.path("photos"))
        t.write("photos/cat.jpg", "")
        done = t.picket("serve", *flags, "--data", t.path("photos"))
        equal(done.returncode, 125)
        contains(done.stderr, "not a Picket data directory")


# ---- looking at it ----

@test
def http__shows_metrics_and_health(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        with n1.connect() as c:
            lease = open_lease(c)
            acquire(c, lease, "db")
            with contextlib.suppress(ServerError):
                c.ask("LOCK", "TRY", open_lease(c), "db")
        status, text = get(n1, "/metrics")
        equal(status, 200)
        for line in text.splitlines():
            if not line.startswith("#"):
                check(re.fullmatch(r"[a-z_]+(\{[^}]*\})? [0-9.e+-]+|.*\+Inf.*", line),
                      f"not a sample: {line!r}")
        for sample in ("picket_locks_held 1", "picket_last_token 1", "picket_leases 2",
                       'picket_lock_acquire_failures_total{reason="busy"} 1',
                       "picket_serving 1"):
            check(f"\n{sample}\n" in text, f"{sample} is not in the metrics")
        equal(get(n1, "/healthz"), (200, "ok\n"))
        equal(get(n1, "/readyz")[0], 200)
        contains(get(n1, "/")[1], "n1")
        equal(get(n1, "/no-such-page")[0], 404)
        equal(get(n1, "/metrics", "POST")[0], 405)
        equal(get(n1, "/metrics", headers={"Origin": "http://evil.example"})[0], 403)


@test
def shadow_mode__is_counted_where_it_is_run_and_outlives_the_leader(t):
    with three(t) as cluster:
        leader = cluster.leader()
        with leader.connect() as c:
            c.ask("FENCE", "MODE", "disk", "shadow", 0)
            equal(c.ask("FENCE", "CHECK", "disk", 2)["would"], "UNCLAIMED")
            c.ask("FENCE", "CLAIM", "disk", 2)
            equal(c.ask("FENCE", "SET", "disk", 1, "late")["would"], "STALE")
            equal(c.ask("FENCE", "CHECK", "disk", 1)["would"], "STALE")
        for node in cluster.nodes:  # all run the SET, the leader alone answers a CHECK
            asked = int(node is leader)
            for sample in (f'picket_fence_shadowed_total{{reason="stale"}} {1 + asked}',
                           f'picket_fence_shadowed_total{{reason="unclaimed"}} {asked}',
                           'picket_fence_rejected_total{reason="stale"} 0'):
                wait_until(lambda n=node, s=sample: f"\n{s}\n" in get(n, "/metrics")[1])
        leader.kill()
        with cluster.leader().connect() as c:
            reply = c.ask("FENCE", "SHOW", "disk")
            equal((reply["token"], reply["shadow"], reply["shadowed"],
                   reply["value_bytes"]), (2, 1, 1, len("late")))


@test
def kept_registers__end_on_every_node_though_nobody_asks(t):
    with three(t) as cluster:
        leader = cluster.leader()
        with leader.connect() as c:
            for i in range(20):
                c.ask("FENCE", "SET", f"call/{i}", 1, "done", "KEEP", 3000)
            c.ask("FENCE", "SET", "stays", 1, "done", "KEEP", 86400000)
            check(c.ask("FENCE", "SHOW", "stays")["left_ms"] > 43200000, "no end")
        leader.kill()  # the next one ends them
        others = [n for n in cluster.nodes if n is not leader]
        for node in others:
            wait_until(lambda n=node: n.metric("picket_fences") == 1, what="their end")


@test
def readyz__says_no_without_a_leader(t):
    cluster = three(t)
    n1 = cluster.nodes[0]
    try:
        n1.start()

        def health():
            try:
                return get(n1, "/healthz")[0]
            except OSError:
                return None
        equal(wait_until(health), 200)
        wait_until(lambda: get(n1, "/readyz")[1] ==
                   "not ready: nodes that don't answer: "
                   f"n2@127.0.0.1:{cluster.nodes[1].raft_port}, "
                   f"n3@127.0.0.1:{cluster.nodes[2].raft_port}\n", what="its words")
        for n in cluster.nodes[1:]:
            n.start()
        for n in cluster.nodes:
            wait_until(lambda n=n: health() and get(n, "/readyz")[0] == 200)
        for n in cluster.nodes[1:]:
            n.kill()
        wait_until(lambda: get(n1, "/readyz") == (503, "not ready: no leader\n"))
    finally:
        cluster.close()


@test
def log__can_be_parsed_in_both_forms(t):
    field = re.compile(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^ "=]+)(?: |$)')
    for form in ("text", "json"):
        folder = t.path(form)
        with Cluster(t.program, folder, 1, flags=["--log", form]) as cluster:
            cluster.nodes[0].terminate()
            lines = cluster.nodes[0].words().splitlines()
        events = []
        for line in lines:
            if form == "json":
                event = json.loads(line)
            else:
                pairs = field.findall(line)
                equal(" ".join(f"{k}={v}" for k, v in pairs), line)
                event = dict(pairs)
            check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event["ts"]),
                  f"no time: {line}")
            check(event["level"] in ("error", "warn", "info"), f"no level: {line}")
            events.append(event["event"])
        equal((events[0], events[-1]), ("started", "stopped"))
        check({"standing", "serving", "draining", "stopping"} <= set(events), str(events))


# ---- followers ----

@test
def follower__serves_everybody_or_says_who_leads(t):
    with three(t) as cluster:
        leader, (follower, _) = cluster.leader(), cluster.followers()
        with Connection(follower.port) as two, Connection(follower.port) as push:
            push.ask("HELLO", 3)
            mine, theirs = open_lease(two), open_lease(push)
            token = fields(two.ask("LOCK", "ACQUIRE", mine, "db"))["token"]
            equal(push.ask("LOCK", "ACQUIRE", theirs, "db")["status"], "QUEUED")
            two.ask("LOCK", "RELEASE", mine, "db", token)
            _, what, event = push.push()
            equal((what, event["lease"]), ("granted", theirs))
            check(event["token"] > token, "tokens don't grow")
            # Bytes of every size go through, in order.
            big = "x" * 60000
            push.ask("LOCK", "VALUE", theirs, "db", event["token"], big)
            row = fields(fields(two.ask("LOCK", "SHOW", "db"))["rows"][0])
            equal(row["value"], big)
            equal(two.ask("QUIT"), "OK")
        with follower.connect() as c:
            for words in (("LEASE", "OPEN", 1000), ("LOCK", "SHOW", "db")):
                equal(str(refusal(c, *words)), f"NOTLEADER 127.0.0.1:{leader.port}")


@test
def follower__finds_the_new_leader_after_a_kill(t):
    with three(t) as cluster:
        leader, (follower, _) = cluster.leader(), cluster.followers()
        with Connection(follower.port) as c:
            lease = open_lease(c)
            token = fields(c.ask("LOCK", "ACQUIRE", lease, "db"))["token"]
            leader.kill()
            cluster.leader()

            def renewed():
                try:
                    with Connection(follower.port) as again:
                        return fields(again.ask("LEASE", "RENEW", lease))["status"]
                except (ServerError, OSError):
                    return None
            equal(wait_until(renewed), "OK")
            with Connection(follower.port) as again:
                other = fields(again.ask("LOCK", "ACQUIRE", lease, "other"))["token"]
                check(other > token, f"token {other} after {token}")


# ---- the command line beside other clients ----

@test
def release__leaves_the_other_holds_of_the_lease(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        lease = open_lease(c)
        tokens = [acquire(c, lease, name) for name in ("a", "b")]
        for name, token, closed in (("a", tokens[0], False), ("b", tokens[1], True)):
            done = t.picket("release", name, "--token", token, "--lease", lease, "-o",
                            "json", "--on", cluster.url)
            equal((done.returncode, json.loads(done.stdout)["lease_closed"]), (0, closed))
            if not closed:
                equal(c.ask("LOCK", "SHOW", "b")["holders"], 1)


def leases(node):
    return int(re.search(r"^picket_leases (\d+)$", get(node, "/metrics")[1], re.M)[1])


@test
def bench__counts_what_was_done_and_leaves_nothing(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        def bench(*words):
            done = t.picket("bench", "-t", "200ms", "-o", "json", *words, "--on",
                            cluster.url)
            return done.returncode, json.loads(done.stdout), done.stderr
        code, told, said = bench("pairs", "-c", "4")
        equal((code, told["errors"], told["clients"], said), (0, 0, 4, ""))
        check(told["count"] > 0, told)
        equal((told["pair"]["count"], told["release"]["count"]), (told["count"],) * 2)
        wait_until(lambda: leases(cluster.nodes[0]) == 0, what="the end of its leases")
        acquire(c, open_lease(c), "bench/0")
        code, told, said = bench("latency")
        equal((code, told["count"]), (1, 0))
        check(told["errors"] > 0, told)
        contains(said, "the first with: -BUSY")
    for holds, clients in ((10, 3), (2, 16)):
        with Cluster(t.program, t.path(f"c{holds}"), 1) as cluster:
            done = t.picket("bench", "hold", "--holds", holds, "-c", clients, "--on",
                            cluster.url)
            equal((done.returncode, done.stderr), (0, ""))
            listed = t.picket("ls", "-q", "bench/", "--on", cluster.url).stdout
            equal(len(listed.split()), holds)


# ---- picket dev ----

def dev(t, *flags):
    p = t.start("dev", "-o", "json", *flags)
    line = p.stdout.readline()
    check(line != "", "no cluster: " + (p.stderr.read() if line == "" else ""))
    return p, json.loads(line)


@test
def dev__is_a_cluster_until_it_is_ended(t):
    p, told = dev(t)
    equal(len(told["nodes"]), 3)
    picket = lambda *w: t.picket(*w, env={"PICKET_URL": told["url"]})
    equal(picket("run", "db", "--", "true").returncode, 0)
    wait_until(lambda: picket("cluster", "status").returncode == 0)
    n2 = next(n for n in told["nodes"] if n["node"] == "n2")
    os.kill(n2["pid"], signal.SIGKILL)
    said = p.stderr.readline()
    contains(said, "n2 has ended (signal 9)")
    equal(picket("run", "db", "--", "true").returncode, 0)
    # Started again as it says there, it belongs to the cluster, and ends with it.
    words = said.rstrip().partition("start it again: ")[2].split()
    t.start(*words[1:])
    wait_until(lambda: picket("cluster", "status").returncode == 0)
    pids = [n["pid"] for n in told["nodes"] if n is not n2]
    with open(os.path.join(told["dir"], "n2", "lock"), encoding="ascii") as f:
        pids.append(int(f.read()))
    p.terminate()
    equal(p.wait(20), 0)
    check(not any(alive(pid) for pid in pids), "nodes are left")
    check(not os.path.exists(told["dir"]), "its directory is left")


# A node that gives up the lock of its directory when it is told to end, and goes on.
LINGERS = """
import fcntl, os, signal, sys
lock = open(sys.argv[1], "r+")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.truncate()
lock.write(f"{os.getpid()}\\n")
lock.flush()
signal.signal(signal.SIGTERM, lambda *_: fcntl.flock(lock, fcntl.LOCK_UN))
print("ready", flush=True)
while True:
    signal.pause()
"""


@test
def dev__waits_for_the_end_of_a_node_that_was_started_by_hand(t):
    p, told = dev(t)
    n2 = next(n for n in told["nodes"] if n["node"] == "n2")
    os.kill(n2["pid"], signal.SIGKILL)
    contains(p.stderr.readline(), "n2 has ended (signal 9)")
    lingers = subprocess.Popen([sys.executable, "-c", LINGERS,
                                os.path.join(told["dir"], "n2", "lock")],
                               stdout=subprocess.PIPE, text=True)
    equal(lingers.stdout.readline(), "ready\n")
    p.terminate()
    equal(p.wait(), 0)
    check(not alive(lingers.pid), "the node is left")


@test
def dev__takes_its_nodes_along_when_it_is_killed(t):
    p, told = dev(t, "--nodes", "1")
    p.kill()
    wait_until(lambda: not alive(told["nodes"][0]["pid"]), what="the node's end")


@test
def dev__goes_on_with_its_data(t):
    tokens = []
    for _ in range(2):
        p, told = dev(t, "--data", t.path("kept"), "--nodes", "1")
        done = t.picket("acquire", "-o", "json", f"l{len(tokens)}", "--on", told["url"])
        tokens.append((told["url"], json.loads(done.stdout)["token"]))
        second = t.picket("dev", "--data", t.path("kept"))
        equal(second.returncode, 125)
        contains(second.stderr, "in use by another")
        check(alive(told["nodes"][0]["pid"]), "the second has ended the first one's node")
        p.send_signal(signal.SIGINT)
        equal(p.wait(20), 0)
    equal(tokens, [(told["url"], 1), (told["url"], 2)])
    done = t.picket("dev", "--data", t.path("kept"), "--nodes", "3")
    equal(done.returncode, 125)
    contains(done.stderr, "a cluster of 1 nodes")


@test
def dev__says_in_words_what_a_shell_can_use(t):
    p = t.start("dev", "--nodes", "1")
    line = p.stdout.readline()
    check(re.fullmatch(r"export PICKET_URL=picket://127\.0\.0\.1:\d+\n", line), line)
    contains(p.stdout.readline(), "http://127.0.0.1:")
    p.terminate()
    equal(p.wait(20), 0)
    for words, part in ((("--nodes", "2"), "1, 3 or 5"), (("--nodes", "7"), "1 to 5"),
                        (("--data", t.path("no/such")), "No such file"),
                        (("x",), "one word too many")):
        done = t.picket("dev", *words)
        equal((done.returncode, done.stderr.count("\n")), (125, 1))
        contains(done.stderr, part)


# ---- fenced writes ----

@test
def fence__writes_of_many_processes_are_all_done_in_few_entries(t):
    """Each knows nothing of the others' numbers, and no clock helps them."""
    with one(t) as cluster:
        node = cluster.leader()

        def last_index():
            return node.ask("CLUSTER", "STATUS")["last_index"]

        def put(value):
            return [t.program, "fence", "put", "r", "--token", "7", value, "--on",
                    node.url]

        before = last_index()
        for i in range(5):
            equal(subprocess.run(put(f"one {i}"), env=t.env, check=False).returncode, 0)
            got = t.picket("fence", "get", "r", "--on", node.url)
            equal(got.stdout.strip(), f"one {i}")
        together = [subprocess.Popen(put(f"all {i}"), env=t.env) for i in range(8)]
        equal([p.wait() for p in together], [0] * 8)
        check(last_index() - before < 200, f"{last_index() - before} entries")


main(on_disk=True)

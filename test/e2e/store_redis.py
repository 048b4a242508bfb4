#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""redis:// and redlock:// over real servers that are stopped, killed, emptied, cut off,
or no such thing at all."""
import contextlib
import http.server
import os
import re
import signal
import socket
import subprocess
import threading
import types

from cluster import Cluster, Connection, ServerError, free_ports
from databases import Cutter
from holding import freeze, hold, let_go, line_with, ok, parsed, waiting
from lan import Lan
from tap import check, contains, equal, main, test, wait_until
from through import Through

FAST = ("--ttl", "1s", "--lock-delay", "0s")
SLOW = ("--ttl", "60s", "--lock-delay", "0s")
# Renewed every four seconds, and not lost to a machine that pauses for less than eight.
STEADY = ("--ttl", "12s", "--lock-delay", "0s")
KEY = "picket:db"
CALL = os.path.abspath(os.environ.get("LOCK_CALL", "build/test/lock_call"))
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "src",
                      "drivers", "lua", "lock.lua")


class Server:
    """One Redis. Empty again after a kill, unless it has an AOF."""

    def __init__(self, t, *settings, host=None):
        self.t = t
        self.settings = [str(s) for s in settings]
        self.enter = host.enter if host else ()
        self.address = host.address if host else "127.0.0.1"
        self.port, = free_ports(1)
        self.dir = t.path(f"redis-{self.port}")
        self.place = f"{self.address}:{self.port}"
        self.url = f"redis://{self.place}"
        self.password = dict(zip(settings[::2], settings[1::2])).get("--requirepass")
        self.process = None
        os.mkdir(self.dir)
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [*self.enter, "redis-server", "--port", str(self.port), "--bind",
             self.address, "--dir", self.dir, "--save", "", "--protected-mode", "no",
             *self.settings], stdout=subprocess.DEVNULL)
        wait_until(self.answers, what="Redis")

    def answers(self):
        """True once it is more than a process."""
        with contextlib.suppress(OSError, ServerError):  # LOADING
            return self.ask("PING") == "PONG"
        return False

    def ask(self, *words):
        with Connection(self.port, self.address) as c:
            if self.password:
                c.ask("AUTH", self.password)
            return c.ask(*words)

    def keys(self):
        """All but the counters, which stay."""
        return [k for k in self.ask("KEYS", "*") if not k.startswith("picket-token:")]

    def calls(self, command):
        """How often it was asked that."""
        found = re.search(f"cmdstat_{command}:calls=([0-9]+)",
                          self.ask("INFO", "commandstats"))
        return int(found.group(1)) if found else 0

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)

    def cont(self):
        self.process.send_signal(signal.SIGCONT)


def use(t, url):
    t.env["PICKET_URL"] = url


def one(t, *settings):
    server = Server(t, *settings)
    use(t, server.url)
    return server


def five(t):
    servers = [Server(t) for _ in range(5)]
    use(t, "redlock://" + ",".join(s.place for s in servers))
    return servers


def lost(holder):
    """The holder's command was ended because the lock was gone; what it said."""
    equal(holder.wait(), 123)
    said = holder.stderr.read()
    contains(said, "lost")
    return said


def holds(t):
    """The row of whoever holds the lock now; None: nobody does."""
    rows = parsed(t.picket("show", "db", "-o", "json"))["holds"]
    return rows[0] if rows else None


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


def refused(t, url, code, *parts):
    """A lock can't be had there, and one line says why."""
    done = t.picket("run", "-q", "-w", "1s", "db", "--on", url, "--", "true")
    equal(done.returncode, code)
    equal(len(done.stderr.splitlines()), 1)
    check("hunter2" not in done.stderr, "a password was shown")
    for part in parts:
        contains(done.stderr, part)


# ---- one server ----

@test
def redis__a_stopped_server_does_not_keep_the_loss_from_its_holder(t):
    server = one(t)
    holder = hold(t, *FAST, "db")
    server.stop()
    contains(lost(holder), "not renewed")
    server.cont()
    ok(t.picket("run", *FAST, "db", "--", "true"))


@test
def redis__a_server_that_comes_back_empty_ends_the_hold(t):
    server = one(t)
    ok(t.picket("run", *FAST, "db", "--", "true"))
    holder = hold(t, *SLOW, "--ttl", "2s", "db")
    equal(holds(t)["token"], 2)
    server.kill()
    server.start()
    lost(holder)
    ok(t.picket("run", *FAST, "db", "--", "sh", "-c", "test $PICKET_TOKEN = 1"))


@test
def redis__a_server_that_comes_back_with_its_log_keeps_it(t):
    server = one(t, "--appendonly", "yes", "--appendfsync", "always")
    holder = hold(t, *SLOW, "db")
    server.kill()
    server.start()
    equal(t.picket("run", "-n", "db", "--", "true").returncode, 124)
    equal(holds(t)["token"], 1)
    let_go(holder)
    ok(t.picket("run", *FAST, "db", "--", "sh", "-c", "test $PICKET_TOKEN = 2"))


@test
def redis__an_emptied_server_is_noticed_by_the_next_renewal(t):
    server = one(t)
    holder = hold(t, *FAST, "db")
    server.ask("FLUSHALL")
    lost(holder)


@test
def redis__a_key_that_somebody_deletes_is_a_lock_that_is_lost(t):
    """The lease lives, and only the next renewal can tell."""
    server = one(t)
    holder = hold(t, *FAST, "db")
    equal(server.ask("DEL", KEY), 1)
    lost(holder)
    equal(server.keys(), [])


@test
def redis__a_loss_is_told_to_its_owner_whoever_renews_the_lease(t):
    server = one(t)
    holder = hold(t, "--ttl", "3s", "--lock-delay", "0s", "db")
    lease = holds(t)["lease"]
    equal(server.ask("DEL", KEY), 1)
    ok(t.picket("extend", "--lease", lease))
    lost(holder)


@test
def redis__the_script_may_be_forgotten_at_any_time(t):
    server = one(t)
    holder = hold(t, *STEADY, "db")
    server.ask("SCRIPT", "FLUSH")
    wait_until(lambda: server.calls("eval") > 0, what="the whole script")
    let_go(holder)


@test
def redis__a_full_server_says_so_and_lets_holders_go_on(t):
    server = one(t)
    holder = hold(t, *STEADY, "db")
    server.ask("CONFIG", "SET", "maxmemory", 1)
    refused(t, server.url, 125, server.url, "maxmemory")
    seen = []  # a renewal is when the time left goes up

    def renewed():
        seen.append(server.ask("PTTL", KEY))
        return seen[-1] > min(seen)

    wait_until(renewed, what="a renewal")
    let_go(holder)
    equal(server.ask("EXISTS", KEY), 0)


# ---- other clients of the same key ----

# Does to a redis-py lock what it is told, and says what came of it.
REDIS_PY = """
import sys, redis
lock = redis.Redis(port=int(sys.argv[1])).lock(sys.argv[2], timeout=60)
for line in sys.stdin:
    took = lock.acquire(blocking=False) if line == "acquire\\n" else lock.release()
    print(took, flush=True)
"""


class RedisPy:
    """With the interpreter that Debian's python3-redis belongs to."""

    def __init__(self, server, key):
        self.process = subprocess.Popen(
            ["/usr/bin/python3", "-c", REDIS_PY, str(server.port), key], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@test
def redis__a_lock_of_redis_py_keeps_us_out_and_ours_it(t):
    server = one(t)
    theirs = RedisPy(server, KEY)
    equal(theirs.tell("acquire"), "True")
    equal(t.picket("run", "-n", "db", "--", "true").returncode, 124)
    check(holds(t)["left_ms"] > 30000, "its TTL is not shown")
    done = t.picket("break", "db", "--reason", "x")
    equal(done.returncode, 125)
    contains(done.stderr, "another kind of client")
    equal(theirs.tell("release"), "None")
    holder = hold(t, *SLOW, "db")
    equal(theirs.tell("acquire"), "False")
    let_go(holder)
    equal(theirs.tell("acquire"), "True")


@test
def redis__keys_may_have_any_prefix_or_none(t):
    server = one(t)
    for prefix in ("", "app:locks:"):
        holder = hold(t, *SLOW, "--on", f"{server.url}?prefix={prefix}", "db")
        equal(server.ask("EXISTS", f"{prefix}db"), 1)
        ok(t.picket("run", "-n", "db", "--", "true"))  # another key altogether
        let_go(holder)
    refused(t, f"{server.url}?prefix=picket-queue:", 125, "no locks")
    ok(t.picket("fence", "claim", "r", "--token", 1, "--on", f"{server.url}?prefix=x:"))


@test
def redis__a_socket_will_do(t):
    server = one(t, "--unixsocket", t.path("redis.sock"))
    url = f"redis://?socket={t.path('redis.sock')}"
    holder = hold(t, *SLOW, "--on", url, "db")
    waiter = waiting(t, *SLOW, "db")
    equal(server.ask("EXISTS", KEY), 1)
    let_go(holder)
    equal(waiter.wait(), 0)
    use(t, "")
    refused(t, f"redis://?socket={t.path('none.sock')}", 125, "none.sock", "No such file")


@test
def redis__a_waiter_sees_that_another_client_deleted_the_key(t):
    server = one(t)
    server.ask("SET", KEY, "somebody")
    waiter = waiting(t, *SLOW, "db")
    server.ask("DEL", KEY)  # nobody is told of it
    equal(waiter.wait(), 0)


@test
def redis__a_key_of_another_kind_is_in_the_way(t):
    server = one(t)
    server.ask("RPUSH", KEY, "x")
    equal(t.picket("run", "-n", "db", "--", "true").returncode, 124)
    equal(server.ask("LRANGE", KEY, 0, -1), ["x"])


# ---- queues ----

def tree_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [pid] + [p for child in f.read().split() for p in tree_of(int(child))]


@test
def redis__a_waiter_that_died_blocks_nobody(t):
    one(t)
    holder = hold(t, *SLOW, "db")
    dead = waiting(t, *FAST, "db")
    for pid in reversed(tree_of(dead.pid)):  # the guardian too: it would tidy up
        os.kill(pid, signal.SIGKILL)
    dead.wait()
    second = waiting(t, *SLOW, "db")
    let_go(holder)
    equal(second.wait(), 0)


@test
def redis__one_release_wakes_one(t):
    """Everybody listens on a channel of its own, and one word is said on one of them."""
    server = one(t)
    holder = hold(t, *SLOW, "db")
    queue = [waiting(t, *SLOW, "db", command=("sleep", "60")) for _ in range(8)]
    with Connection(server.port) as ear:
        ear.ask("HELLO", 3)
        wait_until(lambda: len(ear.ask("PUBSUB", "CHANNELS")) == 1 + len(queue),
                   what="a channel for everybody")
        channels = ear.ask("PUBSUB", "CHANNELS")
        equal(ear.ask("PUBSUB", "NUMSUB", *channels)[1::2], [1] * len(channels))
        ear.send("PSUBSCRIBE", "*")
        ear.push()
        let_go(holder)
        line_with(queue[0].stderr, "running sleep")
        ear.ask("PING")
        words = [text for *_, text in ear.pushes]
        equal(len([w for w in words if w.startswith("go ")]), 1)


@test
def redis__waiters_come_in_the_order_in_which_they_came(t):
    one(t)
    holder = hold(t, *SLOW, "db")
    write = ("sh", "-c", f"echo $0 >> {t.path('order')}")
    queue = [waiting(t, *SLOW, "db", command=(*write, str(i))) for i in range(5)]
    let_go(holder)
    equal([w.wait() for w in queue], [0] * 5)
    equal(t.read("order").split(), ["0", "1", "2", "3", "4"])


class Script:
    """lock.lua, for what no client would ever ask for: the store must refuse by itself.
    """

    def __init__(self, server):
        self.server = server
        with open(SCRIPT, encoding="utf-8") as f:
            self.text = f.read()

    def call(self, verb, *words):
        return self.server.ask("EVAL", self.text, 0, verb, "picket:", *words)

    def open(self, lease, ttl_ms):
        equal(self.call("open", lease, ttl_ms, "nobody"), ["ok"])

    def stand(self, lease, waits=1):
        return self.call("stand", lease, 1, "db", waits, "card", 6000)


@test
def redis__a_grant_wants_a_lease_that_lives(t):
    server = one(t)
    script = Script(server)
    equal(script.stand(1), ["lost"])
    script.open(1, 60000)
    equal(script.stand(1), ["held", "1"])
    equal(script.stand(1), ["held", "1"])  # again is the same
    equal(script.call("close", 1), ["ok"])
    equal(script.stand(1), ["lost"])
    equal(server.keys(), [])


@test
def redis__nobody_passes_who_waits_and_lives(t):
    server = one(t)
    script = Script(server)
    for lease in (1, 2, 3):
        script.open(lease, 60000)
    server.ask("SET", KEY, "somebody")
    equal(script.stand(1)[0], "first")
    server.ask("DEL", KEY)
    equal(script.stand(2, waits=0), ["none"])
    equal(script.stand(3)[0], "waiting")
    equal(script.stand(1), ["held", "1"])
    server.ask("DEL", KEY)
    equal(script.stand(1), ["none"])  # what is gone does not come back
    equal(script.stand(3), ["held", "2"])


# ---- what is no store for locks ----

@test
def redis__a_wrong_password_is_denied(t):
    server = Server(t, "--requirepass", "secret")
    place = server.place
    refused(t, f"redis://:hunter2@{place}", 122, f"redis://{place}")
    refused(t, f"redis://{place}", 122, "NOAUTH")
    refused(t, f"redlock://:hunter2@{place}", 122, place)
    ok(t.picket("run", "--on", f"redis://:secret@{place}/0", "db", "--", "true"))
    ok(t.picket("run", "--on", f"redis://default:secret@{place}", "db", "--", "true"))


@test
def redis__what_is_no_redis_is_told(t):
    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):  # pylint: disable=arguments-differ
            pass

    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    refused(t, f"redis://127.0.0.1:{web.server_port}", 125, "is no Redis")
    web.shutdown()
    with Cluster(t.program, t.path("c"), 1) as cluster:
        refused(t, f"redis://127.0.0.1:{cluster.nodes[0].port}", 125, "is no Redis")


@test
def redis__a_cluster_and_a_replica_are_refused(t):
    bus, = free_ports(1)
    part = Server(t, "--cluster-enabled", "yes", "--cluster-port", bus)
    refused(t, part.url, 125, "Redis Cluster")
    sentinel = t.write("sentinel.conf", "")
    port, = free_ports(1)
    subprocess.Popen(["redis-server", sentinel, "--sentinel", "--port", str(port),
                      "--bind", "127.0.0.1"],
                     stdout=subprocess.DEVNULL)
    wait_until(lambda: listens(port), what="the Sentinel")
    refused(t, f"redis://127.0.0.1:{port}", 125, "Sentinel")
    master = Server(t)
    replica = Server(t, "--replicaof", f"127.0.0.1 {master.port}")
    refused(t, replica.url, 125, "replica", "master")


@test
def redis__urls_that_are_wrong_are_explained(t):
    for url in ("redis:", "redis://", "redis://h:0", "redis://h/x", "redis://h?what=1",
                "redis://a,b", "redlock://", "redlock://a,a", "redlock://a?socket=x"):
        done = t.picket("run", "-q", "db", "--on", url, "--", "true")
        equal((url, done.returncode, len(done.stderr.splitlines())), (url, 125, 1))
    refused(t, "redis://127.0.0.1:1", 125, "redis://127.0.0.1:1", "refused")


@test
def redis__is_refused_to_who_requires_correctness(t):
    for scheme in ("redis", "redlock"):
        done = t.picket("run", "--require", "correctness", "db", "--on",
                        f"{scheme}://127.0.0.1:1", "--", "true")
        equal(done.returncode, 125)
        contains(done.stderr, "two")


# ---- answers that get lost, and cables ----

def a_word(word):
    """As it is sent in a request; the script, which is sent before, has it otherwise."""
    return b"\r\n" + word + b"\r\n"


@test
def redis__an_answer_that_gets_lost_takes_nothing_twice(t):
    server = one(t)
    for word in (b"open", b"stand", b"leave", b"close"):
        cutter = Cutter(server.port, a_word(word))
        done = t.picket("run", *SLOW, "--on", f"redis://127.0.0.1:{cutter.port}", "db",
                        "--", "true")
        equal((word, done.returncode, done.stderr, cutter.cuts), (word, 0, "", 1))
        equal(server.keys(), [])
    equal(server.ask("GET", "picket-token:" + KEY), "4")


@test
def redis__a_release_whose_answer_gets_lost_is_no_loss(t):
    server = one(t)
    cutter = Cutter(server.port, a_word(b"leave"))
    done = subprocess.run([CALL, f"redis://127.0.0.1:{cutter.port}", "60000"], text=True,
                          input="take db 0\ndrop db\n", capture_output=True, check=True)
    words = [line.split()[0] for line in done.stdout.splitlines()]
    equal((words, cutter.cuts, server.keys()), (["OK", "OK"], 1, []))


@test
def redis__a_holder_that_is_cut_off_is_told(t):
    with Lan(2) as lan:
        here, there = lan.hosts
        server = Server(t, host=there)
        use(t, server.url)
        inside = [*here.enter, t.program]
        holder = subprocess.Popen([*inside, "run", "-v", *FAST, "db", "--", "cat"],
                                  env=t.env, stdin=subprocess.PIPE, text=True,
                                  stderr=subprocess.PIPE)
        line_with(holder.stderr, "running cat")
        lan.part([here], [there])
        contains(lost(holder), "not renewed")
        done = subprocess.run([*inside, "run", "-w", "1s", "db", "--", "true"], env=t.env,
                              text=True, capture_output=True, check=False)
        equal(done.returncode, 125)
        contains(done.stderr, server.url)
        lan.heal()
        ok(t.picket("run", "db", "--", "true"))


# ---- Redlock ----

@test
def redlock__works_while_a_majority_does(t):
    servers = five(t)
    for server in servers[:2]:
        server.kill()
    holder = hold(t, *SLOW, "db")
    equal(t.picket("run", "-n", "db", "--", "true").returncode, 124)
    equal([s.ask("EXISTS", KEY) for s in servers[2:]], [1, 1, 1])
    let_go(holder)
    equal([s.ask("EXISTS", KEY) for s in servers[2:]], [0, 0, 0])
    servers[2].kill()
    refused(t, t.env["PICKET_URL"], 125, "2 of 5", "3 are needed")
    equal([s.ask("EXISTS", KEY) for s in servers[3:]], [0, 0])


@test
def redlock__works_while_a_minority_is_stopped(t):
    servers = five(t)
    for server in servers[:2]:
        server.stop()
    holder = hold(t, "--ttl", "3s", "--lock-delay", "0s", "db")
    before = servers[4].ask("PTTL", KEY)
    wait_until(lambda: servers[4].ask("PTTL", KEY) > before, what="a renewal")
    let_go(holder)
    servers[2].stop()
    refused(t, t.env["PICKET_URL"], 125, "2 of 5")


@test
def redlock__a_minority_never_grants(t):
    servers = five(t)
    for server in servers[:3]:
        server.ask("SET", KEY, "somebody")
    equal(t.picket("run", "-n", "db", "--", "true").returncode, 124)
    equal(t.picket("run", "-w", "500ms", "db", "--", "true").returncode, 124)
    equal([s.ask("EXISTS", KEY) for s in servers[3:]], [0, 0])
    servers[0].ask("DEL", KEY)
    ok(t.picket("run", "-w", "20s", "db", "--", "true"))
    equal(servers[1].ask("GET", KEY), "somebody")


@test
def redlock__a_node_that_lost_its_keys_gets_them_back(t):
    servers = five(t)
    holder = hold(t, *STEADY, "db")
    servers[0].kill()
    servers[0].start()
    servers[1].ask("FLUSHALL")
    wait_until(lambda: all(s.ask("EXISTS", KEY) for s in servers), what="all keys")
    check(holder.poll() is None, "the lock was lost")
    let_go(holder)
    equal([s.ask("EXISTS", KEY) for s in servers], [0] * 5)


@test
def redlock__a_hold_without_a_majority_is_lost(t):
    servers = five(t)
    holder = hold(t, *STEADY, "db")
    for server in servers[:3]:
        server.ask("FLUSHALL")
    check("not renewed" not in lost(holder), "only the clock has told")
    equal([s.ask("EXISTS", KEY) for s in servers], [0] * 5)


@test
def redlock__a_lock_taken_after_a_lost_shortening_lasts_as_long_as_its_holder_believes(t):
    """The client was not answered, so that it still relies on the TTL of before."""
    servers = five(t)
    store = types.SimpleNamespace(url=t.env["PICKET_URL"], servers=servers)
    with Through(store, a_word(b"keep")) as way, \
            subprocess.Popen([CALL, way.url, "180000"], text=True, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE) as client:

        def ask(line):
            client.stdin.write(line + "\n")
            client.stdin.flush()
            return client.stdout.readline().split()[0]

        equal(ask("take first 0"), "OK")
        way.mute()
        equal(ask("extend 2000"), "UNKNOWN")
        equal(ask("take db 5000"), "OK")
        lasting = [s.ask("PTTL", KEY) > 120000 for s in servers]
        check(sum(lasting) >= 3, "it ends while its holder still believes in it")
        way.unmute()
        client.stdin.close()


@test
def redlock__a_key_of_another_is_not_renewed(t):
    servers = five(t)
    holder = hold(t, *STEADY, "db")
    for server in servers[:3]:
        server.ask("SET", KEY, "somebody")
    check("not renewed" not in lost(holder), "only the clock has told")
    equal([s.ask("PTTL", KEY) for s in servers[:3]], [-1] * 3)  # as it was set
    equal([s.ask("EXISTS", KEY) for s in servers[3:]], [0] * 2)


@test
def redlock__a_stopped_majority_does_not_keep_the_loss_from_its_holder(t):
    servers = five(t)
    holder = hold(t, *FAST, "db")
    for server in servers[:3]:
        server.stop()
    contains(lost(holder), "not renewed")


@test
def redlock__has_no_token_and_says_so(t):
    five(t)
    done = t.picket("run", "db", "--", "sh", "-c", "echo ${PICKET_TOKEN-none}",
                    env={"PICKET_TOKEN": "7"})
    equal(ok(done), "none\n")
    holder = hold(t, *SLOW, "db")
    contains(t.picket("show", "db").stdout, "no token")
    contains(t.picket("ls").stdout, "none")
    gate = ("gate", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1",
            "--resource-from", "path-prefix")
    for verb in (("acquire", "x"), ("once", "x", "--", "true"), gate,
                 ("break", "db", "--reason", "x"), ("fence", "claim", "r", "--token", 1)):
        done = t.picket(*verb)
        equal((verb, done.returncode), (verb, 125))
        contains(done.stderr, "redlock")
    let_go(holder)


@test
def redlock__a_paused_holder_is_followed_and_knows(t):
    five(t)
    holder = hold(t, *FAST, "db")
    tree = tree_of(holder.pid)
    freeze(*tree)
    ok(t.picket("run", *FAST, "db", "--", "true"))
    for pid in tree:
        with contextlib.suppress(ProcessLookupError):  # ended by the one before it
            os.kill(pid, signal.SIGCONT)
    lost(holder)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Redis' own clients, unchanged, against real nodes: redis-cli and redis-benchmark,
redis-py's Lock, and the lock libraries of Node.js (redis_node/)."""
import functools
import os
import shutil
import subprocess

from cluster import Cluster
from holding import hold, let_go
from npm import install, read
from stores import STORES
from tap import check, contains, equal, main, skip, test

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = "/usr/bin/python3"  # the one that Debian's python3-redis belongs to
LONG_MS = 60000
UNLOCK = ("if redis.call('get', KEYS[1]) == ARGV[1] then return "
          "redis.call('del', KEYS[1]) else return 0 end")


def one(t):
    return Cluster(t.program, t.path("cluster"))


def three(t):
    return Cluster(t.program, t.path("cluster"), 3)


# ---- redis-cli and redis-benchmark ----

def cli(node, *words):
    """What redis-cli prints; it says "(nil)" as an empty line, and errors as they are."""
    done = subprocess.run(["redis-cli", "-p", str(node.port), *map(str, words)],
                          capture_output=True, text=True, check=False)
    return done.stdout.strip()


def field(text, name):
    """A field in what redis-cli prints of a map: names and values in turn."""
    lines = text.split("\n")
    return lines[lines.index(name) + 1]


@test
def redis_cli_takes_and_frees_a_lock(t):
    with one(t) as c:
        node = c.nodes[0]
        equal(cli(node, "SET", "k", "mine", "NX", "PX", LONG_MS), "OK")
        equal(cli(node, "SET", "k", "other", "NX", "PX", LONG_MS), "")
        equal(cli(node, "GET", "k"), "mine")
        check(0 < int(cli(node, "PTTL", "k")) <= LONG_MS)
        equal(cli(node, "EVAL", UNLOCK, 1, "k", "other"), "0")
        equal(cli(node, "EVAL", UNLOCK, 1, "k", "mine"), "1")
        equal(cli(node, "GET", "k"), "")
        equal(cli(node, "PTTL", "k"), "-2")


@test
def a_key_is_a_lock_with_a_token_that_grows(t):
    with one(t) as c:
        node = c.nodes[0]
        last = 0
        for owner in ("first", "second", "third"):
            equal(cli(node, "SET", "db/main", owner, "PX", LONG_MS, "NX"), "OK")
            shown = cli(node, "LOCK", "SHOW", "db/main")
            equal(field(shown, "value"), owner)
            equal(field(shown, "token"), cli(node, "LOCK", "TOKEN", "db/main", owner))
            check(int(field(shown, "token")) > last)
            last = int(field(shown, "token"))
            contains(cli(node, "LOCK", "TOKEN", "db/main", "nobody"), "NOTHELD")
            equal(cli(node, "DEL", "db/main"), "1")
        contains(cli(node, "LOCK", "TOKEN", "db/main"), "NOTHELD")


@test
def what_could_harm_a_lock_is_refused_and_changes_nothing(t):
    with one(t) as c:
        node = c.nodes[0]
        cli(node, "SET", "k", "mine", "NX", "PX", LONG_MS)
        token = cli(node, "LOCK", "TOKEN", "k")
        for words in ("SET k thief", "SET k thief PX 1000", "SET k thief NX",
                      "GETSET k t", "SETEX k 9 t", "PSETEX k 9 t", "SETNX k t",
                      "PERSIST k", "INCR k", "RENAME k l", "FLUSHALL", "APPEND k t",
                      "SELECT 1", "MULTI", "SUBSCRIBE k", "HSET k f v",
                      "SET l v NX PX 10"):
            contains(cli(node, *words.split()), "ERR")
        equal(cli(node, "GET", "k"), "mine")
        equal(cli(node, "LOCK", "TOKEN", "k", "mine"), token)
        check(int(cli(node, "PTTL", "k")) > LONG_MS // 2)
        equal(cli(node, "EXISTS", "l"), "0")


@test
def native_clients_wait_behind_a_key_and_get_it_after_del(t):
    with one(t) as c:
        node = c.nodes[0]
        equal(cli(node, "SET", "k", "mine", "NX", "PX", LONG_MS), "OK")
        with node.connect() as native:
            lease = native.ask("LEASE", "OPEN", LONG_MS)["lease"]
            asked = native.ask("LOCK", "ACQUIRE", lease, "k", "WAIT", "forever")
            equal(asked["status"], "QUEUED")
            held = int(cli(node, "LOCK", "TOKEN", "k"))
            equal(cli(node, "DEL", "k"), "1")
            # Nobody passes who waits.
            equal(cli(node, "SET", "k", "mine", "NX", "PX", LONG_MS), "")
            event, kind, fields = native.push()
            equal((event, kind, fields["name"]), ("event", "granted", "k"))
            check(fields["token"] > held)
            # What is held natively is no key.
            equal(cli(node, "DEL", "k"), "0")
            equal(cli(node, "EXISTS", "k"), "1")
            equal(cli(node, "PEXPIRE", "k", LONG_MS), "0")
            native.ask("LOCK", "RELEASE", lease, "k", fields["token"])
            equal(cli(node, "SET", "k", "mine", "NX", "PX", LONG_MS), "OK")


@test
def redis_benchmark_runs(t):
    with one(t) as c:
        for words in (["PING"], ["SET", "k:__rand_int__", "v", "NX", "PX", "1000"]):
            done = subprocess.run(
                ["redis-benchmark", "-p", str(c.nodes[0].port), "-n", "1000", "-c", "10",
                 "-r", "100000", "-q", *words],
                capture_output=True, text=True, check=False)
            equal(done.returncode, 0)
            contains(done.stdout, "requests per second")


# ---- redis-py ----

def redis_py(case, node):
    done = subprocess.run([PYTHON, os.path.join(HERE, "redis_py.py"), case,
                           str(node.port)],
                          capture_output=True, text=True, check=False)
    check(done.returncode == 0, done.stderr)


def redis_py_test(case):
    def run(t):
        with one(t) as c:
            redis_py(case, c.nodes[0])
    run.__name__ = "redis_py_lock_" + case
    test(run)


for name in ("lifecycle", "context_manager", "contenders", "expiry", "refusals", "pool"):
    redis_py_test(name)


@test
def redis_py_lock_works_through_a_follower(t):
    with three(t) as c:
        redis_py("pool", c.followers()[0])
        redis_py("lifecycle", c.followers()[1])


@test
def redis_py_lock_outlives_its_leader(t):
    """kill -9 of the leader: the same Lock object, on a node that is left, goes on."""
    with three(t) as c:
        node = c.followers()[0]
        with subprocess.Popen(
                [PYTHON, os.path.join(HERE, "redis_py.py"), "failover", str(node.port)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True) as client:
            held = client.stdout.readline().split()
            equal(held[:1], ["held"])
            c.leader().kill()
            said, errors = client.communicate("go on\n")
            check(client.returncode == 0, errors)
        kept, following = (line.split() for line in said.splitlines())
        equal(kept, ["kept", held[1]])
        check(int(following[1]) > int(held[1]), said)


# ---- Node.js ----

@functools.lru_cache(maxsize=None)
def node_folder(program):
    """The folder with the packages, beside the program under test. None and a reason when
    they can't be had."""
    folder = os.path.join(os.path.dirname(program), "redis_node")
    source = os.path.join(HERE, "redis_node")
    reason = install(source, folder)
    if reason is not None:
        return None, reason
    shutil.copy(os.path.join(source, "locks.js"), folder)
    return folder, ""


def start_js(t, case, *nodes):
    folder, reason = node_folder(t.program)
    if folder is None:
        skip(reason)
    return subprocess.Popen(["node", "locks.js", case, *(str(n.port) for n in nodes)],
                            cwd=folder, text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def end_js(script):
    _, errors = script.communicate()
    check(script.returncode == 0, errors)


def node_js(t, case, *nodes):
    end_js(start_js(t, case, *nodes))


def node_test(case):
    def run(t):
        with one(t) as c:
            node_js(t, case, c.nodes[0])
    run.__name__ = "node_" + case
    test(run)


for name in ("redlock5", "redlock4", "sesamecare", "semaphore_mutex", "node_redis"):
    node_test(name)


@test
def node_redlock_works_through_a_follower(t):
    with three(t) as c:
        node_js(t, "redlock5", c.followers()[0])


@test
def node_redlock_over_the_nodes_of_one_cluster_never_acquires(t):
    with three(t) as c:
        node_js(t, "redlock_over_one_cluster", *c.nodes)


@test
def node_redlock_and_our_own_keep_each_other_out(t):
    """On five independent Redis servers, as people have them who move here."""
    five = STORES["redlock"](t.path("five"))
    five.start()
    t.env["PICKET_URL"] = five.url
    script = start_js(t, "redlock_holds", *five.servers)
    equal(script.stdout.readline(), "held\n")
    equal(t.picket("run", "-n", "db", "--", "true").returncode, 124)
    end_js(script)
    holder = hold(t, "db")
    node_js(t, "redlock_is_kept_out", *five.servers)
    let_go(holder)


# ---- the examples in docs/redis.md ----

def example(language, port):
    """The example in that language, for a node on that port."""
    text = read(os.path.join(HERE, "../../docs/redis.md"))
    return text.split(f"```{language}\n")[1].split("```")[0].replace("7420", str(port))


def runs_and_frees(node, *command, **options):
    done = subprocess.run(command, capture_output=True, text=True,
                          check=False, **options)
    check(done.returncode == 0, done.stderr)
    equal(node.ask("LOCK", "SHOW", "report").get("holders", 0), 0)
    wrote = node.ask("FENCE", "GET", "report/last")
    equal((wrote["value"], wrote["token"]), ("42 rows", 1))


@test
def example_for_redis_py_runs(t):
    with one(t) as c:
        runs_and_frees(c.nodes[0], PYTHON, "-c", example("python", c.nodes[0].port))


@test
def example_for_redlock_runs(t):
    folder, reason = node_folder(t.program)
    if folder is None:
        skip(reason)
    with one(t) as c:
        runs_and_frees(c.nodes[0], "node", "-e", example("js", c.nodes[0].port),
                       cwd=folder)


main()

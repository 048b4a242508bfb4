# SPDX-License-Identifier: MIT
"""The drill: it must tell a resource that refuses a zombie from one that doesn't."""
import json
import os
import socket
import subprocess

from cluster import Cluster, free_ports
from databases import MariaDB, Postgres, Redis, SQLite, over
from holding import hold, let_go
from tap import check, contains, equal, main, test, wait_until

FAST = ("--ttl", "400ms", "--pause", "500ms")


def events(done):
    return [e["what"] for e in json.loads(done.stdout)["rounds"][0]["events"]]


@test
def drill__shows_the_late_write_refused(t):
    done = t.picket("drill", *FAST, "-o", "json")
    equal(done.returncode, 0)
    told = json.loads(done.stdout)
    equal((told["safe"], told["fenced"], len(told["rounds"])), (True, True, 1))
    one = told["rounds"][0]
    check(one["first_token"] < one["second_token"], "tokens don't grow")
    equal((one["stale_write_refused"], one["lost_update"]), (True, False))
    text = "\n".join(events(done))
    for part in ("is paused", "wakes up", "refused: token", "lock is lost", "SAFE"):
        contains(text, part)


@test
def drill__has_a_lease_of_two_seconds(t):
    """And a pause of a second more, if nothing else is said."""
    told = json.loads(t.picket("drill", "-o", "json").stdout)
    equal((told["ttl_ms"], told["safe"]), (2000, True))
    at = {e["what"].split(" ")[1]: e["at_ms"] for e in told["rounds"][0]["events"]
          if e["what"].startswith(("is paused", "wakes up"))}
    check(at["up"] - at["paused"] >= 3000, str(at))


@test
def drill__without_a_fence_shows_the_damage_and_fails(t):
    done = t.picket("drill", *FAST, "--no-fence")
    equal(done.returncode, 1)
    contains(done.stdout, "CORRUPTED")
    contains(done.stdout, "--no-fence")


@test
def drill__takes_as_many_rounds_as_asked(t):
    done = t.picket("drill", *FAST, "--rounds", "3", "--resource", "file:" + t.dir)
    equal(done.returncode, 0)
    contains(done.stdout, "3 of 3 rounds safe")
    check(t.read("picket-drill").startswith("3 "), "each round adds one")


@test
def drill__a_resource_in_shadow_mode_is_not_safe(t):
    where = "file:" + t.dir
    equal(t.picket("fence", "shadow", "picket-drill", "--resource", where).returncode, 0)
    done = t.picket("drill", *FAST, "--resource", where)
    equal(done.returncode, 1)
    contains(done.stdout, "shadow mode")
    contains(done.stdout, "CORRUPTED")


@test
def drill__leaves_nobody_behind_and_the_lock_free(t):
    equal(t.picket("drill", *FAST).returncode, 0)
    equal(t.picket("run", "-n", "picket-drill", "--", "true").returncode, 0)


@test
def drill__what_it_can_t_do_is_said_before_a_lock_is_taken(t):
    for words, part in ((("--resource", "oracle://x"), "no kind of resource"),
                        (("--resource", "file:" + t.path("no")), "No such file"),
                        (("--on", "nowhere:"), "nowhere"),
                        (("--ttl", "1ms"), "--ttl"), (("word",), "word")):
        done = t.picket("drill", *words)
        equal((words, done.returncode), (words, 125))
        contains(done.stderr, part)
        equal(done.stdout, "")


@test
def drill__waits_for_a_lock_that_somebody_has(t):
    holder = hold(t, "picket-drill")
    drill = t.start("drill", *FAST)
    wait_until(lambda: "queue" in t.picket("show", "picket-drill").stdout.lower() or
               "waiting" in t.picket("show", "picket-drill").stdout, what="the wait")
    let_go(holder)
    out, _ = drill.communicate()
    equal(drill.returncode, 0)
    contains(out, "SAFE")


@over(SQLite, Postgres, MariaDB)
def drill__on_a_database(t, db):
    """As somebody would do it who has only the manual: install, drill, drill without."""
    where = ("--resource", db.url)
    missing = t.picket("drill", *FAST, *where)
    equal(missing.returncode, 125)
    contains(missing.stderr, "picket fence install")
    check("secret" not in missing.stderr, "a password was shown")
    statements = t.picket("fence", "install", db.url, "--print")
    contains(statements.stdout, "picket_claim")
    for _ in range(2):
        equal(t.picket("fence", "install", db.url).returncode, 0)
    safe = t.picket("drill", *FAST, *where)
    equal(safe.returncode, 0)
    contains(safe.stdout, "SAFE")
    unsafe = t.picket("drill", *FAST, *where, "--no-fence")
    equal(unsafe.returncode, 1)
    contains(unsafe.stdout, "CORRUPTED")


@over(Redis)
def drill__on_a_redis(t, db):
    where = ("--resource", db.url)
    equal(t.picket("drill", *FAST, *where).returncode, 0)
    equal(t.picket("drill", *FAST, *where, "--no-fence").returncode, 1)
    state = t.picket("fence", "show", "picket-drill", *where, "-o", "json")
    check(json.loads(state.stdout)["fence"] >= 2, "the fence was not raised")


@test
def drill__on_a_cluster(t):
    with Cluster(t.program, t.dir, 3) as cluster:
        done = t.picket("drill", *FAST, "--on", cluster.url)
        equal(done.returncode, 0)
        contains(done.stdout, "SAFE")


def plain_redis(t):
    """A server without a password, and where it is."""
    port, = free_ports(1)
    subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1",
                      "--save", "", "--dir", t.dir], stdout=subprocess.DEVNULL)
    wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, what="Redis")
    return f"127.0.0.1:{port}"


@test
def drill__with_a_lock_in_redis(t):
    done = t.picket("drill", *FAST, "--on", "redis://" + plain_redis(t), "-o", "json")
    equal(done.returncode, 0)
    one = json.loads(done.stdout)["rounds"][0]
    check(0 < one["first_token"] < one["second_token"], "tokens don't grow")
    contains("\n".join(events(done)), "SAFE")


@test
def drill__redlock_has_no_token_and_it_shows(t):
    places = [plain_redis(t) for _ in range(5)]
    done = t.picket("drill", *FAST, "--on", "redlock://" + ",".join(places))
    equal(done.returncode, 1)
    contains(done.stdout, "no token to give")
    contains(done.stdout, "CORRUPTED")
    contains(done.stdout, "gives no token")
    equal([n for n in os.listdir(t.dir) if n.startswith("picket-drill")], [])


main()

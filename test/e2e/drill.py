# SPDX-License-Identifier: MIT
"""The drill: it must tell a resource that refuses a zombie from one that doesn't."""
import json
import os
import socket
import subprocess

from holding import hold, let_go
from tap import check, contains, equal, main, skip, test, wait_until

FAST = ("--ttl", "400ms", "--pause", "500ms")


def events(done):
    return [e["what"] for e in json.loads(done.stdout)["rounds"][0]["events"]]


@test
def drill__shows_the_late_write_refused(t):
    done = t.picket("drill", *FAST, "-o", "json")
    equal(done.returncode, 0)
    told = json.loads(done.stdout)
    equal((told["safe"], told["fence"], len(told["rounds"])), (True, True, 1))
    one = told["rounds"][0]
    check(one["first_token"] < one["second_token"], "tokens don't grow")
    equal((one["refused"], one["lost_update"]), (True, False))
    text = "\n".join(events(done))
    for part in ("is paused", "wakes up", "refused: token", "lock is lost", "SAFE"):
        contains(text, part)


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


def start_redis(t, n):
    """Starts n servers on free ports and returns where they are."""
    places = []
    for _ in range(n):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        try:
            subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1",
                              "--save", "", "--dir", t.dir], stdout=subprocess.DEVNULL)
        except FileNotFoundError:
            skip("no redis-server")
        wait_until(lambda p=port: socket.socket().connect_ex(("127.0.0.1", p)) == 0,
                   what="Redis")
        places.append(f"127.0.0.1:{port}")
    return places


@test
def drill__redis_locks_have_no_token_and_it_shows(t):
    place, = start_redis(t, 1)
    done = t.picket("drill", *FAST, "--on", "redis://" + place)
    equal(done.returncode, 1)
    contains(done.stdout, "no token to give")
    contains(done.stdout, "CORRUPTED")


@test
def drill__nor_has_redlock(t):
    places = start_redis(t, 5)
    done = t.picket("drill", *FAST, "--on", "redlock://" + ",".join(places))
    equal(done.returncode, 1)
    contains(done.stdout, "CORRUPTED")
    contains(done.stdout, "gives no token")
    equal([n for n in os.listdir(t.dir) if n.startswith("picket-drill")], [])


main()

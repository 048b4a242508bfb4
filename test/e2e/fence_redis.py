#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The fence in a real Redis: the script as any client runs it, and the library's way."""
import os
import subprocess
from functools import partial

from databases import Cutter, Loop, Redis
from tap import check, contains, equal, main, test
from zombies import ZOMBIES, Storm, report, stale_among

WRITES = 50  # that each zombie tries
FENCE = "picket:fence:{counter}"
TEST_RESOURCE = os.path.abspath(os.environ.get("TEST_RESOURCE",
                                               "build/test/test_resource"))


def digest(db):
    """The script's, from loading what the library prints."""
    status, _, text = db.call("sql")
    equal(status, "OK")
    path = db.t.write("fence.lua", text)
    done = subprocess.run(["redis-cli", "--no-auth-warning", "-a", "secret", "-p",
                           str(db.port), "-x", "SCRIPT", "LOAD"], check=True,
                          stdin=open(path, encoding="utf-8"), stdout=subprocess.PIPE,
                          text=True)
    return done.stdout.strip()


def script(sha, verb, *args, fence=FENCE, data=()):
    """A command line that runs the script."""
    keys = [fence, *data]
    words = ["EVALSHA", sha, len(keys), *keys, verb, *args]
    return " ".join(f'"{w}"' for w in words)


def number(session, command):
    return int(session.value(command).strip('"'))


@test
def redis_keeps_the_rule(t):
    with Redis(t) as db:
        done = subprocess.run([TEST_RESOURCE], text=True, stdout=subprocess.PIPE,
                              check=False, env=os.environ | {"PICKET_RESOURCES": db.url})
        check(done.returncode == 0, done.stdout)
        contains(done.stdout, db.url)


def storm(db, sha):
    """With the script, or without a fence. What came of it: the words heard, stale writes
    that got in, updates lost."""
    accepted = []
    session = db.session()
    session.done("SET counter 0")

    def attempt(s, token, think):
        if sha and s.ask(script(sha, "claim", token)).word != "ok":
            return "stale"
        n = number(s, "GET counter") + 1
        think()
        word = s.ask(script(sha, "put", token, n, data=["counter"]) if sha
                     else f"SET counter {n}").word
        if word == "ok":
            accepted.append((n, token))
        return word

    done = Storm([partial(attempt, db.session()) for _ in range(ZOMBIES)], WRITES)
    equal(len(done.words), ZOMBIES * WRITES)
    if sha:
        accepted.sort()  # by what was written; the control has no better order than time
    stale = stale_among(token for _, token in accepted)
    lost = len(accepted) - number(session, "GET counter")
    report(f"redis {'script' if sha else 'by_nothing'}", done, WRITES, stale, lost)
    return set(done.words), stale, lost


@test
def zombies_never_win(t):
    with Redis(t) as db:
        equal(storm(db, digest(db)), ({"ok", "stale"}, 0, 0))
        _, stale, lost = storm(db, None)
        check(stale > 0 and lost > 0, f"no corruption without a fence: {stale}, {lost}")


@test
def a_holder_that_was_paused_is_refused(t):
    with Redis(t) as db:
        sha = digest(db)
        zombie, newer = db.session(), db.session()
        zombie.done(script(sha, "claim", 1))
        zombie.stop()
        zombie.send(script(sha, "put", 1, "late", data=["counter"]))
        newer.done(script(sha, "put", 2, "new", data=["counter"]))
        zombie.cont()
        equal(zombie.answer().word, "stale")
        equal(newer.value("GET counter"), '"new"')
        zombie.stop()
        zombie.send("SET counter late")  # the control
        newer.done(script(sha, "put", 2, "newer", data=["counter"]))
        zombie.cont()
        equal(zombie.answer().word, "ok")
        equal(newer.value("GET counter"), '"late"')


@test
def the_script_compares_numbers_and_nothing_else(t):
    with Redis(t) as db:
        sha = digest(db)
        s = db.session()
        top = 2 ** 53 - 1
        s.done(script(sha, "claim", 9))
        for token in ("", "0", "-1", "+10", "1e9", "0x20", "10.0", " 10", "010", "inf",
                      "nan", top + 1, 2 ** 64):
            check(s.ask(script(sha, "claim", token)).word == "no token", token)
        equal(s.value(script(sha, "claim", 10)), '"10"')  # as texts, 9 is the higher
        s.done(script(sha, "claim", top - 1))
        s.done(script(sha, "claim", top))
        equal(s.ask(script(sha, "claim", top - 1)).word, "stale")
        answer = s.ask(script(sha, "set", 5, "late"))
        contains(answer.error, f"token={top}")
        equal(s.ask(script(sha, "nosuch", top)).word, "no token")
        equal(s.value(f"HGET {FENCE} token"), f'"{top}"')


@test
def a_key_of_ones_own_is_set_with_its_options(t):
    with Redis(t) as db:
        sha = digest(db)
        s = db.session()
        s.done(script(sha, "put", 3, "v", "EX", 1000, data=["mine"]))
        check(int(s.value("TTL mine").split()[-1]) > 900, "no TTL")
        equal(s.ask(script(sha, "put", 2, "w", data=["mine"])).word, "stale")
        equal(s.value("GET mine"), '"v"')
        db.shadow("counter", True)
        equal(s.value(script(sha, "put", 2, "w", data=["mine"])), '"3"')
        equal(s.value("GET mine"), '"w"')
        equal(db.shadowed("counter"), 1)


@test
def the_fence_outlives_the_script_and_the_server(t):
    with Redis(t) as db:
        loop = Loop(db.url, "r", 5)
        equal(loop.answer()[0], "OK")
        db.session().done("SCRIPT FLUSH")  # NOSCRIPT: sent whole
        equal(loop.again()[0], "OK")
        large = Loop(db.url, "s", 5, 1 << 20)
        equal(large.answer()[0], "OK")
        db.end()
        db.start()
        equal(loop.again()[0], "OK")
        equal(large.again()[0], "UNKNOWN")  # and not dead by SIGPIPE
        equal(large.again()[0], "OK")
        equal(db.call("claim", "r", 4)[:2], ("STALE", 5))
        socket = f"redis://:secret@?socket={db.socket}"
        equal(db.call("claim", "r", 5, url=socket)[0], "OK")
        db.end()
        equal(loop.again()[0], "UNREACHABLE")


@test
def what_is_wrong_is_told(t):
    with Redis(t) as db:
        db.install()
        equal(db.call("install", "table", "column")[0], "UNSUPPORTED")
        for url in (db.url.replace("secret", "hunter2"), db.url.replace(":secret@", ""),
                    db.url.replace(":secret", "nobody:hunter2")):
            status, _, why = db.call("claim", "r", 1, url=url)
            equal(status, "DENIED")
            check("hunter2" not in why and len(why.splitlines()) == 1, why)
        equal(db.call("claim", "r", 1, url=db.url.replace("/0", "/99"))[0], "STORE")
        equal(db.call("claim", "r", 5, url=db.url.replace("/0", "/1"))[0], "OK")
        equal(db.call("check", "r", 5)[0], "UNCLAIMED")  # another database's fence
        db.session().done("REPLICAOF 127.0.0.1 1")
        status, _, why = db.call("claim", "r", 5)
        equal(status, "STORE")
        contains(why, "READONLY")


@test
def an_answer_that_is_lost_is_unknown(t):
    with Redis(t) as db:
        for verb, wanted in (("set", "UNKNOWN"), ("claim", "OK"), ("get", "OK")):
            cutter = Cutter(db.port, b"EVALSHA")
            url = db.url.replace(str(db.port), str(cutter.port))
            status, _, why = db.call(verb, "r", 5, url=url, value=b"written")
            equal((status, cutter.cuts), (wanted, 1))
            check("secret" not in why, why)
        equal(db.call("get", "r", 0), ("OK", 5, "written"))


main()

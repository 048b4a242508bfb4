#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The fence in real databases, used as people use it: from the database's own command
line, in transactions, by several processes at once. The library's side of it is in
test/unit/test_resource.c, which the first test here runs over the servers."""
import os
import subprocess
import threading
from functools import partial

from databases import Loop, MariaDB, Postgres, SQLite, over
from tap import check, contains, equal, main, stopped, test, wait_until
from zombies import ZOMBIES, Storm, report, stale_among

WRITES = 25  # that each zombie tries
TEST_RESOURCE = os.path.abspath(os.environ.get("TEST_RESOURCE",
                                               "build/test/test_resource"))


def make_counter(db):
    """The user's own tables: something to read and change, and who did when."""
    s = db.session()
    s.done("CREATE TABLE counter (id INTEGER PRIMARY KEY, n BIGINT, token BIGINT)",
           "INSERT INTO counter VALUES (1, 0, 0)",
           f"CREATE TABLE log (id {db.serial}, token BIGINT, n BIGINT)")
    return s


def counted(session):
    return int(session.value("SELECT n FROM counter"))


def write(token, n):
    return (f"UPDATE counter SET n = {n}",
            f"INSERT INTO log (token, n) VALUES ({token}, {n})")


# ---- the rule ----

@test
def every_database_keeps_the_rule(t):
    with Postgres(t) as postgres, MariaDB(t) as mariadb:
        done = subprocess.run(
            [TEST_RESOURCE], text=True, stdout=subprocess.PIPE, check=False,
            env=os.environ | {"PICKET_RESOURCES": f"{postgres.url} {mariadb.url}"})
        check(done.returncode == 0, done.stdout)
        for url in (postgres.url, mariadb.url):
            contains(done.stdout, url)


# ---- zombies ----

def by_claim(db, s, token, think):
    """Claims, reads, thinks, writes: as it should be."""
    word = s.ask(db.begin, db.claim("counter", token)).word
    if word == "ok":
        n = counted(s)
        think()
        word = s.ask(*write(token, n + 1)).word
    s.done("COMMIT" if word == "ok" else "ROLLBACK")
    return word


def by_guard(db, s, token, think):
    """Knows of no claim; the table's guard sees the token."""
    n = counted(s)
    think()
    word = s.ask(db.begin, f"UPDATE counter SET n = {n + 1}, token = {token}").word
    if word == "ok":
        s.done(f"INSERT INTO log (token, n) VALUES ({token}, {n + 1})")
    s.done("COMMIT" if word == "ok" else "ROLLBACK")
    return word


def by_statement(db, s, token, think):
    """One statement, which finds its row or doesn't."""
    think()
    s.done(db.begin)
    found = int(s.value(db.affected(f"UPDATE counter SET n = n + 1, token = {token} "
                                    f"WHERE id = 1 AND token <= {token}")))
    if found:
        s.done(f"INSERT INTO log (token, n) SELECT {token}, n FROM counter")
    s.done("COMMIT")
    return "ok" if found else "stale"


def by_nothing(_, s, token, think):
    """The control: no fence at all."""
    n = counted(s)
    think()
    return s.ask(*write(token, n + 1)).word


def storm(db, way):
    """What came of it: the words heard, stale writes that got in, updates lost."""
    session = make_counter(db)
    if way is by_guard:
        db.install("counter", "token", "guarded")
    attempts = [partial(way, db, db.session()) for _ in range(ZOMBIES)]
    done = Storm(attempts, WRITES)
    tokens = [int(row) for row in session.ask("SELECT token FROM log ORDER BY id").rows]
    equal(len(done.words), ZOMBIES * WRITES)
    equal(len(tokens), done.words.count("ok"))
    stale, lost = stale_among(tokens), len(tokens) - counted(session)
    report(f"{db.name} {way.__name__}", done, WRITES, stale, lost)
    session.done("DROP TABLE counter", "DROP TABLE log")
    return set(done.words), stale, lost


@over(SQLite, Postgres, MariaDB)
def zombies_never_win(_, db):
    db.install()
    equal(storm(db, by_claim), ({"ok", "stale"}, 0, 0))
    equal(storm(db, by_statement), ({"ok", "stale"}, 0, 0))
    # A guard alone keeps zombies out, but can't see what was read before the write.
    equal(storm(db, by_guard)[:2], ({"ok", "stale"}, 0))
    # Without a fence the same is a disaster, or nothing was shown above.
    _, stale, lost = storm(db, by_nothing)
    check(stale > 0 and lost > 0, f"no corruption without a fence: {stale}, {lost}")


@over(SQLite, Postgres, MariaDB)
def a_holder_that_was_paused_is_refused(_, db):
    """It read, was stopped, and wakes up after the next one has claimed."""
    db.install()
    session = make_counter(db)
    for fenced in (True, False):
        zombie = db.session()
        claims = [db.claim("pause", 1)] if fenced else []
        zombie.done(db.begin, *claims, "SELECT n FROM counter", "COMMIT")
        before = counted(session)
        zombie.stop()
        statements = [db.begin, *claims, *write(1, before + 1), "COMMIT"]
        # A client that knows errors stops at the first one; this one sends the claim.
        zombie.send(*(statements[:2] if fenced else statements))
        session.done(db.begin, *([db.claim("pause", 2)] if fenced else []),
                     *write(2, before + 10), "COMMIT")
        zombie.cont()
        equal(zombie.answer().word, "stale" if fenced else "ok")
        zombie.kill()
        # Without the fence its late write has overwritten the other's.
        equal(counted(session), before + 10 if fenced else before + 1)


@over(Postgres, MariaDB)
def a_claim_waits_for_a_transaction_that_is_paused(_, db):
    """The row's lock closes the gap between a claim and the write after it."""
    db.install()
    session = make_counter(db)
    zombie, newer, watcher = db.session(), db.session(), db.session()
    zombie.done(db.begin, db.claim("counter", 1), "SELECT n FROM counter")
    zombie.stop()
    zombie.send(*write(1, 1), "COMMIT")
    newer.send(db.begin, db.claim("counter", 2), "SELECT n FROM counter")
    wait_until(lambda: db.waiting(watcher) == 1, what="the newer claim waits")
    zombie.cont()
    equal(zombie.answer().word, "ok")  # it was before the newer claim
    answer = newer.answer()
    equal((answer.word, answer.rows[-1]), ("ok", "1"))  # which sees what it wrote
    newer.done(*write(2, 2), "COMMIT")
    equal(zombie.ask(db.begin, db.claim("counter", 1)).word, "stale")
    zombie.done("ROLLBACK")

    # One that never wakes up is ended by an operator, and its write with it.
    newer.done(db.begin, db.claim("counter", 3))
    newer.stop()
    newer.send(*write(3, 99), "COMMIT")
    zombie.send(db.begin, db.claim("counter", 4))
    wait_until(lambda: db.waiting(watcher) == 1, what="the newest claim waits")
    db.cut(watcher)
    equal(zombie.answer().word, "ok")
    newer.cont()
    check(newer.answer().word != "ok", "a session that was ended has written")
    zombie.done(*write(4, 3), "COMMIT")
    equal(counted(session), 3)

    # Or by the database itself, if it was told to.
    zombie.done(db.end_idle, db.begin, db.claim("counter", 5))
    zombie.stop()
    watcher.done(db.begin, db.claim("counter", 6), *write(6, 4), "COMMIT")
    zombie.send(*write(5, 99), "COMMIT")
    zombie.cont()
    check(zombie.answer().word != "ok", "a session that was ended has written")
    equal(counted(session), 4)


@over(SQLite)
def a_paused_transaction_locks_sqlite_until_it_dies(_, db):
    db.install()
    session = make_counter(db)
    zombie, newer = db.session(), db.session(timeout_ms=50)
    zombie.done("BEGIN", db.claim("counter", 1), *write(1, 1))
    zombie.stop()
    equal(newer.ask("BEGIN", db.claim("counter", 2)).word, "again")
    newer.ask("ROLLBACK")
    zombie.kill()
    newer.done("BEGIN", db.claim("counter", 2), *write(2, 1), "COMMIT")
    equal(counted(session), 1)
    equal(session.value("SELECT count(*) FROM log"), "1")


# ---- isolation ----

LEVELS = {
    "sqlite": [("BEGIN", "again"), ("BEGIN IMMEDIATE", None)],
    "postgres": [("BEGIN", "ok"), ("BEGIN ISOLATION LEVEL REPEATABLE READ", "again"),
                 ("BEGIN ISOLATION LEVEL SERIALIZABLE", "again")],
    "mariadb": [("START TRANSACTION", "again"),
                ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION",
                 "ok"),
                ("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; START TRANSACTION",
                 None)],  # its reads lock: the writer below would wait for it
}


@over(SQLite, Postgres, MariaDB)
def who_reads_before_it_claims_is_told(_, db):
    """A transaction with a snapshot from before another one's write must not go on with
    it after its claim, even when that was made with an equal token, or only checked."""
    db.install()
    reader, writer = make_counter(db), db.session()
    n = 0
    for begin, wanted in LEVELS[db.name]:
        for way in (db.claim("counter", 5), db.checks("counter", 5)):
            writer.done(db.claim("counter", 5))
            # The claim first: it sees all that was written before.
            reader.done(begin, db.claim("counter", 5))
            equal(counted(reader), n)
            reader.done("COMMIT")
            if wanted is None:
                continue
            reader.done(begin)
            equal(counted(reader), n)
            n += 1
            writer.done(db.begin, way, *write(5, n), "COMMIT")
            answer = reader.ask(db.claim("counter", 6))
            check(answer.word == wanted, f"{begin}, {way}: {answer.word}")
            if wanted == "ok":
                equal(counted(reader), n)
            reader.done("ROLLBACK")


@over(Postgres, MariaDB)
def first_claims_at_once_all_get_an_answer(_, db):
    """On a resource that nobody knows yet, half of them rolled back."""
    db.install()
    sessions = [db.session() for _ in range(8)]
    watcher = db.session()
    claimed = 0
    for trial in range(10):
        name = f"new{trial}"
        for i, session in enumerate(sessions):
            end = "COMMIT" if i % 2 else "ROLLBACK"
            session.send(db.begin, db.claim(name, i + 1), end)
        words = [session.answer().word for session in sessions]
        check(set(words) <= {"ok", "stale", "again"}, words)
        highest = max((i + 1 for i, w in enumerate(words) if w == "ok" and i % 2),
                      default=0)  # all may have been told to try again
        equal(int(watcher.value("SELECT COALESCE(MAX(token), 0) FROM picket_fence "
                                f"WHERE resource = '{name}'")), highest)
        claimed += highest > 0
    check(claimed > 0, "no claim got through in ten trials")


@over(SQLite, Postgres, MariaDB)
def a_rolled_back_claim_never_was(_, db):
    db.install()
    s = db.session()
    s.done(db.begin, db.claim("r", 9), "ROLLBACK", db.claim("r", 8))
    equal(s.ask(db.claim("r", 7)).word, "stale")
    equal(db.call("claim", "r", 7)[:2], ("STALE", 8))


@over(SQLite)
def no_way_of_inserting_gets_around_a_claim(_, db):
    """SQLite lets the outer statement say what conflicts inside a trigger mean."""
    db.install()
    s = db.session()
    s.done(db.claim("r", 5), "UPDATE picket_fence SET value = 'kept'")
    for how in ("IGNORE", "REPLACE", "FAIL", "ABORT", "ROLLBACK"):
        for token in ("4", "0", "NULL", "'6'", "6.0", "9007199254740992"):
            statement = db.claim("r", token).replace("INSERT", f"INSERT OR {how}")
            check(s.ask(statement).word in ("stale", "no token"), statement)
        nobody = f"INSERT OR {how} INTO picket_claim VALUES (NULL, 6)"
        equal(s.ask(nobody).word, "no name")
        s.done(db.claim("r", 5).replace("INSERT", f"INSERT OR {how}"))
    equal(s.value("SELECT token || value FROM picket_fence"), "5kept")


# ---- limits ----

@over(Postgres)
def the_library_waits_for_a_transaction_that_ends(_, db):
    """The limit is in the unit of the database: this wait is shorter than the limit."""
    db.install()
    s, watcher = db.session(), db.session()
    s.done(db.begin, db.claim("r", 1))
    got = []
    claim = threading.Thread(target=lambda: got.append(db.call("claim", "r", 2)))
    claim.start()
    wait_until(lambda: got or int(watcher.value(
        "SELECT count(*) FROM pg_locks WHERE NOT granted AND "
        "waitstart < clock_timestamp() - interval '100 ms'")), what="a claim that waits")
    s.done("COMMIT")
    claim.join()
    equal(got, [("OK", 2, "")])


@test
def a_claim_waits_for_a_bounded_time(t):
    """All at once, since it is a long one."""
    def claim(db, got):
        got[db.name] = db.call("claim", "r", 2)

    with (SQLite(t) as sqlite, Postgres(t) as postgres, MariaDB(t) as mariadb,
          SQLite(t, "read.db", "delete") as read):
        # In that mode a reader blocks the COMMIT; which must leave nothing locked.
        read.install()
        reader = read.session()
        reader.done("BEGIN", "SELECT count(*) FROM picket_fence")
        committing = Loop(read.url, "r", 1)
        got, threads = {}, []
        for db in (sqlite, postgres, mariadb):
            db.install()
            s = db.session()
            s.done(db.begin, db.claim("r", 1))
            s.stop()
            wait_until(lambda s=s: stopped(s.pid))
            threads.append(threading.Thread(target=claim, args=(db, got)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        for name, (status, _, why) in got.items():
            check(status == "UNREACHABLE", f"{name}: {status} {why}")
            contains(why, "end it or its session")
        equal(committing.answer()[0], "UNREACHABLE")
        reader.done("COMMIT")
        equal(committing.again()[0], "OK")


main()

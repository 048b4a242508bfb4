#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The fence in real databases, used as people use it: from the database's own command
line, in transactions, by several processes at once. The library's side of it is in
test/unit/test_resource.c, which the first test here runs over the servers."""
import os
import subprocess
import threading
from functools import partial

from databases import CALL, Cutter, MariaDB, Postgres, SQLite
from tap import check, contains, equal, main, stopped, test, wait_until
from zombies import ZOMBIES, Storm, report, stale_among

WRITES = 25  # that each zombie tries
TEST_RESOURCE = os.path.abspath(os.environ.get("TEST_RESOURCE",
                                               "build/test/test_resource"))


def over(*kinds, timeout=60):
    """Makes one test for each of the databases out of a function of (t, db)."""
    def decorate(function):
        for kind in kinds:
            def run(t, kind=kind):
                with kind(t) as db:
                    function(t, db)
            run.__name__ = f"{function.__name__}__{kind.name}"
            test(run, timeout=timeout)
        return function
    return decorate


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

@test(timeout=120)
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
    highest = 0
    for trial in range(10):
        name = f"new{trial}"
        for i, session in enumerate(sessions):
            end = "COMMIT" if i % 2 else "ROLLBACK"
            session.send(db.begin, db.claim(name, i + 1), end)
        words = [session.answer().word for session in sessions]
        check(set(words) <= {"ok", "stale", "again"}, words)
        highest = max(i + 1 for i, w in enumerate(words) if w == "ok" and i % 2)
        equal(int(watcher.value(f"SELECT token FROM picket_fence WHERE resource = '{name}'")),
              highest)


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
        equal(s.ask(f"INSERT OR {how} INTO picket_claim VALUES (NULL, 6)").word, "no name")
        s.done(db.claim("r", 5).replace("INSERT", f"INSERT OR {how}"))
    equal(s.value("SELECT token || value FROM picket_fence"), "5kept")


# ---- tables with a token column ----

def guarded(db, name="ledger", *rows):
    """A table with a guard, the rows (id, amount, token) in it before."""
    s = db.session()
    s.done(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, amount INTEGER, token BIGINT)")
    for row in rows:
        s.done(f"INSERT INTO {name} VALUES ({', '.join(map(str, row))})")
    db.install(name, "token", "books")
    return s


@over(SQLite, Postgres, MariaDB)
def a_guarded_table_refuses_who_is_late(_, db):
    s = guarded(db, "ledger", (1, 10, 3), (2, 20, "NULL"))
    for statement, word in (
            # 3 was in the table: the fence begins there.
            ("INSERT INTO ledger VALUES (3, 30, 2)", "stale"),
            ("INSERT INTO ledger VALUES (3, 30, NULL)", "no token"),
            ("INSERT INTO ledger VALUES (3, 30, 0)", "no token"),
            ("INSERT INTO ledger VALUES (3, 30, -1)", "no token"),
            ("INSERT INTO ledger VALUES (3, 30, 4)", "ok"),
            ("UPDATE ledger SET amount = 11, token = 3 WHERE id = 1", "stale"),
            # An unaware writer carries the old token along.
            ("UPDATE ledger SET amount = 11 WHERE id = 1", "stale"),
            ("UPDATE ledger SET amount = 21 WHERE id = 2", "no token"),
            ("UPDATE ledger SET amount = 31 WHERE id = 3", "ok"),
            ("UPDATE ledger SET amount = 11, token = 5 WHERE id = 1", "ok"),
            ("UPDATE ledger SET amount = 32 WHERE id = 3", "stale"),
            ("DELETE FROM ledger WHERE id = 3", "stale"),
            ("DELETE FROM ledger WHERE id = 2", "no token"),
            ("DELETE FROM ledger WHERE id <> 2", "stale"),
            ("DELETE FROM ledger WHERE id = 1", "ok"),
            (db.claim("books", 4), "stale"),
            (db.claim("books", 7), "ok"),
            ("INSERT INTO ledger VALUES (1, 10, 6)", "stale"),
            # Stamped first, a row can be deleted.
            (f"{db.begin}; UPDATE ledger SET token = 7 WHERE id = 3; "
             "DELETE FROM ledger WHERE id = 3 AND token = 7; COMMIT", "ok")):
        answer = s.ask(statement)
        check(answer.word == word, f"{statement}: {answer.word}, wanted {word}")
    equal(s.ask("SELECT id, amount FROM ledger").rows[0].replace("\t", "|"), "2|20")
    equal(s.value("SELECT count(*) FROM ledger"), "1")


@over(SQLite, Postgres, MariaDB)
def a_guard_in_shadow_mode_counts(_, db):
    s = guarded(db, "ledger", (1, 10, 3), (2, 20, "NULL"))
    db.shadow("books", True)
    s.done("INSERT INTO ledger VALUES (3, 30, 2)",                      # stale
           "INSERT INTO ledger VALUES (4, 40, NULL)",                   # no token
           "UPDATE ledger SET amount = 11, token = 4 WHERE id = 1",     # fine
           "UPDATE ledger SET amount = 31 WHERE id = 3",                # stale
           "DELETE FROM ledger WHERE id = 3",                           # stale
           "DELETE FROM ledger WHERE id = 4",                           # no token
           "DELETE FROM ledger WHERE id = 1")                           # fine
    equal(db.shadowed("books"), 5)
    equal(db.call("show", "books")[1], 4)
    db.shadow("books", False)
    equal(s.ask("INSERT INTO ledger VALUES (3, 30, 2)").word, "stale")
    equal(s.value("SELECT count(*) FROM ledger"), "1")
    equal(db.shadowed("books"), 5)


@over(SQLite, Postgres, MariaDB)
def installing_again_changes_nothing(_, db):
    s = guarded(db, "ledger", (1, 10, 3))
    s.done(db.claim("books", 9), db.claim("other", 4))
    db.shadow("other", True)
    s.done(db.claim("other", 2))
    fences = "SELECT resource, token, shadow, shadowed FROM picket_fence ORDER BY resource"
    before = s.ask(fences).rows
    equal(len(before), 2)
    db.install()
    db.install("ledger", "token", "books")
    equal(s.ask(fences).rows, before)
    equal(s.ask("INSERT INTO ledger VALUES (2, 10, 8)").word, "stale")
    # The guard can be moved to another column or resource.
    db.install("ledger", "amount", "amounts")
    equal(s.ask("INSERT INTO ledger VALUES (2, 9, 8)").word, "stale")
    s.done("INSERT INTO ledger VALUES (2, 11, 8)")


@over(SQLite, Postgres, MariaDB)
def names_are_names_whatever_stands_in_them(_, db):
    s = db.session()
    s.done("CREATE TABLE victim (x INTEGER)")
    q = db.quote
    for n, name in enumerate(("x'y", 'x"y', "x`y", "x\\y", "x; DROP TABLE victim; --",
                              "x\\'; DROP TABLE victim; -- ", "@column@", "sel ect.me",
                              "Ünïcödé", "$body$", "x" * 60)):
        if db.name == "mariadb" and name.endswith(" "):
            continue  # no name of a table there
        table, column = (q + (p + name).replace(q, q + q) + q for p in ("t", "c"))
        s.done(f"CREATE TABLE {table} (id INTEGER, {column} BIGINT)")
        quoted = '"' + ("t" + name).replace('"', '""') + '"'
        db.install(quoted, "c" + name, name)
        s.done(f"INSERT INTO {table} VALUES (1, {n + 5})")
        equal(s.ask(f"INSERT INTO {table} VALUES (2, {n + 4})").word, "stale")
        equal(db.call("check", name, n + 5)[:2], ("OK", n + 5))
        equal(s.value(f"SELECT count(*) FROM {table}"), "1")
    equal(s.value("SELECT count(*) FROM victim"), "0")


@over(SQLite, Postgres, MariaDB)
def what_cannot_be_guarded_is_refused_whole(_, db):
    s = db.session()
    s.done("CREATE TABLE plain (id INTEGER, token BIGINT)")
    for table, column, status in (("nosuch", "token", "STORE"), ("plain", "nosuch", "STORE"),
                                  ("a.b.c", "token", "BADARG"), ('"open', "token", "BADARG"),
                                  ("", "token", "BADARG"), ("plain", "", "BADARG"),
                                  ("pl\nain", "token", "BADARG")):
        got, _, why = db.call("install", table, column)
        check(got == status, f"{table}, {column}: {got} {why}")
        equal(len(why.splitlines()), 1)
    s.done("INSERT INTO plain VALUES (1, NULL)")  # there is no half a guard on it
    if db.name == "mariadb":
        s.done("CREATE TABLE aria (id INTEGER, token BIGINT) ENGINE = Aria")
        contains(db.call("install", "aria", "token")[2], "InnoDB")
    if db.name == "postgres":
        s.done("CREATE SCHEMA other", "CREATE TABLE other.t (token BIGINT)")
        db.install("other.t", "token")
        s.done("INSERT INTO other.t VALUES (5)")
        equal(s.ask("INSERT INTO other.t VALUES (4)").word, "stale")
        equal(db.call("claim", "other.t", 4)[:2], ("STALE", 5))
        equal(s.ask("TRUNCATE other.t").word, "no token")


@over(SQLite, Postgres, MariaDB)
def what_is_printed_can_be_run_by_hand(t, db):
    s = db.session()
    s.done("CREATE TABLE ledger (id INTEGER, token BIGINT)")
    status, _, text = db.call("sql", "ledger", "token")
    equal(status, "OK")
    for _ in range(2):
        hand = db.session()
        hand.send(text)
        answer = hand.answer()
        equal(answer.error, "")
    s.done("INSERT INTO ledger VALUES (1, 5)")
    equal(s.ask("INSERT INTO ledger VALUES (1, 4)").word, "stale")
    equal(db.call("check", "ledger", 5)[0], "OK")


# ---- who may do what ----

@over(Postgres)
def postgres_needs_few_rights_and_no_more(_, db):
    db.install()
    s = db.session()
    s.done("CREATE ROLE worker LOGIN PASSWORD 'pass'", "CREATE ROLE guest LOGIN "
           "PASSWORD 'pass'", "GRANT EXECUTE ON FUNCTION picket_claim(text, bigint), "
           "picket_check(text, bigint) TO worker")
    worker = db.session("worker", "pass")
    worker.done(db.claim("r", 5), db.checks("r", 5))
    for statement in ("UPDATE picket_fence SET token = 1", "DELETE FROM picket_fence",
                      "INSERT INTO picket_fence VALUES ('q', 1)",
                      "CREATE TRIGGER x AFTER INSERT ON pg_temp.t FOR EACH ROW "
                      "EXECUTE FUNCTION picket_guard('token', 'r')"):
        worker.ask("CREATE TEMP TABLE t (token bigint)")
        equal(worker.ask(statement).word, "denied")
    # Names of its own don't mislead the functions.
    worker.done("CREATE TEMP TABLE picket_fence (resource text PRIMARY KEY, token bigint, "
                "value bytea, shadow boolean, shadowed bigint)",
                "INSERT INTO picket_fence VALUES ('r', 1, NULL, true, 0)",
                "SET search_path = pg_temp, public")
    equal(worker.ask(db.claim("r", 4)).word, "stale")
    equal(db.session("guest", "pass").ask(db.claim("r", 6)).word, "denied")
    status, _, why = db.call("claim", "r", 6, url=db.url_of("guest", "pass"))
    equal(status, "DENIED")
    contains(why, "picket_claim")
    # As docs/fencing-sql.md says: what the library needs beside the functions.
    s.done("GRANT SELECT, UPDATE (value) ON picket_fence TO worker")
    equal(db.call("set", "r", 7, url=db.url_of("worker", "pass"), value=b"v"), ("OK", 7, ""))
    equal(db.call("get", "r", 7, url=db.url_of("worker", "pass")), ("OK", 7, "v"))
    equal(db.call("mode", "r", 1, url=db.url_of("worker", "pass"))[0], "DENIED")


@over(MariaDB)
def mariadb_needs_few_rights_and_no_more(_, db):
    db.install()
    s = db.session()
    s.done("CREATE USER worker IDENTIFIED BY 'pass'", "CREATE USER guest IDENTIFIED BY "
           "'pass'", "GRANT EXECUTE ON PROCEDURE test.picket_claim TO worker",
           "GRANT EXECUTE ON PROCEDURE test.picket_check TO worker",
           "CREATE TABLE mine (id INTEGER, token BIGINT)",
           "GRANT INSERT, SELECT ON test.mine TO worker, guest")
    worker = db.session("worker", "pass")
    worker.done(db.claim("r", 5), db.checks("r", 5))
    for statement in ("UPDATE picket_fence SET token = 1", "DELETE FROM picket_fence",
                      "CALL picket_raise('r', 6)"):
        equal(worker.ask(statement).word, "denied")
    # A guarded table needs no right to the fence at all.
    db.install("mine", "token")
    guest = db.session("guest", "pass")
    guest.done("INSERT INTO mine VALUES (1, 5)")
    equal(guest.ask("INSERT INTO mine VALUES (1, 4)").word, "stale")
    s.done("GRANT SELECT ON test.picket_fence_version TO worker",
           "GRANT SELECT, UPDATE (value) ON test.picket_fence TO worker")
    equal(db.call("set", "r", 7, url=db.url_of("worker", "pass"), value=b"v"), ("OK", 7, ""))
    equal(db.call("get", "r", 7, url=db.url_of("worker", "pass")), ("OK", 7, "v"))
    status, _, why = db.call("mode", "r", 1, url=db.url_of("worker", "pass"))
    equal(status, "DENIED")
    contains(why, "denied")


# ---- what can be wrong ----

@over(SQLite, Postgres, MariaDB)
def without_the_fence_it_says_how_to_get_it(_, db):
    for verb, args in (("claim", ("r", 1)), ("check", ("r", 1)), ("get", ("r", 0)),
                       ("set", ("r", 1)), ("show", ("r",)), ("mode", ("r", 1))):
        status, _, why = db.call(verb, *args)
        equal(status, "STORE")
        contains(why, "no fence is installed in")
        contains(why, "run 'picket fence install " + db.url.split(":")[0][:5])
        check("secret" not in why, why)
    db.install()
    s = db.session()
    s.done("DROP VIEW picket_fence_version",
           "CREATE VIEW picket_fence_version AS SELECT 2 AS version")
    contains(db.call("claim", "r", 1)[2], "version 2, not 1")
    status, _, why = db.call("install")
    equal(status, "STORE")
    contains(why, "version 2")


@over(Postgres, MariaDB)
def a_server_that_refuses_or_is_gone_is_told_apart(_, db):
    db.install()
    for url in (db.url_of("app", "hunter2"), db.url_of("nobody", "hunter2")):
        status, _, why = db.call("claim", "r", 1, url=url)
        equal(status, "DENIED")
        check("hunter2" not in why and len(why.splitlines()) == 1, why)
    status, _, why = db.call("claim", "r", 1, url=db.url_of("app", "secret", "nosuch"))
    equal(status, "STORE")
    contains(why, "nosuch")
    # A connection that broke meanwhile is opened again.
    looping = subprocess.Popen([CALL, db.url, "loop", "r", "5"], text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    equal(looping.stdout.readline(), "OK 5\n")
    db.end()
    status, _, why = db.call("claim", "r", 6)
    equal(status, "UNREACHABLE")
    check("secret" not in why and len(why.splitlines()) == 1, why)
    db.start()
    looping.stdin.write("\n")
    looping.stdin.flush()
    equal(looping.stdout.readline(), "OK 5\n")
    db.end()
    looping.stdin.write("\n")
    looping.stdin.flush()
    equal(looping.stdout.readline(), "UNREACHABLE 0\n")
    contains(looping.stdout.readline(), "can't be reached")


@over(Postgres, MariaDB)
def an_answer_that_is_lost_is_unknown(_, db):
    db.install()
    for verb, wanted in (("set", "UNKNOWN"), ("claim", "OK"), ("get", "OK")):
        cutter = Cutter(db.port, {"postgres": b"\0COMMIT", "mariadb": b"\3COMMIT"}[db.name])
        url = db.url.replace(str(db.port), str(cutter.port))
        status, _, why = db.call(verb, "r", 5, url=url, value=b"written")
        equal((status, cutter.cuts), (wanted, 1))
        check("secret" not in why, why)
    equal(db.call("get", "r", 0), ("OK", 5, "written"))
    # Before the COMMIT nothing can have been done: it is tried again.
    cutter = Cutter(db.port, b"picket_claim")
    url = db.url.replace(str(db.port), str(cutter.port))
    equal((db.call("set", "r", 6, url=url, value=b"again")[0], cutter.cuts), ("OK", 1))
    equal(db.call("get", "r", 0), ("OK", 6, "again"))


@over(SQLite)
def a_file_that_cannot_be_written_or_is_no_database_is_told(t, db):
    db.install()
    other = t.write("other.db", "this is no database at all, but long enough for one\n" * 40)
    equal(db.call("claim", "r", 1, url="sqlite:" + other)[0], "STORE")
    equal(db.call("claim", "r", 1, url="sqlite:" + t.path("typo.db"))[0], "UNREACHABLE")
    check(not os.path.exists(t.path("typo.db")), "a database was made by a typo")


@test(timeout=60)
def a_claim_waits_for_a_bounded_time(t):
    """All at once, since it is a long one."""
    def claim(db, got):
        got[db.name] = db.call("claim", "r", 2)

    with SQLite(t) as sqlite, Postgres(t) as postgres, MariaDB(t) as mariadb:
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


main()

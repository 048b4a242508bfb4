#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Fences in databases: who may do what, and what is told when something is wrong."""
import os

from databases import Cutter, Loop, MariaDB, Postgres, SQLite, over
from tap import check, contains, equal, main

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
    worker.done("CREATE TEMP TABLE picket_fence (resource text PRIMARY KEY, "
                "token bigint, value bytea, shadow boolean, shadowed bigint)",
                "INSERT INTO picket_fence VALUES ('r', 1, NULL, true, 0)",
                "SET search_path = pg_temp, public")
    equal(worker.ask(db.claim("r", 4)).word, "stale")
    equal(db.session("guest", "pass").ask(db.claim("r", 6)).word, "denied")
    status, _, why = db.call("claim", "r", 6, url=db.url_of("guest", "pass"))
    equal(status, "DENIED")
    contains(why, "picket_claim")
    # As docs/fencing-sql.md says: what the library needs beside the functions.
    s.done("GRANT SELECT, UPDATE (value) ON picket_fence TO worker")
    mine = db.url_of("worker", "pass")
    equal(db.call("set", "r", 7, url=mine, value=b"v"), ("OK", 7, ""))
    equal(db.call("get", "r", 7, url=mine), ("OK", 7, "v"))
    equal(db.call("mode", "r", 1, url=mine)[0], "DENIED")


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
    mine = db.url_of("worker", "pass")
    equal(db.call("set", "r", 7, url=mine, value=b"v"), ("OK", 7, ""))
    equal(db.call("get", "r", 7, url=mine), ("OK", 7, "v"))
    status, _, why = db.call("mode", "r", 1, url=mine)
    equal(status, "DENIED")
    contains(why, "denied")


@over(Postgres, MariaDB)
def no_superuser_is_needed_to_install(_, db):
    s = db.session()
    s.done(*{"postgres": ("CREATE ROLE owner LOGIN PASSWORD 'pass'",
                          "CREATE SCHEMA owner AUTHORIZATION owner"),
             "mariadb": ("CREATE USER owner IDENTIFIED BY 'pass'",
                         "GRANT SELECT, INSERT, UPDATE, EXECUTE, CREATE, CREATE VIEW, "
                         "CREATE ROUTINE, TRIGGER ON test.* TO owner")}[db.name])
    owner = db.session("owner", "pass")
    owner.done("CREATE TABLE own (id INTEGER, token BIGINT)")
    url = db.url_of("owner", "pass")
    for _ in range(2):
        equal(db.call("install", "own", "token", url=url), ("OK", 0, ""))
    owner.done("INSERT INTO own VALUES (1, 5)", db.claim("own", 6))
    equal(owner.ask("UPDATE own SET id = 2").word, "stale")
    equal(db.call("claim", "own", 5, url=url)[:2], ("STALE", 6))


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
    loops = [Loop(db.url, "r", 5), Loop(db.url, "s", 5, 1 << 20)]
    equal([loop.answer()[0] for loop in loops], ["OK", "OK"])
    db.end()
    status, _, why = db.call("claim", "r", 6)
    equal(status, "UNREACHABLE")
    check("secret" not in why and len(why.splitlines()) == 1, why)
    db.start()
    equal([loop.again()[0] for loop in loops], ["OK", "OK"])
    db.end()
    for loop in loops:
        status, why = loop.again()
        equal(status, "UNREACHABLE")
        contains(why, "can't be reached")


@over(Postgres, MariaDB)
def an_answer_that_is_lost_is_unknown(_, db):
    db.install()
    commit = {"postgres": b"\0COMMIT", "mariadb": b"\3COMMIT"}[db.name]  # on the wire
    for verb, wanted in (("set", "UNKNOWN"), ("claim", "OK"), ("get", "OK")):
        cutter = Cutter(db.port, commit)
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


@over(MariaDB)
def a_server_on_this_machine_has_several_addresses(t, db):
    db.install()
    for url in (db.url.replace("127.0.0.1", "localhost"),
                f"mariadb://app:secret@/test?socket={t.path('mysql.sock')}"):
        equal(db.call("claim", "r", 5, url=url), ("OK", 5, ""))


@over(SQLite)
def a_file_that_cannot_be_written_or_is_no_database_is_told(t, db):
    db.install()
    other = t.write("other.db", "this is no database, but it is long enough\n" * 40)
    equal(db.call("claim", "r", 1, url="sqlite:" + other)[0], "STORE")
    equal(db.call("claim", "r", 1, url="sqlite:" + t.path("typo.db"))[0], "UNREACHABLE")
    check(not os.path.exists(t.path("typo.db")), "a database was made by a typo")


main()

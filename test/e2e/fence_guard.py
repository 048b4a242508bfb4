#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Guards on tables with a token column, and what installing does and leaves alone."""
from databases import MariaDB, Postgres, SQLite, over
from tap import check, contains, equal, main


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
             "DELETE FROM ledger WHERE id = 3 AND token = 7; COMMIT", "ok"),
            # A row above the fence, which somebody has lowered: a delete claims nothing.
            ("INSERT INTO ledger VALUES (4, 40, 8)", "ok"),
            ("UPDATE picket_fence SET token = 1 WHERE resource = 'books'", "ok"),
            ("DELETE FROM ledger WHERE id = 4", "unclaimed")):
        answer = s.ask(statement)
        check(answer.word == word, f"{statement}: {answer.word}, wanted {word}")
    rows = s.ask("SELECT id, amount FROM ledger ORDER BY id").rows
    equal([row.replace("\t", "|") for row in rows], ["2|20", "4|40"])


@over(SQLite, Postgres, MariaDB)
def two_guarded_tables_keep_a_guard_each(_, db):
    """Also if their columns have the same name."""
    s = db.session()
    for name in ("ledger", "journal"):
        s.done(f"CREATE TABLE {name} (id INTEGER PRIMARY KEY, token BIGINT)")
        db.install(name, "token")
    for name, token in (("ledger", 9), ("journal", 5)):
        s.done(f"INSERT INTO {name} VALUES (1, {token})")
        for late in (f"INSERT INTO {name} VALUES (2, {token - 1})",
                     f"UPDATE {name} SET token = {token - 1}"):
            equal((late, s.ask(late).word), (late, "stale"))
        s.done(db.claim(name, token + 1))
        equal((name, s.ask(f"DELETE FROM {name}").word), (name, "stale"))
        equal(db.call("show", name)[1], token + 1)


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
    fences = ("SELECT resource, token, shadow, shadowed FROM picket_fence "
              "ORDER BY resource")
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
    for table, column, status in (
            ("nosuch", "token", "STORE"), ("plain", "nosuch", "STORE"),
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


@over(SQLite, Postgres, MariaDB)
def the_command_line_guards_a_table(t, db):
    """As docs/fencing-sql.md says it: the fence's name and the column may be others."""
    s = db.session()
    s.done("CREATE TABLE orders (id INTEGER, token BIGINT, by_whom BIGINT)")
    plain = t.picket("fence", "install", db.url, "--print", "--table", "orders")
    contains(plain.stdout, "orders")
    equal(s.ask("SELECT count(*) FROM picket_fence").error != "", True)  # nothing was run
    words = ("fence", "install", db.url, "--table", "orders")
    equal(t.picket(*words).returncode, 0)
    s.done("INSERT INTO orders VALUES (1, 5, 0)")
    equal(s.ask("INSERT INTO orders VALUES (2, 4, 0)").word, "stale")
    equal(db.call("check", "orders", 5)[:2], ("OK", 5))
    equal(t.picket(*words, "--column", "by_whom", "--guard", "books").returncode, 0)
    s.done("INSERT INTO orders VALUES (3, 0, 7)")
    equal(s.ask("INSERT INTO orders VALUES (4, 9, 6)").word, "stale")
    equal(db.call("check", "books", 7)[:2], ("OK", 7))


main()

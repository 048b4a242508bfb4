#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Locks in PostgreSQL when something goes wrong: real servers stopped, killed, restarted,
cut off, behind poolers, or of the wrong kind. What every store must do is the conformance
suite's business."""
import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time

from cluster import free_ports
from databases import Cutter, Postgres, find, over, run
from lan import Lan
from tap import (WAIT_S, alive, check, contains, equal, main, test, wait_until,
                 without_notices)

LEASE, ADVISORY = "?lock=lease", "?lock=advisory"
TOKEN = ["sh", "-c", "echo $PICKET_TOKEN"]
LONG = "600s"  # a TTL that no test waits for


def processes_of(db):
    """The server's own, children last."""
    found = [db.process.pid]
    for pid in found:
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
                found += [int(child) for child in f.read().split()]
    return found


def signal_all(db, number):
    for pid in processes_of(db):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_server(db):
    signal_all(db, signal.SIGKILL)
    db.process.wait()


def hold(t, url, name, *options, enter=(), job="read x"):
    """A `picket run` that holds the lock until its input ends; and its token."""
    argv = [*enter, t.program, "run", "--on", url, *options, name, "--", "sh", "-c",
            f"echo $PICKET_TOKEN; {job}"]
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True, env=t.env, cwd=t.dir)
    line = p.stdout.readline()
    check(line.strip(), f"no token: {p.stderr.read() if not line else ''}")
    return p, int(line)


def finish(p):
    """Lets the job end well."""
    _, said = p.communicate("\n")
    return p.returncode, said


def token(t, url, name, *options):
    """The token of a grant that has to succeed."""
    done = t.picket("run", "--on", url, *options, name, "--", *TOKEN)
    equal((done.returncode, done.stderr), (0, ""))
    return int(done.stdout)


def busy(t, url, name):
    done = t.picket("run", "--on", url, "-n", name, "--", "true")
    check(done.returncode in (0, 124), done.stderr)
    return done.returncode == 124


def sessions(db):
    """Backends of Picket's clients."""
    return ("SELECT pid FROM pg_stat_activity WHERE application_name = 'picket' "
            f"AND pid <> pg_backend_pid() AND {db.port} > 0")


def modes(function):
    """The test for each of the two modes."""
    for mode in (LEASE, ADVISORY):
        def one(t, db, mode=mode):
            function(t, db, db.url + mode)
        one.__name__ = f"{function.__name__}_{mode.partition('=')[2]}"
        over(Postgres)(one)
    return function


# ---- who gets in ----

@modes
def tokens_grow_while_many_race(t, db, url):
    path = t.path("tokens")
    # Under the lock: what is written last was read before.
    job = f"echo $PICKET_TOKEN >> {path}"
    workers = [t.start("run", "--on", url, "race", "--", "sh", "-c", job)
               for _ in range(16)]
    for w in workers:
        equal((w.wait(), without_notices(w.stderr.read())), (0, ""))
    written = [int(line) for line in t.read("tokens").split()]
    equal(len(written), 16)
    check(written == sorted(set(written)), f"not growing: {written}")


OPEN = "SELECT picket.lease_open(7, 600000, '')", "SELECT picket.session_renew(7, 600000)"
STAND = ("SELECT (picket.stand(7, 1, {}, 'db', false, 0, '', true)).state",
         "SELECT (picket.session_stand(7, {}, 'db', false, 0, '', true)).state")


@modes
def two_never_decide_at_once(t, db, url):
    token(t, url, "db")
    kind = int(url.endswith(ADVISORY))
    s, watcher = db.session(), db.session()
    s.done(OPEN[kind], "BEGIN")
    equal(s.value(STAND[kind].format(1)), "held")
    rival = t.start("run", "--on", url, "-n", "db", "--", "true")
    wait_until(lambda: db.waiting(watcher) == 1, what="the rival, waiting for its turn")
    s.done("COMMIT")
    equal(rival.wait(), 124)


@modes
def a_lease_excludes_itself(t, db, url):
    token(t, url, "db")
    kind = int(url.endswith(ADVISORY))
    s = db.session()
    s.done(OPEN[kind])
    equal([s.value(STAND[kind].format(request)) for request in (1, 1, 2)],
          ["held", "held", "waiting"])


def tree(pid):
    """The process and its children."""
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
        return [pid, *map(int, f.read().split())]


@over(Postgres)
def dead_waiters_are_passed_over(t, db):
    """Without a token for them."""
    p, first = hold(t, db.url, "db", "--ttl", LONG)
    s = db.session()
    waiters = []
    for ttl in ("1s", LONG):
        waiters.append(t.start("run", "--on", db.url, "--ttl", ttl, "db", "--", *TOKEN))
        wait_until(lambda: s.value("SELECT count(*) FROM picket.claim "
                                   "WHERE token IS NULL") == str(len(waiters)),
                   what="the waiter")
    for pid in tree(waiters[0].pid):
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: s.value("SELECT count(*) FROM picket.lease "
                               "WHERE expires_at < clock_timestamp()") == "1",
               what="the end of its lease")
    equal(finish(p)[0], 0)
    equal((waiters[1].wait(), waiters[1].stdout.read()), (0, f"{first + 1}\n"))


@modes
def a_queue_moves_on_by_itself(t, db, url):
    """The holder's release is enough: nobody has to look."""
    p, first = hold(t, url, "q", "--ttl", LONG)
    waiter = t.start("run", "--on", url, "--ttl", LONG, "q", "--", *TOKEN)
    s = db.session()
    table = "claim" if url.endswith(LEASE) else "session_claim"
    wait_until(lambda: s.value(f"SELECT count(*) FROM picket.{table} "
                               "WHERE token IS NULL") == "1", what="the waiter")
    equal(finish(p)[0], 0)
    equal(waiter.wait(), 0)
    check(int(waiter.stdout.read()) > first)
    # And nothing is left behind.
    for name in ("claim", "lease", "session", "session_claim", "ended", "closed"):
        equal((name, s.value(f"SELECT count(*) FROM picket.{name}")), (name, "0"))


@over(Postgres)
def advisory_locks_are_everybodys(t, db):
    url = db.url + ADVISORY
    s = db.session()
    first = token(t, url, "reports/daily")  # installs
    s.done("SELECT pg_advisory_lock(hashtextextended('reports/daily', 0))")
    done = t.picket("run", "--on", url, "-n", "reports/daily", "--", "true")
    equal(done.returncode, 124)
    contains(done.stderr, "psql")
    waiter = t.start("run", "--on", url, "reports/daily", "--", *TOKEN)
    wait_until(lambda: s.value("SELECT count(*) FROM picket.session_claim") == "1",
               what="the waiter")
    s.done("SELECT pg_advisory_unlock_all()")
    equal(waiter.wait(), 0)
    check(int(waiter.stdout.read()) > first)
    p, _ = hold(t, url, "reports/daily")
    question = "SELECT pg_try_advisory_lock(picket.key('reports/daily'))"
    equal(s.value(question), "f")
    equal(finish(p)[0], 0)
    equal(s.value(question), "t")


@over(Postgres)
def names_with_one_key_share_a_lock(t, db):
    url = db.url + ADVISORY
    token(t, url, "a")
    # No two such names are known, so the function is made to find some.
    db.session().done("CREATE OR REPLACE FUNCTION picket.key(its_name text) "
                      "RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 7::bigint'")
    p, _ = hold(t, url, "a")
    done = t.picket("run", "--on", url, "-n", "b", "--", "true")
    equal(done.returncode, 124)
    contains(done.stderr, "held by")
    equal(finish(p)[0], 0)
    check(not busy(t, url, "b"))


# ---- faults ----

@over(Postgres)
def a_terminated_backend_does_not_end_a_lease(t, db):
    url = db.url + LEASE
    p, first = hold(t, url, "db", "--ttl", "6s")
    s = db.session()
    before = s.value(sessions(db))
    s.done(f"SELECT pg_terminate_backend({before})")
    # It comes back by itself, to renew.
    wait_until(lambda: s.value(sessions(db)) not in (None, before), what="a new backend")
    check(busy(t, url, "db"))
    equal(finish(p), (0, ""))
    check(token(t, url, "db") > first)


@over(Postgres)
def a_terminated_backend_is_told_at_once(t, db):
    url = db.url + ADVISORY
    p, first = hold(t, url, "db", "--ttl", LONG, job="exec sleep 1000")
    s = db.session()
    s.done(f"SELECT pg_terminate_backend(pid) FROM ({sessions(db)}) p")
    equal(p.wait(timeout=WAIT_S), 123)  # far less than the TTL
    # Since the holder has said that it knows, nobody waits for that either.
    check(token(t, url, "db", "-w", "120s") > first)


@over(Postgres)
def a_dead_session_keeps_others_out_for_its_ttl(t, db):
    """P4: nobody has said that its holder knows."""
    url = db.url + ADVISORY
    token(t, url, "db")
    dead, s = db.session(), db.session()
    dead.done(OPEN[1])
    equal(dead.value(STAND[1].format(1)), "held")
    s.done(f"SELECT pg_terminate_backend({dead.value('SELECT pg_backend_pid()')})")
    wait_until(lambda: s.value("SELECT count(*) FROM picket.session_lock") == "0",
               what="the end of the session")
    check(busy(t, url, "db"))
    equal(s.value("SELECT until_at > clock_timestamp() + interval '5 minutes' "
                  "FROM picket.closed WHERE name = 'db'"), "t")


@over(Postgres)
def a_stopped_session_is_broken(t, db):
    """It can't let go by itself, so that the server ends it, long before its TTL."""
    url = db.url + ADVISORY
    p, first = hold(t, url, "db", "--ttl", LONG, "--lock-delay", "0s")
    frozen = tree(p.pid)
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    done = t.picket("break", "db", "--reason", "it hangs", "--on", url)
    equal((done.returncode, done.stderr), (0, ""))
    check(token(t, url, "db", "-w", "120s") > first)
    for pid in reversed(frozen):
        os.kill(pid, signal.SIGCONT)
    equal(p.wait(timeout=WAIT_S), 123)


@over(Postgres)
def a_waiter_survives_a_terminated_backend(t, db):
    url = db.url + LEASE
    p, first = hold(t, url, "db", "--ttl", LONG)
    waiter = t.start("run", "--on", url, "--ttl", LONG, "db", "--", *TOKEN)
    s = db.session()
    wait_until(lambda: s.value("SELECT count(*) FROM picket.claim") == "2",
               what="the waiter")
    s.done(f"SELECT pg_terminate_backend(pid) FROM ({sessions(db)}) p")
    equal(finish(p)[0], 0)
    equal(waiter.wait(), 0)
    check(int(waiter.stdout.read()) > first)


def through(url, cutter):
    return re.sub(r":\d+/", f":{cutter.port}/", url)


@over(Postgres)
def lost_answers_grant_nothing_twice(t, db):
    """The statement came through, its answer did not: what was asked is asked again."""
    first = token(t, db.url, "db")  # installs
    s = db.session()
    for words in (b"picket.stand", b"picket.leave", b"picket.lease_open",
                  b"picket.lease_close", b"picket.lease_resume"):
        cutter = Cutter(db.port, words)
        if words == b"picket.lease_resume":
            # It is asked for only after another connection was lost.
            cutter.port = through_two(cutter, b"picket.stand")
        got = token(t, through(db.url, cutter), "db")
        equal((words, got, cutter.cuts), (words, first + 1, 1))
        first = got
        wait_until(lambda: s.value("SELECT count(*) FROM picket.claim") == "0",
                   what="nothing left behind")
    equal(s.value("SELECT last_value FROM picket.token"), str(first))


def through_two(cutter, words):
    """The port of one more that cuts, before the cutter."""
    return Cutter(cutter.port, words).port


@over(Postgres)
def lost_answers_end_a_session(t, db):
    """Nobody knows what it holds, so that it ends, and nobody waits for it."""
    url = db.url + ADVISORY
    first = token(t, url, "db")
    cutter = Cutter(db.port, b"picket.session_stand")
    second = token(t, through(url, cutter), "db", "--ttl", LONG)  # in another session
    equal(cutter.cuts, 1)
    check(first < second < token(t, url, "db"))


@over(Postgres)
def late_statements_are_void(t, db):
    """R5: what a connection that was given up has sent may come through at any time."""
    p, _ = hold(t, db.url, "other", "--ttl", LONG)
    s = db.session()
    lease, era = s.value("SELECT id, era FROM picket.lease").split("|")
    form = "SELECT (picket.stand({}, {}, 99, 'db', false, 0, '', true)).state"
    s.done(f"SELECT picket.lease_resume({lease})")
    equal(s.value(form.format(lease, era)), "void")
    equal(s.value(form.format(int(lease) - 1, era)), "over")
    equal(s.value("SELECT count(*) FROM picket.claim"), "1")
    equal(s.value(form.format(lease, int(era) + 1)), "held")
    equal(finish(p)[0], 0)


@over(Postgres)
def a_lease_that_is_over_stays_so(t, db):
    """R3: also if the clock is set back after somebody has seen it."""
    p, first = hold(t, db.url, "db", "--ttl", LONG)
    s = db.session()
    lease = s.value("SELECT id FROM picket.lease")
    s.done("UPDATE picket.lease SET expires_at = clock_timestamp()")
    renewal = f"SELECT picket.lease_renew({lease}, 0) IS NULL"
    equal(s.value(renewal), "t")  # and nobody has seen it yet
    check(token(t, db.url, "db") > first)
    equal(s.value(renewal), "t")
    equal(p.wait(timeout=WAIT_S), 123)  # it is told


@over(Postgres)
def killed_server_keeps_leases(t, db):
    url = db.url + LEASE
    p, first = hold(t, url, "db", "--ttl", LONG)
    kill_server(db)
    db.start()
    check(busy(t, url, "db"))
    equal(finish(p)[0], 0)
    check(token(t, url, "db") > first)


@over(Postgres)
def killed_server_ends_sessions(t, db):
    url = db.url + ADVISORY
    p, first = hold(t, url, "db", "--ttl", LONG, job="exec sleep 1000")
    kill_server(db)
    equal(p.wait(timeout=WAIT_S), 123)
    db.start()
    # Nobody was there to be told, so that the lock is closed; but not for ever.
    done = t.picket("run", "--on", url, "-n", "db", "--", *TOKEN)
    check(done.returncode in (0, 124), done.stderr)
    s = db.session()
    s.done("UPDATE picket.closed SET until_at = clock_timestamp()")
    check(token(t, url, "db", "-w", "120s") > first)


@modes
def stopped_server_is_a_loss(t, db, url):
    """And who comes after it goes on gets a later token."""
    p, first = hold(t, url, "db", "--ttl", "1s", job="exec sleep 1000")
    signal_all(db, signal.SIGSTOP)
    try:
        equal(p.wait(timeout=WAIT_S), 123)
        done = t.picket("run", "-q", "--on", url, "-w", "1s", "other", "--", "true")
        equal(done.returncode, 125)
        equal(len(done.stderr.splitlines()), 1)
        contains(done.stderr, f"postgres://app@127.0.0.1:{db.port}/postgres")
    finally:
        signal_all(db, signal.SIGCONT)
    check(token(t, url, "db", "-w", "120s") > first)


@modes
def a_pause_within_the_ttl_is_no_loss(t, db, url):
    """Longer than a renewal waits for its answer, 5 s, so that one fails."""
    p, first = hold(t, url, "db", "--ttl", "30s")
    s = db.session()
    table = "lease" if url.endswith(LEASE) else "session"
    question = f"SELECT expires_at FROM picket.{table}"
    before = s.value(question)
    # From a renewal on: the next is sent 10 s after it, and fails 5 s later.
    wait_until(lambda: s.value(question) != before, what="a renewal")
    signal_all(db, signal.SIGSTOP)
    time.sleep(16)
    signal_all(db, signal.SIGCONT)
    check(busy(t, url, "db"))
    equal(finish(p), (0, ""))
    check(token(t, url, "db") > first)


@modes
def stopped_holder_is_followed(t, db, url):
    """Its backend lives as long as its machine answers; its lease does not."""
    p, first = hold(t, url, "db", "--ttl", "1s")
    stopped = tree(p.pid)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    later = token(t, url, "db", "-w", "120s")
    check(later > first)
    for pid in reversed(stopped):
        os.kill(pid, signal.SIGCONT)
    equal(p.wait(timeout=WAIT_S), 123)


@modes
def killed_keeper_is_followed_after_its_job(t, db, url):
    """A session ends with its process at once; what that process started does not."""
    path = t.path("job")
    p, first = hold(t, url, "db", "--ttl", "2s",
                    job=f"echo $$ > {path}; trap '' TERM; while :; do sleep 0.05; done")
    pid = int(wait_until(lambda: t.read("job"), what="the job"))
    p.kill()
    done = t.picket("run", "--on", url, "-w", "120s", "db", "--", "sh", "-c",
                    f"echo $PICKET_TOKEN; kill -0 {pid}")
    check(int(done.stdout) > first)
    equal((done.returncode, alive(pid)), (1, False))


@test
def cut_network_is_a_loss(t):
    with Lan(2) as lan:
        server, client = lan.hosts
        db = Postgres(t)
        db.listen = "*"
        with server.inside():
            db.start()
            with open(os.path.join(db.data, "pg_hba.conf"), "a", encoding="ascii") as f:
                f.write("host all all samenet scram-sha-256\n")
            db.session().done("SELECT pg_reload_conf()")
        for mode in (LEASE, ADVISORY):
            url = f"postgres://app:secret@{server.address}:{db.port}/postgres{mode}"
            p, first = hold(t, url, "db", "--ttl", "2s", enter=client.enter,
                            job="exec sleep 1000")
            lan.part([server], [client])
            equal(p.wait(timeout=WAIT_S), 123)
            # The server finds out about the session by itself, too.
            check(token(t, url, "db", "-w", "120s") > first)
            lan.heal()


# ---- poolers ----

@contextlib.contextmanager
def bouncer(t, db, mode, *settings):
    port = free_ports(1)[0]
    users = t.write(f"users-{mode}", '"app" "secret"\n')
    ini = t.write(f"bouncer-{mode}", f"""[databases]
postgres = host=127.0.0.1 port={db.port} dbname=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = {mode}
default_pool_size = 5
""" + "\n".join(settings))
    os.chmod(t.dir, 0o755)
    with open(t.path(f"bouncer-{mode}.log"), "wb") as log:
        p = subprocess.Popen([find("pgbouncer", "/usr/sbin"), ini], stdout=log,
                             stderr=log, **db.as_user)
    def ready():
        equal(p.poll(), None)
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        return False
    wait_until(ready, what="pgbouncer")
    try:
        yield f"postgres://app:secret@127.0.0.1:{port}/postgres"
    finally:
        p.kill()
        p.wait()


@modes
def transaction_pooling_is_refused(t, db, url):
    mode = "?" + url.partition("?")[2]
    # Of the backends that are free, the last one used, or the first.
    for pooling in (["transaction"], ["transaction", "server_round_robin = 1"],
                    ["transaction", "default_pool_size = 1"], ["statement"]):
        with bouncer(t, db, *pooling) as pooled:
            done = t.picket("run", "-q", "--on", pooled + mode, "db", "--", "true")
            equal(done.returncode, 125)
            equal(len(done.stderr.splitlines()), 1)
            contains(done.stderr, "pool_mode=session")
            check("secret" not in done.stderr, done.stderr)
    # Nothing of ours is left with backends that others will get.
    equal(db.session().value("SELECT to_regnamespace('picket') IS NULL"), "t")


@modes
def session_pooling_works(t, db, url):
    mode = "?" + url.partition("?")[2]
    with bouncer(t, db, "session") as pooled:
        p, first = hold(t, pooled + mode, "db")
        check(busy(t, url, "db"))
        waiter = t.start("run", "--on", pooled + mode, "db", "--", *TOKEN)
        s = db.session()
        table = "claim" if mode == LEASE else "session_claim"
        wait_until(lambda: s.value(f"SELECT count(*) FROM picket.{table}") == "2",
                   what="the waiter")
        equal(finish(p)[0], 0)
        equal(waiter.wait(), 0)
        check(int(waiter.stdout.read()) > first)


# ---- bad places ----

def refusal(t, url, code, *words):
    done = t.picket("run", "-q", "--on", url, "-w", "2s", "db", "--", "true")
    equal((done.returncode, len(done.stderr.splitlines())), (code, 1))
    for word in words:
        contains(done.stderr, word)
    check("hush" not in done.stderr, done.stderr)


@over(Postgres)
def wrong_words_are_explained(t, db):
    place = f"127.0.0.1:{db.port}"
    shown = f"postgres://app@{place}/postgres"
    refusal(t, db.url_of("app", "hush"), 122, shown, "password")
    refusal(t, f"postgres://app:hush@{place}/nowhere", 122, "password")
    refusal(t, db.url_of("app", "secret", "nowhere"), 125, "does not exist")
    for mode in ("hush", "leases", "advisor", ""):
        refusal(t, db.url + "?lock=" + mode, 125, "lease or advisory")
    refusal(t, db.url + "?wonder=1", 125, "is not a URL")
    refusal(t, f"postgres://app:hush@127.0.0.1:x{db.port}/postgres", 125, "is not a URL")
    refusal(t, f"postgresql://app:hush@127.0.0.1:{free_ports(1)[0]}/postgres", 125,
            "refused")
    check(not busy(t, "postgresql" + db.url[len("postgres"):], "db"))
    s = db.session()
    for query in ("?lock=advisory&application_name=tester",
                  "?application_name=tester&lock=advisory",
                  "?connect_timeout=9&lock=advisory&application_name=tester"):
        p, _ = hold(t, db.url + query, "db")
        equal(s.value("SELECT count(*) FROM pg_stat_activity a JOIN picket.session s "
                      "ON s.pid = a.pid WHERE application_name = 'tester'"), "1")
        equal(finish(p)[0], 0)


@test
def wrong_kind_of_server_is_explained(t):
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        while True:
            c, _ = listener.accept()
            c.recv(100)
            c.sendall(b"-ERR unknown command\r\n")
            c.close()
    threading.Thread(target=answer, daemon=True).start()
    port = listener.getsockname()[1]
    refusal(t, f"postgres://app:hush@127.0.0.1:{port}/postgres", 125,
            f"postgres://app@127.0.0.1:{port}/postgres is not a PostgreSQL server")


@over(Postgres)
def rights_are_asked_for(t, db):
    s = db.session()
    s.done("CREATE ROLE worker LOGIN PASSWORD 'pass'")
    mine = db.url_of("worker", "pass")
    refusal(t, mine, 122, "CREATE ON DATABASE")
    first = token(t, db.url, "db")  # as another role
    refusal(t, mine, 122, "GRANT")
    s.done("GRANT USAGE ON SCHEMA picket TO worker",
           "GRANT ALL ON ALL TABLES IN SCHEMA picket TO worker",
           "GRANT ALL ON ALL SEQUENCES IN SCHEMA picket TO worker")
    check(token(t, mine, "db") > first)
    check(token(t, mine + ADVISORY, "db") > first)


@over(Postgres)
def another_version_is_refused(t, db):
    first = token(t, db.url, "db")
    s = db.session()
    s.done("UPDATE picket.about SET version = 99")
    refusal(t, db.url, 125, "version 99")
    s.done("UPDATE picket.about SET version = 1")
    check(token(t, db.url, "db") > first)


@modes
def settings_of_a_role_do_not_harm(t, db, url):
    s = db.session()
    s.done("ALTER ROLE app SET idle_session_timeout = '300ms'",
           "ALTER ROLE app SET default_transaction_isolation = 'serializable'",
           "ALTER ROLE app SET default_transaction_read_only = on",
           "ALTER ROLE app SET search_path = nowhere")
    p, first = hold(t, url, "db", "--ttl", "6s")
    watcher = db.session()
    watcher.done("SET idle_session_timeout = 0")
    before = watcher.value(sessions(db))
    table = "lease" if url.endswith(LEASE) else "session"
    seen = set()
    # Between two renewals there is more silence than that.
    wait_until(lambda: seen.add(watcher.value(f"SELECT expires_at FROM picket.{table}"))
               or len(seen) > 2, what="some renewals")
    equal(watcher.value(sessions(db)), before)
    check(busy(t, url, "db"))
    equal(finish(p), (0, ""))
    check(token(t, url, "db") > first)


def standby_of(t, db):
    data = t.path("standby")
    run(find("pg_basebackup"), "-d", db.url, "-D", data, "-R", "-c", "fast", "--no-sync")
    run("chown", "-R", "nobody", data)
    os.chmod(data, 0o700)
    standby = Postgres(t)
    standby.data = data
    standby.start()
    return standby


@over(Postgres)
def a_standby_is_refused(t, db):
    first = token(t, db.url, "db")
    standby = standby_of(t, db)
    refusal(t, standby.url, 125, "is a standby", "target_session_attrs=read-write")
    both = (f"postgres://app:secret@127.0.0.1:{standby.port},127.0.0.1:{db.port}/postgres"
            "?target_session_attrs=read-write")
    check(token(t, both, "db") > first)


# ---- the doctor ----

def findings(t, url):
    done = t.picket("doctor", url, "-o", "json")
    check(done.stdout, done.stderr)
    return done.stdout


@over(Postgres)
def the_doctor_knows_weak_commits(t, db):
    db.session().done("ALTER ROLE app SET synchronous_commit = off")
    said = findings(t, db.url)
    contains(said, "synchronous_commit is off; our own sessions use on")
    contains(said, "no-fsync")  # as the tests' servers run
    contains(said, "wall-clock")
    contains(findings(t, db.url + ADVISORY), "idle-limit")


@over(Postgres)
def the_doctor_finds_asynchronous_replicas(t, db):
    contains(findings(t, db.url), "single-server")
    standby_of(t, db)
    contains(findings(t, db.url), "async-replicas")


main()

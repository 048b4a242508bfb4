# SPDX-License-Identifier: MIT
"""The programs of examples/, run as their users would: two at a time, one of them paused
past its lease and woken, or killed.

Where one is paused the store is a server: of the embedded one, a process can be stopped
in the midst of a turn, and then all others wait for it.
"""
import functools
import os
import re
import shutil
import signal
import subprocess

from cluster import Cluster
from databases import Postgres
from holding import line_with, ok, parsed
from tap import check, contains, equal, main, skip, stopped, test, wait_until

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
BUILT = os.path.abspath(os.environ.get("EXAMPLES", "build/examples"))
NAMES = sorted(e.name for e in os.scandir(BUILT)
               if e.is_file() and os.access(e.path, os.X_OK))


def start(t, name, *args):
    return subprocess.Popen([os.path.join(BUILT, name), *map(str, args)], cwd=t.dir,
                            env=t.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def served(function):
    """A test whose store is a server."""
    @functools.wraps(function)
    def wrapped(t):
        with Cluster(t.program, t.path("cluster"), 1) as c:
            t.env["PICKET_URL"] = c.url
            function(t)
    return wrapped


def end(p):
    """Its exit code, and what has not been read yet of its words."""
    out, err = p.stdout.read(), p.stderr.read()
    return p.wait(), out, err


def run(t, name, *args):
    return end(start(t, name, *args))


def good(ended):
    """The output of one that has to succeed."""
    equal((ended[0], ended[2]), (0, ""))
    return ended[1]


def pause(p):
    os.kill(p.pid, signal.SIGSTOP)
    wait_until(lambda: stopped(p.pid), what="the pause")


def wake(p):
    os.kill(p.pid, signal.SIGCONT)
    return end(p)


def kill(p):
    p.kill()
    end(p)


def shown(t, lock):
    return parsed(t.picket("show", "-o", "json", lock))


# ---- cron_once ----

def until_free(t, day):
    """What cron does, only faster: tries until nobody else is at it."""
    return wait_until(lambda: (e := run(t, "cron_once", day))[0] != 124 and e,
                      what="a lock that is free")


@test
def cron_once__is_done_by_one_and_not_again(t):
    first = start(t, "cron_once", "monday")
    line_with(first.stdout, "part 1")
    code, _, err = run(t, "cron_once", "monday")
    equal(code, 124)
    contains(err, "nightly job")  # who has it
    contains(good(end(first)), "done: monday")
    equal(good(run(t, "cron_once", "monday")), "already done: monday\n")
    line_with(start(t, "cron_once", "tuesday").stdout, "part 1 of 5")


@test
@served
def cron_once__a_paused_one_stops_and_another_does_it_all(t):
    first = start(t, "cron_once", "monday")
    line_with(first.stdout, "part 2")
    pause(first)
    contains(good(until_free(t, "monday")), "part 1 of 5")
    code, out, err = wake(first)
    equal((code, "done" in out), (123, False))
    contains(err, "is lost: expired")
    equal(good(run(t, "cron_once", "monday")), "already done: monday\n")


# ---- leader ----

@test
@served
def leader__a_standby_takes_over_from_whoever_ends_sleeps_or_dies(t):
    watcher = start(t, "leader", "--observe")
    line_with(watcher.stdout, "nobody leads")
    reign = [start(t, "leader", "a:1")]
    line_with(reign[0].stdout, "leading as a:1")
    line_with(watcher.stdout, "a:1 leads")
    for name in ("b:1", "c:1", "d:1"):
        reign.append(start(t, "leader", name))
        line_with(reign[-1].stdout, "standing by")
    reign[0].terminate()
    equal(end(reign[0]), (0, "", ""))
    line_with(reign[1].stdout, "leading as b:1")
    pause(reign[1])
    line_with(reign[2].stdout, "leading as c:1")
    code, _, err = wake(reign[1])
    check(code in (1, 123), f"{code}: {err}")  # by the fence, if it was about to write
    kill(reign[2])
    line_with(reign[3].stdout, "leading as d:1")
    for name in ("b:1", "c:1", "d:1"):
        line_with(watcher.stdout, name + " leads")
    wait_until(lambda: "of token 4" in t.picket("fence", "get", "examples/beat").stdout,
               what="the last leader's work")


# ---- fenced_file ----

def lines_of(t):
    return [(int(n), int(token)) for _, n, _, _, token
            in (line.split() for line in t.read("report").splitlines())]


@test
@served
def fenced_file__a_paused_writer_is_refused_by_the_file(t):
    good(run(t, "fenced_file", "report", 1, 0))
    first = start(t, "fenced_file", "report", 3, 1000)
    line_with(first.stdout, "rendering line 2")
    pause(first)
    good(run(t, "fenced_file", "report", 2, 0))
    code, _, err = wake(first)
    equal((code, lines_of(t)), (1, [(1, 1), (2, 3), (3, 3)]))
    contains(err, "higher token")


# ---- read_write ----

SLOWLY = (1, 1000)  # once, with time to be stopped in the middle


@test
def read_write__readers_share_and_never_see_half_a_pair(t):
    many = 1000  # they read on until the test has seen what it waits for
    readers = [start(t, "read_write", "read", many) for _ in range(2)]
    wait_until(lambda: shown(t, "examples/pair")["holders"] == 2, what="two readers")
    writers = [start(t, "read_write", "write", 4) for _ in range(2)]
    for p in writers:
        good(end(p))
    equal(good(run(t, "read_write", "read")).split()[-1], "8")
    for p in readers:
        p.kill()
        code, out, err = end(p)
        equal((code, err), (-signal.SIGKILL, ""))
        contains(out, "\nread ")


@test
@served
def read_write__paused_ones_are_told_by_checkpoint_or_fence(t):
    reader = start(t, "read_write", "read", *SLOWLY)
    line_with(reader.stdout, "reading 0")
    pause(reader)
    writer = start(t, "read_write", "write", *SLOWLY)
    line_with(writer.stdout, "half of 1")
    pause(writer)
    good(run(t, "read_write", "write"))
    code, out, err = wake(reader)
    equal((code, "read 0" in out), (123, False))
    code, out, err = wake(writer)
    equal((code, out), (1, ""))
    contains(err, "higher token")
    contains(good(run(t, "read_write", "read")), "read 2")


# ---- workers ----

def jobs_of(*outs):
    """Which jobs were begun, and how often."""
    begun = [line.split()[1].rstrip(",") for out in outs for line in out.splitlines()]
    return {job: begun.count(job) for job in begun}


@test
@served
def workers__two_at_a_time_and_what_is_dropped_is_picked_up(t):
    pair = [start(t, "workers", 4, 600) for _ in range(2)]
    begun = [line_with(p.stdout, "job") for p in pair]
    pause(pair[0])
    third = start(t, "workers", 4, 600)
    wait_until(lambda: shown(t, "examples/workers")["waiters"] == 1, what="the queue")
    equal(shown(t, "examples/workers")["holders"], 2)
    rest = [good(end(p)) for p in (pair[1], third)]
    code, out, err = wake(pair[0])
    equal((code, out), (123, ""))
    contains(err, "is lost")
    jobs = jobs_of(*begun, *rest)
    dropped = jobs_of(begun[0]).popitem()[0]
    equal({j: n for j, n in jobs.items() if n != 1}, {dropped: 2})
    equal(sorted(jobs), ["1", "2", "3", "4"])
    equal(good(run(t, "workers", 4)), "")  # nothing is left to do


# ---- transfer ----

def balances(t):
    lines = good(run(t, "transfer", "ledger")).splitlines()
    return {name: int(amount) for name, amount in map(str.split, lines)}


@test
def transfer__opposite_directions_neither_deadlock_nor_lose_money(t):
    good(run(t, "transfer", "ledger", "za", 100, 0))
    good(run(t, "transfer", "ledger", "zb", 100, 0))
    for _ in range(5):
        payers = [start(t, "transfer", "ledger", way, 7, 0)
                  for way in ("ab", "ba", "ab", "bc", "ca")]
        codes = [end(p)[0] for p in payers]
        check(codes[4] in (0, 1), f"exit code {codes[4]}")  # c may be poor
        equal(codes[:4], [0, 0, 0, 0])
    now = balances(t)
    equal(sum(now.values()), 0)
    check(min(now["a"], now["b"], now["c"]) >= 0, f"overdrawn: {now}")


@test
@served
def transfer__a_paused_payer_does_not_count(t):
    good(run(t, "transfer", "ledger", "za", 100, 0))
    first = start(t, "transfer", "ledger", "ab", 80)
    line_with(first.stdout, "thinking")
    killed = start(t, "transfer", "ledger", "zc", 50)
    line_with(killed.stdout, "thinking")
    pause(first)
    kill(killed)
    good(run(t, "transfer", "ledger", "ac", 70, 0))
    code, _, err = wake(first)
    equal(code, 1)
    contains(err, "a later holder was here")
    contains(t.read("ledger"), " 80 a b\n")  # it is there, and nobody counts it
    equal(balances(t), {"a": 30, "b": 0, "c": 70, "z": -100})
    equal(run(t, "transfer", "ledger", "ab", 31, 0)[0], 1)


# ---- fenced_postgres ----

def pay_bob(db):
    return "fenced_postgres", db.url, "bob", 10


def stop_in_transaction(t, db, s):
    """Bob's payer, stopped after its claim: it waits for a row that we have."""
    s.done("BEGIN", "SELECT 1 FROM account WHERE name = 'bob' FOR UPDATE")
    p = start(t, *pay_bob(db), 0)
    watcher = db.session()
    wait_until(lambda: db.waiting(watcher) == 1, what="a payer that waits for the row")
    pause(p)
    s.done("COMMIT")
    return p


@test
@served
def fenced_postgres__a_paused_writer_is_refused_by_the_database(t):
    if "fenced_postgres" not in NAMES or not shutil.which("psql"):
        skip("PostgreSQL is not installed")
    with Postgres(t) as db:
        pay = ("fenced_postgres", db.url, "alice", 10)
        s = db.session()
        s.done("CREATE TABLE account (name text PRIMARY KEY, balance bigint NOT NULL)",
               "INSERT INTO account VALUES ('alice', 0), ('bob', 0)")
        code, _, err = run(t, *pay, 0)
        equal(code, 125)
        contains(err, "picket_claim")  # does not exist
        ok(t.picket("fence", "install", "-q", db.url))
        thinking = start(t, *pay)
        line_with(thinking.stdout, "thinking")
        pause(thinking)
        writing = stop_in_transaction(t, db, s)
        equal(good(run(t, *pay, 0)).splitlines()[-1], "balance 10")
        equal(good(run(t, *pay_bob(db), 0)).splitlines()[-1], "balance 10")
        code, _, err = wake(thinking)
        equal(code, 1)
        contains(err, "stale")
        code, _, err = wake(writing)
        equal(code, 125)
        contains(err, "idle-in-transaction timeout")
        equal(s.ask("SELECT balance FROM account").rows, ["10", "10"])
        equal(run(t, "fenced_postgres", db.url, "nobody", 10, 0)[0], 125)


# ---- what is written in shell ----

def shell(t, *argv):
    """What it printed; it has to succeed, with our own picket on its PATH."""
    path = os.path.dirname(t.program) + os.pathsep + t.env["PATH"]
    done = subprocess.run(argv, cwd=t.dir, env=t.env | {"PATH": path}, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, check=False)
    check(done.returncode == 0, f"exit code {done.returncode}: {done.stderr}")
    return done.stdout


@test
def story__goes_as_it_is_told(t):
    told = shell(t, os.path.join(TREE, "examples", "story.sh"))
    for part in ("(exit code 124)", "a higher token has been here", "CORRUPTED", "SAFE"):
        contains(told, part)


@test
def demo__of_make_run_shows_tokens_that_grow(t):
    t.env["PICKET"] = t.program
    told = shell(t, os.path.join(TREE, "tools", "run-demo.sh"))
    for token in (1, 2):
        contains(told, f"holding demo with token {token} ")


@test
def without_locks__prints_what_the_page_says(t):
    if not shutil.which("sqlite3"):
        skip("sqlite3 is not installed")
    with open(os.path.join(TREE, "docs", "without-locks.md"), encoding="utf-8") as f:
        blocks = re.findall(r"^```sh\n(.*?)^```\n```text\n(.*?)^```", f.read(),
                            flags=re.DOTALL | re.MULTILINE)
    check(len(blocks) >= 7, f"only {len(blocks)} blocks")
    for script, wanted in blocks:
        equal(shell(t, "sh", "-eu", "-c", script), wanted)


# ---- all of them ----

@test
def installed__each_compiles_with_what_pkg_config_says(t):
    build = os.environ.get("PICKET_BUILD")
    if not build:
        skip("the library is instrumented, and not what ships")
    root = t.path("root")
    shell(t, "meson", "install", "-C", build, "--no-rebuild", "--destdir", root)
    pc = next(folder for folder, _, names in os.walk(root) if "picket.pc" in names)
    shell(t, "sed", "-i", f"s,^prefix=,&{root},", os.path.join(pc, "picket.pc"))
    t.env["PKG_CONFIG_PATH"] = pc
    for name in NAMES:
        libpq = "libpq" if name == "fenced_postgres" else ""
        shell(t, "sh", "-euc", 'cc -Wall -Werror "$1" -o "$2" '
              '$(pkg-config --cflags --libs picket $3)', "sh",
              os.path.join(TREE, "examples", name + ".c"), name, libpq)
    t.env["LD_LIBRARY_PATH"] = os.path.dirname(pc)
    contains(shell(t, "./cron_once", "monday"), "done: monday")


@test
def killed__what_they_leave_is_whole_or_known_to_be_torn(t):
    """All at once, since each takes as long as a lease."""
    job = start(t, "cron_once", "monday")
    line_with(job.stdout, "part 2")
    kill(job)
    file = start(t, "fenced_file", "report", 3, 1000)
    line_with(file.stdout, "rendering line 1")
    kill(file)
    writer = start(t, "read_write", "write", *SLOWLY)
    line_with(writer.stdout, "half of 1")
    kill(writer)
    file = start(t, "fenced_file", "report", 1, 0)
    reader = start(t, "read_write", "read")
    contains(good(until_free(t, "monday")), "part 1 of 5")  # there was no record
    good(end(file))
    equal([n for n, _ in lines_of(t)], [1])  # what was being rendered is not there
    code, _, err = end(reader)
    equal(code, 2)
    contains(err, "torn: 1 and 0")
    good(run(t, "read_write", "write"))
    contains(good(run(t, "read_write", "read")), "read 2")



@test
def all__say_what_is_wrong_with_a_call(t):
    check(len(NAMES) >= 6, f"only {NAMES}")
    for name in NAMES:
        code, out, err = run(t, name, "0", "0", "0", "0", "0", "0", "0")
        equal((name, code, out, err.count("\n")), (name, 125, "", 1))
        contains(err, "usage: " + name)


main()

# SPDX-License-Identifier: MIT
"""The verbs of the command line but for run (cli_run.py)."""
import json
import signal
import subprocess
import time

from holding import hold, let_go, line_with, ok, parsed, waiting
from tap import check, contains, equal, main, test, wait_until


def assignments(text):
    """The variables that `eval` would set, by a real shell."""
    done = subprocess.run(["sh", "-c", text + '\nprintf "%s\\0" "$PICKET_LOCK" '
                           '"$PICKET_TOKEN" "$PICKET_LEASE"; env'],
                          stdout=subprocess.PIPE, text=True, check=True)
    lock, token, lease, rest = done.stdout.split("\0")
    contains(rest, "PICKET_LEASE=" + lease)
    return lock, int(token), lease


@test
def acquire__prints_what_a_shell_can_evaluate(t):
    for name in ("plain/name", "$HOME", "~", "it's got \"quotes\" $HOME `id` \\ *",
                 "naïve ☃"):
        text = ok(t.picket("acquire", name))
        lock, token, lease = assignments(text)
        equal(lock, name)
        view = parsed(t.picket("show", "-o", "json", name))
        equal((view["holds"][0]["token"], view["holds"][0]["lease"]), (token, lease))


@test
def acquire__leaves_the_lock_to_extend_and_release(t):
    got = parsed(t.picket("acquire", "-o", "json", "--ttl", "30s", "db"))
    equal(got["ttl_ms"], 30000)
    env = {"PICKET_LOCK": "db", "PICKET_TOKEN": str(got["token"]),
           "PICKET_LEASE": str(got["lease"])}
    equal(t.picket("acquire", "-n", "db").returncode, 124)
    wrong = env | {"PICKET_TOKEN": str(got["token"] + 1)}
    equal(t.picket("release", env=wrong).returncode, 123)
    left = parsed(t.picket("extend", "-o", "json", "--ttl", "1h", env=env))
    equal(left, {"lease": got["lease"], "left_ms": 3600000})
    gone = parsed(t.picket("release", "-o", "json", env=env))
    equal(gone, {"lock": "db", "token": got["token"], "lease": got["lease"],
                 "lease_closed": True})
    equal(ok(t.picket("show", "db")), "db: free\n")
    equal(t.picket("release", env=env).returncode, 123)
    equal(t.picket("extend", env=env).returncode, 123)


@test
def acquire__has_a_minute_and_closes_nothing(t):
    got = parsed(t.picket("acquire", "-o", "json", "db"))
    equal(got["ttl_ms"], 60000)
    equal(parsed(t.picket("extend", "-o", "json", "--lease", got["lease"]))["left_ms"],
          60000)
    ok(t.picket("break", "-q", "db", "--reason", "test"))
    equal(ok(t.picket("show", "db")), "db: free\n")


@test
def acquire__of_a_set_is_all_or_nothing(t):
    ok(t.picket("acquire", "b"))
    busy = t.picket("acquire", "-n", "a", "--also", "b", "--also", "c")
    equal(busy.returncode, 124)
    contains(busy.stderr, "b is held by")
    equal(ok(t.picket("ls", "-q")), "b\n")
    got = parsed(t.picket("acquire", "-o", "json", "a", "--also", "c"))
    equal(got["also"], ["c"])
    ok(t.picket("release", "c", "--token", got["token"], "--lease", got["lease"]))
    equal(ok(t.picket("ls", "-q")), "b\n")
    for _ in range(2):  # all of a set is shared
        ok(t.picket("acquire", "-n", "-s", "x", "--also", "y"))


@test
def acquire__hands_over_a_whole_lease(t):
    """The TTL counts from the end of the wait, not from its beginning."""
    holder = hold(t, "db")
    waiter = t.start("acquire", "-v", "-o", "json", "--ttl", "1h", "db")
    line_with(waiter.stderr, "waiting for")
    time.sleep(1)  # of the lease that nobody has to renew yet
    before = time.monotonic()
    let_go(holder)
    equal((waiter.communicate()[0][:1], waiter.returncode), ("{", 0))
    left = parsed(t.picket("show", "-o", "json", "db"))["holds"][0]["left_ms"]
    took = (time.monotonic() - before) * 1000
    check(left >= 3600_000 - took - 10, f"{left} ms left {took} ms after the release")


@test
def acquire__without_a_reader_keeps_nothing(t):
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = t.picket("acquire", "db", stdout=full)
    equal(done.returncode, 125)
    equal(done.stderr.count("\n"), 1)
    equal(ok(t.picket("show", "db")), "db: free\n")


@test
def names__may_be_any_printable_text_and_json_parses(t):
    names = ["comma,separated", "räksmörgås/☃", 'quo"te\\back', "-dash", "a" * 255]
    for name in names:
        ok(t.picket("acquire", "--note", 'a "note" \\ ☃', "--", name))
    listed = parsed(t.picket("ls", "-o", "json"))
    equal([row["lock"] for row in listed], sorted(names, key=lambda n: n.encode()))
    equal(listed[0]["holder"]["note"], 'a "note" \\ ☃')
    equal(parsed(t.picket("show", "-o", "json", "--", "-dash"))["lock"], "-dash")


@test
def ls__lists_by_prefix(t):
    equal(ok(t.picket("ls", "-q")), "")
    equal(parsed(t.picket("ls", "-o", "json")), [])
    ok(t.picket("acquire", "x/1"))
    ok(t.picket("acquire", "-s", "x/2"))
    ok(t.picket("acquire", "-s", "x/2"))
    ok(t.picket("acquire", "--slots", "3", "y"))
    head, *rows = ok(t.picket("ls")).splitlines()
    equal(head.split(), "LOCK MODE HOLDER TOKEN HELD LEFT QUEUE".split())
    equal([row.split()[0] for row in rows], ["x/1", "x/2", "y"])
    contains(rows[1], "shared")
    contains(rows[1], " +1 ")
    contains(rows[2], "slots 1/3")
    equal(ok(t.picket("ls", "-q", "x/")), "x/1\nx/2\n")


@test
def ls__lists_more_than_fit_one_page(t):
    names = [f"lock/{n:04}" for n in range(1008)]
    for first in range(0, len(names), 16):
        others = (("--also", name) for name in names[first + 1:first + 16])
        ok(t.picket("acquire", "--ttl", "1h", names[first], *sum(others, ())))
    equal(ok(t.picket("ls", "-q")).split(), names)
    equal([row["lock"] for row in parsed(t.picket("ls", "-o", "json"))], names)
    equal([row.split()[0] for row in ok(t.picket("ls")).splitlines()], ["LOCK", *names])


@test
def show__tells_holder_and_queue_in_order(t):
    holder = hold(t, "db", "--note", "nightly")
    first = waiting(t, "db")
    second = waiting(t, "-s", "db")
    text = ok(t.picket("show", "db"))
    contains(text, "db: held, exclusive; 2 waiting")
    contains(text, f"pid {holder.pid} ")
    contains(text, "note: nightly")
    view = parsed(t.picket("why", "-o", "json", "db"))
    equal((view["state"], view["holders"], view["waiters"]), ("held", 1, 2))
    equal([w["pid"] for w in view["queue"]], [first.pid, second.pid])
    equal([w["place"] for w in view["queue"]], [1, 2])
    equal([w["mode"] for w in view["queue"]], ["exclusive", "shared"])
    equal(ok(t.picket("show", "-q", "db")), "")
    let_go(holder)
    for process in (first, second):
        equal(process.wait(), 0)
    equal(t.picket("show", "-q", "db").returncode, 1)
    equal(ok(t.picket("show", "db")), "db: free\n")


@test
def show__tells_of_a_closed_lock(t):
    got = parsed(t.picket("acquire", "-o", "json", "--lock-delay", "1h", "db"))
    ok(t.picket("break", "db", "--token", got["token"], "--reason", "test"))
    contains(ok(t.picket("show", "db")), "db: closed, for another ")
    equal(parsed(t.picket("show", "-o", "json", "db"))["state"], "closed")
    contains(ok(t.picket("ls")), "closed")
    late = t.picket("run", "-w", "10ms", "db", "--", "true")
    equal(late.returncode, 124)
    contains(late.stderr, "db, closed for another ")


@test
def break__ends_the_only_hold(t):
    ok(t.picket("acquire", "db"))
    equal(t.picket("break", "db", "--token", "99", "--reason", "no").returncode, 1)
    got = parsed(t.picket("break", "-o", "json", "db", "--reason", "it's time"))
    equal(got, {"lock": "db", "token": 1, "reason": "it's time"})
    free = t.picket("break", "db", "--reason", "again")
    equal(free.returncode, 1)
    contains(free.stderr, "nobody holds db")


@test
def break__does_not_choose_among_several(t):
    for _ in range(2):
        ok(t.picket("acquire", "-s", "db"))
    done = t.picket("break", "db", "--reason", "which?")
    equal(done.returncode, 125)
    equal(done.stderr.count("\n"), 1)
    contains(done.stderr, "2 holders; say which one by --token: 1 is ")
    contains(done.stderr, ", 2 is ")
    ok(t.picket("break", "db", "--token", "2", "--reason", "this"))
    equal(parsed(t.picket("show", "-o", "json", "db"))["holders"], 1)


@test
def fence__refuses_what_is_older(t):
    ok(t.picket("fence", "claim", "r", "--token", "5"))
    ok(t.picket("fence", "put", "r", "--token", "5", "v5"))
    equal(ok(t.picket("fence", "get", "r")), "v5")
    for action in (("put", "r", "late"), ("claim", "r"), ("check", "r"), ("get", "r")):
        done = t.picket("fence", action[0], *action[1:], "--token", "4")
        equal((done.returncode, done.stdout), (1, ""))
        contains(done.stderr, "5")
    equal(t.picket("fence", "check", "r", env={"PICKET_TOKEN": "5"}).returncode, 0)
    equal(t.picket("fence", "check", "r", "--token", "6").returncode, 1)
    stale = parsed(t.picket("fence", "put", "-o", "json", "r", "--token", "4", "v"), 1)
    equal((stale["accepted"], stale["status"], stale["token"], stale["fence"]),
          (False, "STALE", 4, 5))
    equal(ok(t.picket("fence", "get", "r", "--token", "6")), "v5")
    equal(t.picket("fence", "put", "r", "--token", "5", "zombie").returncode, 1)
    equal(t.picket("fence", "get", "nothing").returncode, 1)


@test
def fence__values_come_back_byte_for_byte(t):
    blob = bytes(range(256)) * 8
    with open(t.path("blob"), "wb") as f:
        f.write(blob)
    ok(t.picket("fence", "put", "r", "--token", "1", "--file", "blob"))
    equal(t.picket("fence", "get", "r", text=False).stdout, blob)
    value = parsed(t.picket("fence", "get", "-o", "json", "r"))
    check("value" not in value and value["value_base64"].startswith("AAEC"), value)
    ok(t.picket("fence", "put", "r", "--token", "1", "-", input='text\n\t"☃"'))
    equal(parsed(t.picket("fence", "get", "-o", "json", "r"))["value"], 'text\n\t"☃"')
    ok(t.picket("fence", "put", "r", "--token", "1", ""))
    equal(ok(t.picket("fence", "get", "r")), "")


@test
def watch__prints_one_object_per_line(t):
    watch = t.start("watch", "-v", "-o", "json", "--count", "5", "x/")
    line_with(watch.stderr, "watching x/")
    ok(t.picket("run", "y", "--", "true"))
    ok(t.picket("run", "x/1", "--", "true"))
    got = parsed(t.picket("acquire", "-o", "json", "x/2"))
    ok(t.picket("break", "x/2", "--reason", "be gone"))
    ok(t.picket("fence", "claim", "x/r", "--token", got["token"]))
    out, _ = watch.communicate()
    events = [json.loads(line) for line in out.splitlines()]
    equal([(e["event"], e.get("lock", e.get("resource"))) for e in events],
          [("granted", "x/1"), ("ended", "x/1"), ("granted", "x/2"), ("ended", "x/2"),
           ("fence-raised", "x/r")])
    equal((events[3]["why"], events[3]["reason"]), ("broken", "be gone"))
    equal(watch.returncode, 0)


@test
def watch__without_a_prefix_tells_of_leases_too(t):
    watch = t.start("watch", "-v", "-o", "json", "--count", "4")
    line_with(watch.stderr, "watching everything")
    ok(t.picket("run", "db", "--", "true"))
    events = [json.loads(line) for line in watch.communicate()[0].splitlines()]
    equal([e["event"] for e in events],
          ["lease-opened", "granted", "ended", "lease-ended"])


@test
def watch__prints_text_until_it_is_stopped(t):
    watch = t.start("watch", "-v")
    line_with(watch.stderr, "watching everything")
    ok(t.picket("run", "db", "--value", "a\x01b", "--", "true"))
    line = line_with(watch.stdout, "granted db")
    contains(line, "granted db exclusive token=1 lease=1")
    contains(line_with(watch.stdout, "ended db"), "ended db released token=1")
    watch.send_signal(signal.SIGINT)
    equal(watch.wait(), -signal.SIGINT)


@test
def elect__leads_until_a_signal(t):
    leader = t.start("elect", "-o", "json", "lead", "host:80")
    got = json.loads(leader.stdout.readline())
    equal((got["lock"], got["value"]), ("lead", "host:80"))
    equal(ok(t.picket("elect", "--observe", "--once", "lead")),
          f"leader lead token={got['token']} value=host:80\n")
    equal(t.picket("elect", "-n", "lead", "other").returncode, 124)
    leader.send_signal(signal.SIGTERM)
    equal(leader.wait(), 128 + signal.SIGTERM)
    none = t.picket("elect", "--observe", "--once", "lead")
    equal((none.returncode, none.stdout), (1, "none lead\n"))
    equal(ok(t.picket("show", "lead")), "lead: free\n")


@test
def elect__loses_when_broken(t):
    leader = t.start("elect", "lead", "host:80")
    equal(leader.stdout.readline(), "leader lead token=1\n")
    ok(t.picket("break", "lead", "--reason", "coup"))
    equal(leader.wait(), 123)
    contains(leader.stderr.read(), "picket: lead lost: broken: coup")


@test
def elect__observers_see_every_change(t):
    observer = t.start("elect", "--observe", "lead")
    equal(observer.stdout.readline(), "none lead\n")
    done = t.start("elect", "lead", "first", "--", "cat", stdin=subprocess.PIPE)
    equal(observer.stdout.readline(), "leader lead token=1 value=first\n")
    second = t.start("elect", "lead", "second")
    wait_until(lambda: parsed(t.picket("show", "-o", "json", "lead"))["waiters"] == 1)
    let_go(done)
    seen = observer.stdout.readline()
    if seen == "none lead\n":
        seen = observer.stdout.readline()
    equal(seen, "leader lead token=2 value=second\n")
    second.send_signal(signal.SIGINT)
    equal(second.wait(), 128 + signal.SIGINT)
    equal(observer.stdout.readline(), "none lead\n")


@test
def elect__runs_a_command_while_it_leads(t):
    done = t.picket("elect", "lead", "me", "--", "sh", "-c", "echo $PICKET_LOCK; exit 7")
    equal((done.returncode, done.stdout, done.stderr), (7, "lead\n", ""))


main()

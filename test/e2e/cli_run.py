# SPDX-License-Identifier: MIT
"""A command under a lock: `picket run`."""
import json
import os
import signal
import subprocess
import time

from holding import freeze, hold, let_go, line_with, waiting
from cluster import free_ports
from tap import alive, check, contains, equal, main, test, wait_until, without_notices


def view(t, name):
    return json.loads(t.picket("show", "-o", "json", name).stdout)


def is_free(t, name):
    return view(t, name)["state"] == "free"


def run(t, *words, **options):
    done = t.picket("run", *words, **options)
    return done.returncode, done.stdout, done.stderr


@test
def run__gives_the_child_its_lock(t):
    equal(run(t, "db", "--", "printenv", "PICKET_TTL_MS"), (0, "10000\n", ""))
    code, out, said = run(t, "--ttl", "3s", "db", "--", "env")
    env = dict(line.split("=", 1) for line in out.splitlines())
    equal((code, said), (0, ""))
    equal([env["PICKET_" + key] for key in ("LOCK", "TOKEN", "LEASE")], ["db", "2", "2"])
    equal((env["PICKET_TTL_MS"], env["PICKET_URL"]), ("3000", t.env["PICKET_URL"]))
    check(int(env["PICKET_LOSS_FD"]) > 2, "no PICKET_LOSS_FD")
    check(is_free(t, "db"), "not released")


@test
def run__makes_a_relative_url_absolute_for_the_child(t):
    code, out, _ = run(t, "--on", "local:here", "db", "--", "printenv", "PICKET_URL")
    equal((code, out), (0, f"local:{os.path.realpath(t.dir)}/here\n"))


@test
def run__leaves_standard_streams_to_the_child(t):
    equal(run(t, "db", "--", "cat", input="in\n"), (0, "in\n", ""))
    equal(run(t, "db", "--", "sh", "-c", "echo err >&2"), (0, "", "err\n"))


@test
def run__finds_no_descriptor_of_ours_where_one_was_closed(t):
    """A closed standard input was an internal pipe in the job, which read it for ever."""
    look = t.write("look.py", "import os, sys\n"
                   "of_ours = '/proc/self/fd/{}'.format\n"
                   "there = [n for n in range(3) if os.path.exists(of_ours(n))]\n"
                   "open(sys.argv[1], 'w').write(str(there))\n"
                   "sys.exit(3)\n")
    for words in ((), ("-F",)):
        for closed in ("<&-", "<&- >&-", "<&- 2>&-", "<&- >&- 2>&-"):
            script = (f"exec {closed}; exec '{t.program}' run {' '.join(words)} db -- "
                      f"python3 '{look}' '{t.path('fds')}'")
            done = subprocess.run(["sh", "-c", script], stdin=subprocess.PIPE, env=t.env,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  check=False)
            equal(done.returncode, 3)
            gone = {{"<&-": 0, ">&-": 1, "2>&-": 2}[c] for c in closed.split()}
            equal(t.read("fds"), str([n for n in range(3) if n not in gone]))
    wait_until(lambda: is_free(t, "db"), what="a release, after -F by a helper")


@test
def verbs__do_not_write_into_what_was_opened_for_a_closed_stream(t):
    """Standard output is closed: whoever prints fails, and holds nothing."""
    for words, code in (("acquire a", 125), ("show a", 125), ("ls", 125), ("extend", 125),
                        ("run a -- true", 0), ("acquire -q a -o json", 125)):
        done = subprocess.run(["sh", "-c", f"exec '{t.program}' {words} <&- >&-"],
                              env=t.env, stderr=subprocess.PIPE, text=True, check=False)
        equal((words, done.returncode), (words, code))
        check(is_free(t, "a"), "held by nobody who knows")
        equal(os.listdir(t.path("state")).count("journal"), 1)


@test
def run__says_that_a_store_does_not_answer_and_does_not_wait_for_it(t):
    port, = free_ports(1)
    url = f"redis://127.0.0.1:{port}"
    for words in (("run", "-n", "db", "--", "true"), ("acquire", "-n", "db"),
                  ("elect", "-n", "db", "me"), ("run", "-F", "-n", "db", "--", "true")):
        done = t.picket(words[0], "--on", url, *words[1:], notices=True)
        equal(done.returncode, 125)
        said = done.stderr.splitlines()
        equal(said[0], f"picket: waiting for an answer from the store {url}")
        contains(said[-1], "Connection refused")
    quiet = t.picket("run", "-q", "-n", "db", "--on", url, "--", "true", notices=True)
    equal((quiet.returncode, len(quiet.stderr.splitlines())), (125, 1))
    # Whoever would wait for the lock gives the store more time than who does not.
    on = ("--on", url, "--ttl", "30s")
    patient = t.start("run", *on, "db", "--", "true")
    line_with(patient.stderr, "waiting for an answer")
    equal(t.picket("run", *on, "-n", "db", "--", "true").returncode, 125)
    equal(patient.poll(), None)


@test
def run__exits_as_the_child_does(t):
    equal(run(t, "db", "--", "sh", "-c", "exit 37")[0], 37)
    equal(run(t, "db", "--", "sh", "-c", "exit 123")[0], 123)
    equal(run(t, "db", "--", "sh", "-c", "kill -USR1 $$")[0], 128 + signal.SIGUSR1)
    for command, want in (("./no-such-command", 127), (t.write("data", "text"), 126)):
        code, _, said = run(t, "db", "--", command)
        equal((code, said.count("\n")), (want, 1))
        contains(said, "picket: can't run " + command)
    check(is_free(t, "db"), "not released")


@test
def run__leaves_the_command_its_own_options(t):
    equal(run(t, "db", "echo", "-n", "--", "-v"), (0, "-- -v", ""))
    equal(run(t, "db", "--", "echo", "-n", "-v", "--help"), (0, "-v --help", ""))
    equal(run(t, "--", "db", "echo", "-s"), (0, "-s\n", ""))
    equal(run(t, "db", "-n", "--ttl", "3s", "--", "printenv", "PICKET_TTL_MS"),
          (0, "3000\n", ""))


@test
def run__takes_a_shell_command(t):
    env = {"SHELL": "/bin/sh"}
    equal(run(t, "db", "-c", "echo $PICKET_LOCK; exit 3", env=env), (3, "db\n", ""))
    equal(run(t, "-c", "echo $0", "db", env={"SHELL": ""}), (0, "/bin/sh\n", ""))


@test
def run__without_waiting_says_who_holds(t):
    holder = hold(t, "db", "--note", "the nightly one")
    code, _, said = run(t, "-n", "db", "--", "touch", t.path("ran"))
    equal((code, said.count("\n")), (124, 1))
    contains(said, "picket: db is held by ")
    contains(said, f"pid {holder.pid} ")
    equal(run(t, "-nqE", "75", "db", "--", "touch", t.path("ran")), (75, "", ""))
    equal(run(t, "-w", "0", "db", "--", "true")[0], 124)
    equal(run(t, "-E", "1", "-w", "0.02", "db", "--", "true")[0], 1)
    code, _, said = run(t, "-w", "20ms", "db", "--", "true")
    equal((code, said.count("\n")), (124, 1))
    contains(said, "not granted within 20ms: db, held by ")
    check(not os.path.exists(t.path("ran")), "the command ran")
    equal(view(t, "db")["waiters"], 0)
    let_go(holder)


@test
def run__waits_in_line(t):
    holder = hold(t, "db")
    log = t.path("log")
    waiters = [waiting(t, "-w", "1h", "db", command=("sh", "-c", f"echo {n} >> {log}"))
               for n in range(3)]
    let_go(holder)
    for waiter in waiters:
        equal(waiter.wait(), 0)
    equal(t.read("log"), "0\n1\n2\n")


@test
def run__waits_on_when_the_place_in_the_queue_is_lost(t):
    holder = hold(t, "db")
    waiter = waiting(t, "--ttl", "500ms", "db", command=("echo", "mine"))
    freeze(waiter.pid)
    wait_until(lambda: view(t, "db")["waiters"] == 0, what="the end of its lease")
    waiter.send_signal(signal.SIGCONT)
    contains(line_with(waiter.stderr, "lost"), "queueing again")
    wait_until(lambda: view(t, "db")["waiters"] == 1, what="a place in the queue")
    let_go(holder)
    equal((waiter.communicate()[0], waiter.returncode), ("mine\n", 0))


@test
def run__a_wait_slept_through_is_over(t):
    holder = hold(t, "db")
    waiter = waiting(t, "--ttl", "500ms", "-w", "1s", "db")
    freeze(waiter.pid)
    wait_until(lambda: view(t, "db")["waiters"] == 0, what="the end of its lease")
    time.sleep(1)
    waiter.send_signal(signal.SIGCONT)
    equal(waiter.wait(), 124)
    said = waiter.stderr.read()
    contains(said, "not granted within 1s: db, held by")
    check("queueing again" not in said, "it waits for longer than it was told to")
    let_go(holder)


@test
def run__says_what_it_waits_for(t):
    holder = hold(t, "db")
    first = t.start("run", "-v", "db", "--", "true")
    line = line_with(first.stderr, "waiting for db, held by ")
    contains(line, f" pid {holder.pid} ")
    contains(line, ", nobody before you")
    second = t.start("run", "-v", "db", "--", "true")
    contains(line_with(second.stderr, "waiting for"), ", 1 before you")
    let_go(holder)
    equal((first.wait(), second.wait()), (0, 0))


@test
def run__tells_a_terminal_what_it_waits_for(t):
    holder = hold(t, "db")
    ours, theirs = os.openpty()
    waiter = t.start("run", "db", "--", "true", stderr=theirs)
    with open(ours, encoding="utf-8") as terminal:
        contains(line_with(terminal, "waiting for db"), f" pid {holder.pid} ")
        let_go(holder)
        equal(waiter.wait(), 0)


@test
def run__shares_with_those_who_share(t):
    readers = [hold(t, "-s", "db") for _ in range(2)]
    equal(run(t, "-n", "db", "--", "true")[0], 124)
    equal(run(t, "-n", "-x", "-s", "db", "--", "true")[0], 0)
    equal(view(t, "db")["holders"], 2)
    for reader in readers:
        let_go(reader)
    equal(run(t, "-n", "db", "--", "true")[0], 0)


@test
def run__has_slots(t):
    holders = [hold(t, "--slots", "2", "pool") for _ in range(2)]
    equal(run(t, "-n", "--slots", "2", "pool", "--", "true")[0], 124)
    code, _, said = run(t, "-n", "--slots", "3", "pool", "--", "true")
    equal((code, said.count("\n")), (125, 1))
    contains(t.picket("show", "pool").stdout, "2 of 2 slots")
    let_go(holders[0])
    equal(run(t, "-n", "--slots", "2", "pool", "--", "true")[0], 0)
    let_go(holders[1])


@test
def run__takes_a_set_or_nothing(t):
    holder = hold(t, "b")
    waiter = waiting(t, "a", "--also", "b")
    equal(view(t, "a")["holders"], 0)
    let_go(holder)
    equal(waiter.wait(), 0)
    both = hold(t, "a", "--also", "b")
    equal(view(t, "a")["holds"][0]["token"], view(t, "b")["holds"][0]["token"])
    let_go(both)
    check(is_free(t, "a") and is_free(t, "b"), "not released")


@test
def run__shows_a_value(t):
    holder = hold(t, "--value", "10.0.0.1:80", "db")
    equal(view(t, "db")["holds"][0]["value"], "10.0.0.1:80")
    let_go(holder)


@test
def run__lets_the_child_fence(t):
    script = f"{t.program} fence claim r && {t.program} fence put r $PICKET_LOCK"
    equal(run(t, "db", "--", "sh", "-c", script), (0, "", ""))
    done = t.picket("fence", "get", "-o", "json", "r")
    equal(json.loads(done.stdout)["fence"], 1)


@test
def run__passes_signals_on(t):
    script = "trap 'echo hup' HUP; trap 'echo term; exit 9' TERM; echo ready; " \
             "while :; do sleep 0.01; done"
    child = t.start("run", "db", "--", "sh", "-c", script)
    equal(child.stdout.readline(), "ready\n")
    child.send_signal(signal.SIGHUP)
    equal(child.stdout.readline(), "hup\n")
    child.send_signal(signal.SIGTERM)
    equal(child.stdout.readline(), "term\n")
    equal(child.wait(), 9)
    check(is_free(t, "db"), "not released")


@test
def run__passes_on_every_signal_that_it_says(t):
    names = ("HUP", "INT", "QUIT", "USR1", "USR2", "WINCH", "CONT")
    traps = "; ".join(f"trap 'echo {name}' {name}" for name in names)
    script = f"{traps}; trap 'exit 9' TERM; echo ready; while :; do sleep 0.01; done"
    child = t.start("run", "db", "--", "bash", "-c", script)
    equal(child.stdout.readline(), "ready\n")
    for name in names:
        child.send_signal(signal.Signals[f"SIG{name}"])
        equal(child.stdout.readline(), f"{name}\n")
    child.send_signal(signal.SIGTERM)
    equal(child.wait(), 9)


@test
def run__waiting_ends_by_a_signal_and_leaves_nothing(t):
    holder = hold(t, "db")
    for signo in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        waiter = waiting(t, "db", command=("touch", t.path("ran")))
        waiter.send_signal(signo)
        equal(waiter.wait(), 128 + signo)
        equal(view(t, "db")["waiters"], 0)
    let_go(holder)
    check(not os.path.exists(t.path("ran")), "the command ran")
    check(is_free(t, "db"), "not released")


@test
def run__ignores_what_its_caller_ignores(t):
    holder = hold(t, "db")

    def nohup():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    waiter = t.start("run", "-v", "db", "--", "sh", "-c", "echo mine", preexec_fn=nohup)
    line_with(waiter.stderr, "waiting for db")
    waiter.send_signal(signal.SIGHUP)
    let_go(holder)
    equal((waiter.communicate()[0], waiter.returncode), ("mine\n", 0))


@test
def run__ends_the_whole_tree_when_the_lock_is_broken(t):
    script = f"setsid sleep 1000 & echo $! > {t.path('far')}; echo ready; wait"
    child = t.start("run", "--ttl", "1h", "db", "--", "sh", "-c", script)
    equal(child.stdout.readline(), "ready\n")
    far = int(t.read("far"))
    equal(t.picket("break", "db", "--reason", "maintenance").returncode, 0)
    equal(child.wait(), 123)
    check(not alive(far), "a grandchild lives on")
    lines = [line for line in child.stderr if "lost" in line]
    equal(len(lines), 1)
    contains(lines[0], "picket: db lost: broken: maintenance")
    contains(lines[0], "its command was ended")


@test
def run__kills_what_does_not_obey(t):
    script = "trap '' TERM; echo ready; while :; do sleep 0.01; done"
    child = t.start("run", "--kill-after", "50ms", "db", "--", "sh", "-c", script)
    equal(child.stdout.readline(), "ready\n")
    t.picket("break", "db", "--reason", "now")
    equal(child.wait(), 123)
    contains(child.stderr.read(), "its command was killed")


@test
def run__closes_the_lock_for_as_long_as_ending_takes(t):
    for words, delay_ms in (((), 6000), (("--kill-after", "1h"), 3601000),
                            (("--lock-delay", "2h"), 7200000)):
        name = f"l{delay_ms}"
        watch = t.start("watch", "-v", "-o", "json", "--count", "3", name)
        line_with(watch.stderr, "watching")
        child = t.start("run", *words, name, "--", "sh", "-c", "echo ready; read x",
                        stdin=subprocess.PIPE)
        equal(child.stdout.readline(), "ready\n")
        t.picket("break", name, "--reason", "test")
        equal(child.wait(), 123)
        events = [json.loads(line) for line in watch.communicate()[0].splitlines()]
        equal([e["event"] for e in events], ["granted", "ended", "closed"])
        equal(events[2]["closed_ms"], delay_ms)


@test
def run__tells_the_child_of_a_loss(t):
    script = "trap '' TERM; echo ready; cat <&$PICKET_LOSS_FD; " \
             f"echo lost > {t.path('told')}"
    child = t.start("run", "db", "--", "bash", "-c", script)
    equal(child.stdout.readline(), "ready\n")
    t.picket("break", "db", "--reason", "now")
    equal(child.wait(), 123)
    equal(t.read("told"), "lost\n")


def outlives_its_ttl(t, *flags):
    """A machine that stands still for most of a second loses a lease of one second; so
    there are several attempts."""
    return any(run(t, *flags, "--ttl", "1s", "db", "--", "sh", "-c", "sleep 1.5; echo ok")
               == (0, "ok\n", "") for _ in range(5))


@test
def run__outlives_its_ttl(t):
    check(outlives_its_ttl(t, "--lock-delay", "0s"), "the job was ended")


@test
def lock_delay__covers_the_time_to_obey(t):
    child = t.start("run", "--kill-after", "1h", "db", "--", "sh", "-c",
                    "trap '' TERM; echo ready; while :; do sleep 0.01; done")
    equal(child.stdout.readline(), "ready\n")
    t.picket("break", "db", "--reason", "now")
    left = view(t, "db")["closed_ms"]
    check(left > 1800_000, f"closed for {left} ms, and the job has an hour")


@test
def run__is_ended_by_max_hold(t):
    code, _, said = run(t, "--max-hold", "200ms", "db", "--", "sleep", "1000")
    equal(code, 123)
    contains(said, "picket: db lost: ")


@test
def run__killed_itself_leaves_neither_child_nor_lock(t):
    child = t.start("run", "--ttl", "1h", "db", "--", "sh", "-c",
                    "echo $$; exec sleep 1000")
    pid = int(child.stdout.readline())
    child.kill()
    wait_until(lambda: not alive(pid), what="the child's end")
    wait_until(lambda: is_free(t, "db"), what="the lock's release")


@test
def no_fork__becomes_the_command(t):
    child = t.start("run", "-F", "db", "--", "sh", "-c", "echo $$; cat; exit 6",
                    stdin=subprocess.PIPE)
    equal(int(child.stdout.readline()), child.pid)
    equal(view(t, "db")["holders"], 1)
    equal(run(t, "-F", "-n", "-E", "9", "db", "--", "true")[0], 9)
    child.stdin.close()
    equal(child.wait(), 6)
    wait_until(lambda: is_free(t, "db"), what="the lock's release")
    code, _, said = run(t, "-F", "db", "--", "./no-such-command")
    equal(code, 127)
    contains(said, "picket: can't run ./no-such-command")


@test
def no_fork__outlives_its_ttl(t):
    check(outlives_its_ttl(t, "-F", "--lock-delay", "0s"), "the job was ended")


@test
def no_fork__does_not_end_what_the_command_leaves_behind(t):
    child = t.start("run", "-F", "db", "--", "sh", "-c",
                    "setsid sleep 1000 >/dev/null 2>&1 & echo $!")
    left = int(child.stdout.readline())
    equal(child.wait(), 0)
    wait_until(lambda: is_free(t, "db"), what="the lock's release")
    check(alive(left), "it was ended")


@test
def no_fork__is_ended_when_the_lock_is_broken(t):
    child = t.start("run", "-F", "--ttl", "1h", "db", "--", "sh", "-c",
                    "echo ready; exec sleep 1000")
    equal(child.stdout.readline(), "ready\n")
    t.picket("break", "db", "--reason", "maintenance")
    equal(child.wait(), -signal.SIGTERM)
    contains(line_with(child.stderr, "lost"), "broken: maintenance")


@test
def no_fork__waiting_ends_by_a_signal_and_leaves_nothing(t):
    holder = hold(t, "db")
    waiter = waiting(t, "-F", "db", command=("touch", t.path("ran")))
    waiter.send_signal(signal.SIGTERM)
    equal(waiter.wait(), -signal.SIGTERM)
    wait_until(lambda: view(t, "db")["waiters"] == 0, what="leaving the queue")
    let_go(holder)
    check(not os.path.exists(t.path("ran")), "the command ran")


# ---- processes that outlive the command ----

BACKGROUND = "sleep 1000 >/dev/null 2>&1 & echo $! > child; exit 7"


def child_of(t):
    return int(wait_until(lambda: t.read("child")))


@test
def run__ends_what_the_command_leaves_behind_and_says_so(t):
    code, _, said = run(t, "db", "--", "sh", "-c", BACKGROUND)
    equal(code, 7)
    equal(said.count("\n"), 1)
    contains(said, "picket: ended 1 process that the command left behind (")
    contains(said, "--wait-children waits for them")
    check(not alive(child_of(t)), "it runs on")
    equal(run(t, "-q", "db", "--", "sh", "-c", BACKGROUND), (7, "", ""))
    code, _, said = run(t, "db", "--", "sh", "-c", "sleep 1000 & sleep 1000 & exit 0")
    contains(said, "ended 2 processes that")


@test
def run__waits_for_children_when_asked_to(t):
    job = t.start("run", "--wait-children", "db", "--", "sh", "-c",
                  "(until [ -e go ]; do sleep 0.01; done; echo done > out) & "
                  "echo $! > child; exit 7")
    child = child_of(t)
    wait_until(lambda: not [p for p in children(job.pid) if command_of(p) == "sh"
                            and p != child], what="the main process' end")
    equal(view(t, "db")["state"], "held")
    t.write("go", "")
    equal((job.wait(), t.read("out"), without_notices(job.stderr.read())),
          (7, "done\n", ""))
    check(is_free(t, "db"), "not released")


def children(pid):
    """All that descends from a process."""
    found = []
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
            for child in map(int, f.read().split()):
                found += [child] + children(child)
    except FileNotFoundError:
        pass
    return found


def command_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="ascii") as f:
            return f.read().strip()
    except FileNotFoundError:
        return ""


@test
def run__passes_signals_to_children_that_it_waits_for(t):
    job = t.start("run", "--wait-children", "db", "--", "sh", "-c", BACKGROUND)
    child = child_of(t)
    wait_until(lambda: len(children(job.pid)) == 2, what="the main process' end")
    job.send_signal(signal.SIGTERM)
    equal(job.wait(), 7)
    check(not alive(child), "it runs on")
    check(is_free(t, "db"), "not released")


@test
def run__ends_children_that_it_waits_for_with_the_lock(t):
    job = t.start("run", "--wait-children", "db", "--", "sh", "-c", BACKGROUND)
    child = child_of(t)
    wait_until(lambda: len(children(job.pid)) == 2, what="the main process' end")
    equal(t.picket("break", "db", "--reason", "test").returncode, 0)
    equal(job.wait(), 123)
    check(not alive(child), "it runs on")


@test
def run__leaves_children_alone_when_asked_to(t):
    code, _, said = run(t, "--leave-children", "db", "--", "sh", "-c", BACKGROUND)
    equal(code, 7)
    contains(said, "left 1 process behind (")
    contains(said, "running on without the lock")
    check(alive(child_of(t)), "it was ended")
    check(is_free(t, "db"), "not released")
    os.kill(child_of(t), signal.SIGKILL)
    # A loss ends everything in any case.
    job = t.start("run", "--leave-children", "db", "--", "sh", "-c",
                  "sleep 1000 & echo $! > second; wait")
    second = int(wait_until(lambda: t.read("second")))
    equal(t.picket("break", "db", "--reason", "test").returncode, 0)
    equal(job.wait(), 123)
    check(not alive(second), "it runs on")


@test
def run__refuses_what_excludes_each_other_for_children(t):
    for words in (("run", "--wait-children", "--leave-children"),
                  ("run", "-F", "--wait-children"), ("once", "--leave-children")):
        done = t.picket(*words, "db", "--", "true")
        equal(done.returncode, 125)
        contains(done.stderr, "-children")


main()

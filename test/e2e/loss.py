#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The job's whole tree is dead before the lock can move on, whatever happens to picket.

Each job here is stubborn: it ignores SIGTERM, forks, and leaves its session. Each writes
the pids of its processes to a file; the next holder looks at them the moment it is in.
"""
import contextlib
import os
import signal
import subprocess

from cluster import Cluster
from holding import freeze
from tap import alive, check, contains, equal, main, stopped, test, wait_until

STUBBORN = r"""
trap '' TERM HUP INT
setsid sh -c 'trap "" TERM INT; echo $$ >>"$0/pids"; while :; do sleep 0.05; done' "$1" &
(sh -c 'trap "" TERM; echo $$ >>"$0/pids"; exec setsid sleep 300' "$1" &)
echo $$ >>"$1/pids"
while :; do sleep 0.05; done
"""

# What the next holder does: it says who of the job is still there.
WITNESS = r"""
for pid in $(cat "$1/pids"); do
    state=$(sed 's/.*) //; s/ .*//' "/proc/$pid/stat" 2>/dev/null)
    case $state in ''|Z|X) ;; *) echo "$pid is $state" ;; esac
done
echo "token $PICKET_TOKEN"
"""


def job_pids(t):
    return [int(word) for word in t.read("pids").split()]


def start_job(t, *flags):
    """A stubborn job under lock `db`, running with all its processes."""
    job = t.write("job.sh", STUBBORN)
    p = t.start("run", "--ttl", "2s", "--kill-after", "300ms", *flags, "db", "--",
                "sh", job, t.dir)
    wait_until(lambda: len(job_pids(t)) >= 3, what="the job's start")
    return p


def next_holder(t):
    """Waits for the lock and returns what its holder saw of the job before."""
    witness = t.write("witness.sh", WITNESS)
    done = t.picket("run", "-w", "20s", "db", "--", "sh", witness, t.dir)
    equal(done.returncode, 0)
    return done.stdout


def guardian_of(p):
    with open(f"/proc/{p.pid}/task/{p.pid}/children", encoding="ascii") as f:
        return int(f.read().split()[0])


@test
def control__the_witness_sees_a_job_that_lives_on(t):
    """Without the lock-delay that run takes from --kill-after it can't be kept."""
    p = start_job(t, "--kill-after", "20s", "--lock-delay", "0s")
    freeze(p.pid)
    contains(next_holder(t), " is ")


@test
def loss__is_heard_though_others_use_the_lease(t):
    """More connections act for the job's lease than are told of it, and an operator
    breaks the lock: the job must not run beside the next one."""
    with Cluster(t.program, t.path("c"), 1) as cluster, contextlib.ExitStack() as stack:
        n1 = cluster.nodes[0]
        t.env["PICKET_URL"] = f"picket://127.0.0.1:{n1.port}"
        p = start_job(t, "--ttl", "10s")
        hold = n1.ask("LOCK", "SHOW", "db")["rows"][0]
        for _ in range(5):
            c = stack.enter_context(n1.connect())
            c.ask("LEASE", "SHOW", hold["lease"])
            c.ask("LEASE", "RENEW", hold["lease"])
        n1.ask("LOCK", "BREAK", "db", hold["token"], "REASON", "stuck")
        equal(next_holder(t), "token 2\n")
        equal(p.wait(), 123)
        contains(p.stderr.read(), "broken")


@test
def loss__picket_killed_with_9(t):
    p = start_job(t)
    os.kill(p.pid, signal.SIGKILL)
    equal(next_holder(t), "token 2\n")


@test
def loss__picket_stopped_while_the_job_runs_on(t):
    p = start_job(t)
    freeze(p.pid)
    equal(next_holder(t), "token 2\n")
    check(stopped(p.pid), "picket was still stopped when the lock moved on")
    os.kill(p.pid, signal.SIGCONT)
    equal(p.wait(), 123)
    contains(p.stderr.read(), "lost")


@test
def loss__guardian_killed_with_9(t):
    p = start_job(t)
    os.kill(guardian_of(p), signal.SIGKILL)
    equal(next_holder(t), "token 2\n")
    equal(p.wait(), 125)


@test
def loss__keeper_and_guardian_killed_at_once_end_the_main_process(t):
    """What it forked off may live on: that is not promised."""
    job = t.write("job.sh", 'trap "" TERM HUP INT; echo $$ >"$1/pids"\n'
                            'while :; do sleep 0.05; done')
    p = t.start("run", "db", "--", "sh", job, t.dir)
    wait_until(lambda: job_pids(t), what="the job's start")
    both = (p.pid, guardian_of(p))
    for signo in (signal.SIGSTOP, signal.SIGKILL):  # neither sees the other die
        for pid in both:
            os.kill(pid, signo)
    wait_until(lambda: not alive(job_pids(t)[0]), what="the job's end")


@test
def loss__whole_group_stopped_as_by_ctrl_z(t):
    """The job wakes up late and must not run: it is dead by then."""
    p = start_job(t, "--note", "suspended")
    freeze(p.pid, *job_pids(t))
    equal(next_holder(t), "token 2\n")


@test
def loss__store_out_of_reach(t):
    """Nobody can renew: the job ends by the local clock."""
    p = start_job(t)
    blocker = subprocess.Popen(["flock", t.path("state/lock"), "sleep", "60"])
    equal(p.wait(), 123)
    equal([pid for pid in job_pids(t) if alive(pid)], [])
    blocker.kill()
    contains(p.stderr.read(), "lost")


@test
def loss__broken_by_an_operator(t):
    p = start_job(t)
    done = t.picket("break", "db", "--reason", "it hangs")
    equal(done.returncode, 0)
    equal(p.wait(), 123)
    equal([pid for pid in job_pids(t) if alive(pid)], [])
    contains(p.stderr.read(), "it hangs")
    equal(next_holder(t), "token 2\n")


@test
def loss__max_hold_is_over(t):
    p = start_job(t, "--max-hold", "1s")
    equal(next_holder(t), "token 2\n")
    equal(p.wait(), 123)


@test
def grace__freezes_and_thaws(t):
    """Stopped past the safe time, awake before the lease ends: the same job goes on."""
    # It forks nothing: a shell whose child is frozen before its exec only looks busy.
    job = t.write("job.sh", 'echo $$ >"$1/pids"; read -r line <"$1/go"\n'
                            'echo "$PICKET_TOKEN"')
    os.mkfifo(os.path.join(t.dir, "go"))
    p = t.start("run", "--ttl", "20s", "--margin", "19s", "--grace", "20s", "db", "--",
                "sh", job, t.dir)
    wait_until(lambda: job_pids(t), what="the job's start")
    pid = job_pids(t)[0]
    freeze(p.pid)
    wait_until(lambda: stopped(pid), what="the freeze")
    os.kill(p.pid, signal.SIGCONT)
    wait_until(lambda: not stopped(pid), what="the thaw")
    with open(os.path.join(t.dir, "go"), "w", encoding="ascii") as go:
        go.write("on\n")
    equal(p.wait(), 0)
    equal(p.stdout.read(), "1\n")


@test
def grace__ends_in_a_kill_without_running_again(t):
    p = start_job(t, "--grace", "500ms")
    freeze(p.pid)
    equal(next_holder(t), "token 2\n")
    os.kill(p.pid, signal.SIGCONT)
    equal(p.wait(), 123)


@test
def exit__what_the_job_left_behind_is_ended_before_the_release(t):
    job = t.write("job.sh", 'setsid sleep 300 & echo $! >"$1/pids"; exit 3')
    done = t.picket("run", "--kill-after", "300ms", "db", "--", "sh", job, t.dir)
    equal(done.returncode, 3)
    equal([pid for pid in job_pids(t) if alive(pid)], [])
    equal(t.picket("run", "-n", "db", "--", "true").returncode, 0)


@test
def signals__are_forwarded(t):
    job = t.write("job.sh", 'trap "echo term; exit 9" TERM; echo $$ >"$1/pids"; '
                            'while :; do sleep 0.02; done')
    p = t.start("run", "db", "--", "sh", job, t.dir)
    wait_until(lambda: job_pids(t), what="the job's start")
    os.kill(p.pid, signal.SIGTERM)
    equal(p.wait(), 9)
    equal(p.stdout.read(), "term\n")


@test
def wait__interrupted_leaves_nothing_behind(t):
    holder = start_job(t)
    p = t.start("run", "db", "--", "true")
    wait_until(lambda: '"waiters":1' in t.picket("ls", "-o", "json").stdout,
               what="the queue")
    os.kill(p.pid, signal.SIGINT)
    equal(p.wait(), 128 + signal.SIGINT)
    contains(t.picket("ls", "-o", "json").stdout, '"waiters":0')
    equal(t.picket("break", "db", "--reason", "end of test").returncode, 0)
    holder.wait()


main()

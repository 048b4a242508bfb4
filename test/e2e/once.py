# SPDX-License-Identifier: MIT
"""picket once: one outcome for all, whoever asks and whatever dies in between."""
import os
import signal

from holding import freeze, ok, parsed
from tap import alive, check, contains, equal, main, test, wait_until

COUNT = 'echo x >>runs; echo "$PICKET_ATTEMPT $PICKET_TOKEN"; '


def runs(t):
    return len(t.read("runs").split())


@test
def once__the_second_call_gets_the_first_outcome(t):
    first = t.picket("once", "k", "--", "sh", "-c", COUNT + "exit 3")
    equal(first.returncode, 3)
    second = t.picket("once", "k", "--", "sh", "-c", COUNT + "exit 4")
    equal((second.returncode, second.stdout, runs(t)), (3, first.stdout, 1))
    shown = parsed(t.picket("once", "--show", "-o", "json", "k"))
    equal((shown["state"], shown["exit"], shown["attempt"], shown["output"]),
          ("done", 3, 1, first.stdout))


@test
def once__callers_at_the_same_time_run_it_once(t):
    callers = [t.start("once", "k", "--", "sh", "-c", COUNT + "sleep 0.2; echo $$")
               for _ in range(8)]
    outs = {p.communicate()[0] for p in callers}
    equal({p.returncode for p in callers}, {0})
    equal((len(outs), runs(t)), (1, 1))


@test
def once__a_crash_is_retried_with_a_higher_token(t):
    p = t.start("once", "k", "--ttl", "1s", "--kill-after", "0s", "--", "sh", "-c",
                COUNT + "echo $$ >pid; sleep 60")
    wait_until(lambda: t.read("pid").endswith("\n"), what="the first attempt")
    p.kill()
    p.communicate()
    job = int(t.read("pid"))
    wait_until(lambda: not alive(job), what="the job's end")
    second = t.picket("once", "k", "--", "sh", "-c", COUNT)
    equal(second.returncode, 0)
    attempt, token = map(int, second.stdout.split())
    equal((attempt, runs(t)), (2, 2))
    check(token > 1, "the token did not grow")
    contains(second.stderr, "left no outcome")
    equal(t.picket("once", "k", "--", "false").returncode, 0)


@test
def once__one_who_was_overtaken_does_not_count(t):
    """The whole of the first call is paused past its lease; the second one's outcome
    stands."""
    p = t.start("once", "k", "--ttl", "500ms", "--lock-delay", "0s", "--", "sh", "-c",
                "echo $$ >pid; while [ ! -e go ]; do sleep 0.02; done; echo zombie")
    wait_until(lambda: t.read("pid").endswith("\n"), what="the first attempt")
    with open(f"/proc/{p.pid}/task/{p.pid}/children", encoding="ascii") as f:
        frozen = [p.pid, *map(int, f.read().split()), int(t.read("pid"))]
    freeze(*frozen)
    equal(ok_out(t.picket("once", "k", "--", "echo", "second")), "second\n")
    t.write("go", "")
    for pid in reversed(frozen):
        os.kill(pid, signal.SIGCONT)
    p.communicate()
    check(p.returncode in (123, 143, 137), f"exit code {p.returncode}")
    equal(ok(t.picket("once", "k", "--", "echo", "third")), "second\n")


def ok_out(done):
    equal(done.returncode, 0)
    return done.stdout


@test
def keep__an_outcome_that_ends_is_run_again(t):
    done = t.picket("once", "--keep", "1h", "k", "--", "sh", "-c", COUNT)
    equal(ok_out(t.picket("once", "k", "--", "false")), done.stdout)
    left = parsed(t.picket("fence", "show", "once/k", "-o", "json"))["left_ms"]
    check(1800_000 < left <= 3600_000, f"{left} ms left")
    again = ("once", "--keep", "200ms", "l", "--", "sh", "-c", COUNT)
    first = ok_out(t.picket(*again))
    wait_until(lambda: ok_out(t.picket(*again)) != first, what="the outcome's end")
    equal(t.picket("once", "--keep", "200ms", "m", "--no-retry", "--", "sh", "-c",
                   "kill -9 $$").returncode, 137)  # begun, and that ends, too
    wait_until(lambda: t.picket("fence", "show", "once/m").returncode == 1,
               what="the end of what was begun")
    ok(t.picket("once", "--forget", "--keep", "200ms", "k"))
    wait_until(lambda: t.picket("fence", "show", "once/k").returncode == 1,
               what="the end of what was forgotten")


@test
def no_retry__leaves_what_may_have_happened_alone(t):
    t.picket("once", "k", "--no-retry", "--", "sh", "-c", COUNT + "kill -9 $$")
    done = t.picket("once", "k", "--no-retry", "--", "sh", "-c", COUNT)
    equal((done.returncode, runs(t)), (125, 1))
    contains(done.stderr, "--no-retry")
    ok(t.picket("once", "--forget", "k"))
    equal(ok(t.picket("once", "k", "--no-retry", "--", "echo", "fresh")), "fresh\n")


@test
def retry_failed__keeps_success_only(t):
    equal(t.picket("once", "k", "--retry-failed", "--", "sh", "-c", COUNT + "exit 9")
          .returncode, 9)
    ok_out(t.picket("once", "k", "--retry-failed", "--", "sh", "-c", COUNT))
    ok_out(t.picket("once", "k", "--retry-failed", "--", "sh", "-c", COUNT))
    equal(runs(t), 2)


@test
def once__what_could_not_be_run_is_no_outcome(t):
    equal(t.picket("once", "k", "--", "no-such-command").returncode, 127)
    equal(ok_out(t.picket("once", "k", "--", "echo", "now")), "now\n")


@test
def once__a_lost_attempt_is_no_outcome(t):
    p = t.start("once", "k", "--kill-after", "0s", "--lock-delay", "0s", "--", "sh", "-c",
                "echo begun; sleep 1000")
    equal(p.stdout.readline(), "begun\n")
    ok(t.picket("break", "once/k", "--reason", "test"))
    equal(p.wait(), 123)
    equal(ok_out(t.picket("once", "k", "--", "echo", "again")), "again\n")


@test
def once__keeps_what_nobody_reads(t):
    p = t.start("once", "k", "--", "sh", "-c",
                "echo first; while [ ! -e go ]; do sleep 0.02; done; echo second; echo x")
    equal(p.stdout.readline(), "first\n")
    p.stdout.close()
    t.write("go", "")
    equal(p.wait(), 0)
    equal(ok(t.picket("once", "k", "--", "false")), "first\nsecond\nx\n")


@test
def once__keeps_the_output_byte_for_byte_up_to_its_limit(t):
    noise = "head -c 20000 /dev/urandom"
    first = t.picket("once", "k", "--", "sh", "-c", noise, text=False).stdout
    equal(len(first), 20000)
    equal(t.picket("once", "k", "--", "true", text=False).stdout, first)
    long = t.picket("once", "l", "--", "sh", "-c", "yes | head -c 100000").stdout
    equal(len(long), 100000)
    again = t.picket("once", "l", "--", "true")
    equal(again.stdout, long[:48 * 1024])
    contains(again.stderr, "printed more")


@test
def words__are_checked_before_anything_is_run(t):
    for words, part in (((), "KEY is missing"), (("k",), "what to run"),
                        (("", "--", "true"), "KEY is empty"),
                        (("--show", ""), "KEY is empty"),
                        (("--show", "k", "--", "true"), "run no command"),
                        (("--show", "--forget", "k"), "exclude"),
                        (("--keep", "1ms", "k", "--", "true"), "--keep"),
                        (("--keep", "400d", "k", "--", "true"), "--keep"),
                        (("-F", "k", "--", "true"), "-F"),
                        (("-o", "json", "k", "--", "true"), "--show"),
                        (("n" * 252, "--", "true"), "255")):
        done = t.picket("once", *words)
        equal((words, done.returncode), (words, 125))
        contains(done.stderr, part)
    equal(t.picket("once", "--show", "nothing").returncode, 1)
    ok(t.picket("fence", "put", "once/odd", "--token", "1", "not an outcome"))
    done = t.picket("once", "odd", "--", "true")
    equal(done.returncode, 125)
    contains(done.stderr, "something else")


main()

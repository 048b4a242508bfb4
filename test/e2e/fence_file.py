# SPDX-License-Identifier: MIT
"""Files behind a fence: late writers, writers that die at any point, and wrong words."""
import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import subprocess

from holding import ok, parsed
from tap import alive, check, contains, equal, main, skip, stopped, test, wait_until

WHERE = ("--resource", "file:", "report")
# Reads the file, takes its time, and prints it with one line more.
APPEND = 'cat report 2>/dev/null; sleep "0.0$1"; echo "$2"'
# The same as everybody does it who has no fence.
CARELESS = f'{{ {APPEND}; }} >"new.$2"; mv "new.$2" report'


def lines_of(t, name="report"):
    return [int(line) for line in t.read(name).split()]


def holders(t, tokens, start):
    """Starts a holder for each token, and returns the tokens whose write was accepted."""
    started = [(token, start(str(random.randint(1, 9)), str(token))) for token in tokens]
    codes = {token: p.wait() for token, p in started}
    for _, p in started:
        p.stdout.close()
        p.stderr.close()
    check(set(codes.values()) <= {0, 1}, f"exit codes {codes}")
    return [token for token, code in codes.items() if code == 0]


@test
def file__late_writers_never_win(t):
    tried, accepted = 0, []
    for base in range(0, 200, 20):
        tokens = list(range(base + 1, base + 21))
        accepted += holders(t, tokens, lambda nap, token: t.start(
            "fence", "file", "report", "--token", token, "--",
            "sh", "-c", APPEND, "sh", nap, token))
        tried += len(tokens)
    equal(lines_of(t), accepted)  # in order, none lost, none from behind
    check(len(accepted) < tried, "nobody was late")
    print(f"# {tried} writers, {len(accepted)} accepted, {tried - len(accepted)} "
          "refused, 0 late writes in the file")


@test
def control__without_a_fence_writes_are_lost(t):
    tokens = list(range(1, 41))
    accepted = holders(t, tokens, lambda nap, token: subprocess.Popen(
        ["sh", "-c", CARELESS, "sh", nap, token], cwd=t.dir, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE))
    kept = lines_of(t)
    check(kept != sorted(accepted), "nothing was lost: this test shows nothing")
    print(f"# {len(accepted)} writers told that they had written, {len(kept)} lines kept")


@test
def file__a_paused_writer_is_refused_when_it_wakes(t):
    ok(t.picket("fence", "put", *WHERE, "--token", "1", "first"))
    zombie = t.start("fence", "file", "report", "--token", "2", "--", "sh", "-c",
                     'echo half; echo $$ >pid; while [ ! -e go ]; do sleep 0.02; done; '
                     'echo zombie')
    wait_until(lambda: t.read("pid").endswith("\n"), what="the writer's start")
    os.kill(zombie.pid, signal.SIGSTOP)
    wait_until(lambda: stopped(zombie.pid), what="the pause")
    ok(t.picket("fence", "put", *WHERE, "--token", "3", "newer"))
    t.write("go", "")
    os.kill(zombie.pid, signal.SIGCONT)
    equal(zombie.wait(), 1)
    contains(zombie.stderr.read(), "the fence stands at 3")
    equal(t.read("report"), "newer")
    equal([n for n in os.listdir(t.dir) if n.endswith(".tmp")], [])


KILLED_AT = ("openat", "linkat", "ftruncate", "fchown", "fchmod", "flock", "write",
             "pwrite64", "fsync", "fdatasync", "renameat", "unlinkat", "close")


@test
def put__survives_kill_at_every_system_call(t):
    """The old file or the new one, never a mixture; the fence never lower than what was
    accepted; and the next writer gets through."""
    if shutil.which("strace") is None:
        skip("no strace")
    old, token, kills = b"", 1, 0
    env = t.env | {"ASAN_OPTIONS": "detect_leaks=0"}  # who is traced can't look for them
    for call in KILLED_AT:
        nth = 0
        while True:
            nth += 1
            new = b"%09d\n" % token * 7000
            t.write("blob", new.decode())
            done = subprocess.run(
                ["strace", "-o", "/dev/null", "-e", f"trace={call}", "-e",
                 f"inject={call}:signal=KILL:when={nth}", t.program, "fence", "put",
                 *WHERE, "--token", str(token), "--file", "blob"],
                cwd=t.dir, env=env, capture_output=True, check=False)
            now = t.read("report").encode()
            check(now in (old, new), f"a mixture after {call} {nth}")
            if done.returncode == 0:
                equal(now, new)
                break
            equal(done.returncode, -signal.SIGKILL)
            kills += 1
            fence = t.picket("fence", "show", *WHERE, "-o", "json")
            if now == new:
                equal(parsed(fence)["fence"], token)
            if fence.returncode == 0 and parsed(fence)["fence"] == token:
                late = t.picket("fence", "put", *WHERE, "--token", token - 1 or 1, "late")
                check(token == 1 or late.returncode == 1, "a late writer got through")
            token += 1
            old = now
        old, token = new, token + 1
    ok(t.picket("fence", "put", *WHERE, "--token", token, "end"))
    equal(t.read("report"), "end")
    left = [n for n in os.listdir(t.dir) if n.endswith(".tmp")]
    equal(left, [])
    check(kills > 20, f"only {kills} kills")
    print(f"# killed at {kills} points")


@test
def file__writers_killed_at_random_leave_whole_files(t):
    ok(t.picket("fence", "put", *WHERE, "--token", "1", "1\n"))
    died = 0
    for token in range(2, 82):
        p = t.start("fence", "file", "report", "--token", token, "--", "sh", "-c",
                    f"yes {token} | head -n 20000; echo {token}")
        if token % 2:
            wait_until(lambda: random.random() < 0.2 or not alive(p.pid), what="luck")
            p.kill()
            died += p.wait() == -signal.SIGKILL
        p.communicate()
        lines = set(t.read("report").split())
        equal(len(lines), 1)
    check(died > 0, "nobody died in time")
    contains(t.read("report"), "80" if "81" not in lines else "81")


@test
def file__keeps_the_rights_and_follows_links(t):
    t.write("real", "old", mode=0o646)
    os.symlink("real", t.path("link"))
    ok(t.picket("fence", "file", "link", "--token", "5", "--", "echo", "new",
                umask=0o077))
    equal(t.read("real"), "new\n")
    check(os.path.islink(t.path("link")), "the link is gone")
    equal(os.stat(t.path("real")).st_mode & 0o777, 0o646)
    late = t.picket("fence", "file", "real", "--token", "4", "--", "echo", "late")
    equal(late.returncode, 1)


@test
def file__a_command_that_fails_changes_nothing(t):
    t.write("report", "old")
    done = t.picket("fence", "file", "report", "--token", "5", "--", "sh", "-c",
                    "echo half; exit 7")
    equal((done.returncode, t.read("report")), (7, "old"))
    equal(t.picket("fence", "file", "report", "--token", "5", "--", "no-such-command")
          .returncode, 127)
    equal(t.picket("fence", "file", "report", "--token", "5", "--", "sh", "-c",
                   "kill -TERM $$").returncode, 143)
    equal(t.read("report"), "old")


def writer(t, token):
    """A writer whose command has begun, and ends when there is a file "go"."""
    p = t.start("fence", "file", "report", "--token", token, "--", "sh", "-c",
                f"echo by {token}; echo >begun; while [ ! -e go ]; do sleep 0.02; done")
    wait_until(lambda: t.read("begun"), what="the writer's start")
    return p


@test
def file__one_writer_at_a_time_with_a_token(t):
    first = writer(t, 5)
    second = t.picket("fence", "file", "report", "--token", "5", "--", "echo", "second")
    equal(second.returncode, 124)
    contains(second.stderr, "being written with token 5 already")
    t.write("go", "")
    equal(first.wait(), 0)
    equal(t.read("report"), "by 5\n")


@test
def file__whose_fence_was_removed_is_left_as_it_was(t):
    """Nobody knows any more which tokens have been here since the writer claimed."""
    t.write("report", "old")
    late = writer(t, 5)
    os.remove(t.path(".report.fence"))
    t.write("go", "")
    check(late.wait() != 0, "it was written")
    contains(late.stderr.read(), "was removed or put back meanwhile")
    equal(t.read("report"), "old")
    ok(t.picket("fence", "put", *WHERE, "--token", "5", "five"))


@test
def put__removes_what_a_killed_writer_has_left(t):
    killed = writer(t, 5)
    killed.kill()
    killed.wait()
    check(os.path.exists(t.path(".report.5.tmp")), "nothing is left: this shows nothing")
    ok(t.picket("fence", "put", *WHERE, "--token", "6", "six"))
    equal([n for n in os.listdir(t.dir) if n.endswith(".tmp")], [])


@test
def put__follows_no_link_that_lies_where_it_writes(t):
    t.write("other", "of somebody else")
    for link in (".report.fence", ".report.5.tmp"):
        os.symlink("other", t.path(link))
        done = t.picket("fence", "put", *WHERE, "--token", "5", "mine")
        equal((link, done.returncode), (link, 125))
        equal((t.read("other"), t.read("report")), ("of somebody else", ""))
        os.remove(t.path(link))
    ok(t.picket("fence", "put", *WHERE, "--token", "5", "mine"))


@test
def names__do_not_lead_out_of_their_folder(t):
    os.makedirs(t.path("below/a"))
    for name in ("../x", "a/../../x", "a/../../below/x", t.path("x"), "..", "a/.."):
        done = t.picket("fence", "put", "--resource", "file:below", name, "--token", "1",
                        "x")
        equal((name, done.returncode), (name, 125))
    equal(sorted(os.listdir(t.path("below"))), ["a"])
    equal(os.listdir(t.path("below/a")), [])
    check(not os.path.exists(t.path("x")), "a file was written beside the folder")


@test
def shadow__lets_through_and_counts(t):
    ok(t.picket("fence", "put", *WHERE, "--token", "9", "nine"))
    ok(t.picket("fence", "shadow", *WHERE))
    done = t.picket("fence", "put", *WHERE, "--token", "8", "eight", "-o", "json")
    equal((done.returncode, json.loads(done.stdout)["would_refuse"]), (0, True))
    contains(done.stderr, "would have been refused")
    done = t.picket("fence", "file", "report", "--token", "7", "--", "echo", "seven")
    equal(done.returncode, 0)
    contains(done.stderr, "shadow mode")
    state = parsed(t.picket("fence", "show", *WHERE, "-o", "json"))
    equal((state["fence"], state["mode"], state["shadowed"]), (9, "shadow", 3))
    equal(t.read("report"), "seven\n")
    text = ok(t.picket("fence", "metrics", *WHERE))
    contains(text, 'picket_resource_fence_shadowed_total{resource="report"} 3\n')
    equal(t.picket("fence", "enforce", *WHERE).returncode, 0)
    equal(t.picket("fence", "put", *WHERE, "--token", "8", "late").returncode, 1)
    equal(t.read("report"), "seven\n")


@test
def fence__a_damaged_one_refuses_everybody(t):
    ok(t.picket("fence", "put", *WHERE, "--token", "9", "nine"))
    t.write(".report.fence", "garbage")
    for token in (8, 9, 10):
        done = t.picket("fence", "put", *WHERE, "--token", token, "x")
        equal(done.returncode, 125)
        contains(done.stderr, "damaged")
    equal(t.read("report"), "nine")


@test
def fence__a_torn_write_leaves_the_state_before_it(t):
    """Whichever write it was, the first one included."""
    for writes in (1, 2, 3, 4):
        name = f"report{writes}"
        where = ("--resource", "file:", name)
        for token in range(1, writes + 1):
            ok(t.picket("fence", "claim", *where, "--token", token))
        slots = t.read(f".{name}.fence")
        newer = slots.index(f" token {writes} ") // 512 * 512
        # Bytes that are none of a fence, and some that could be but for the digest.
        for offset, data in ((slots.index(f" token {writes} ") + 7, b"7"),
                             (newer + 20, b"#####")):
            with open(t.path(f".{name}.fence"), "r+b") as f:
                f.seek(offset)
                f.write(data)
            state = parsed(t.picket("fence", "show", *where, "-o", "json"))
            equal((name, data, state["fence"]), (name, data, writes - 1))


def synced(t, *words):
    """The steps by which a write gets onto the disk: each call and what it is about."""
    if shutil.which("strace") is None:
        skip("no strace")
    subprocess.run(
        ["strace", "-o", t.path("trace"), "-y", "-e",
         "trace=pwrite64,fdatasync,write,fsync,renameat,renameat2", t.program, "fence",
         *words], cwd=t.dir, check=True, env=t.env | {"ASAN_OPTIONS": "detect_leaks=0"})
    steps = []
    for line in t.read("trace").splitlines():
        call = line.partition("(")[0]
        on = ("fence" if ".report.fence" in line else "draft" if ".tmp" in line
              else "folder" if f"<{os.path.realpath(t.dir)}>" in line else None)
        if on:
            steps.append(f"{call.removesuffix('2')} {on}")
    return steps


@test
def put__syncs_each_thing_before_the_next_relies_on_it(t):
    """What a power cut would show and kill -9 can't: the fence is on disk before a new
    file is begun, the new file before it is in place, and its name before we say so."""
    ok(t.picket("fence", "put", *WHERE, "--token", "1", "one"))
    equal(synced(t, "put", *WHERE, "--token", "2", "two"),
          ["pwrite64 fence", "fdatasync fence", "write draft", "fsync draft",
           "renameat draft", "fsync folder"])


@test
def file__syncs_what_the_command_has_written(t):
    ok(t.picket("fence", "put", *WHERE, "--token", "1", "one"))
    equal(synced(t, "file", "report", "--token", "2", "--", "echo", "two"),
          ["pwrite64 fence", "fdatasync fence", "fsync draft", "renameat draft",
           "fsync folder"])
    equal(t.read("report"), "two\n")


@test
def fence__a_turn_that_never_ends_is_told(t):
    """A process stopped in its turn: nobody hangs for ever, and nothing is written."""
    ok(t.picket("fence", "put", *WHERE, "--token", "1", "one"))
    taken = subprocess.Popen(["flock", ".report.fence", "sleep", "60"], cwd=t.dir)
    wait_until(lambda: subprocess.run(["flock", "-n", ".report.fence", "true"], cwd=t.dir,
                                      check=False).returncode != 0, what="the lock")
    done = t.picket("fence", "claim", *WHERE, "--token", "2")
    equal(done.returncode, 125)
    contains(done.stderr, "does not let go")
    taken.kill()
    taken.wait()


def opened_to_write(pid, path):
    """Whether the process has the file open, and not only to look at it."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            same = os.path.samefile(f"/proc/{pid}/fd/{fd}", path)
            with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii") as f:
                flags = next(line.split()[1] for line in f if line.startswith("flags:"))
            if same and int(flags, 8) & os.O_ACCMODE == os.O_RDWR:
                return True
    return False


@test
def fence__removed_while_a_claim_waits_for_it_is_made_again(t):
    """Else the claim would be in a file that nobody else looks at."""
    ok(t.picket("fence", "claim", *WHERE, "--token", "1"))
    fence = t.path(".report.fence")
    with open(fence, encoding="ascii") as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        claim = t.start("fence", "claim", *WHERE, "--token", "5")

        wait_until(lambda: opened_to_write(claim.pid, fence), what="the claim's turn")
        os.remove(fence)
    equal(claim.wait(), 0)
    equal(t.picket("fence", "claim", *WHERE, "--token", "4").returncode, 1)
    equal(parsed(t.picket("fence", "show", *WHERE, "-o", "json"))["fence"], 5)


@test
def words__are_checked_before_anything_is_written(t):
    os.mkdir(t.path("folder"))
    os.mkdir(t.path("below"))
    here, below = ("--resource", "file:"), ("--resource", "file:below")
    for words, code, part in (
            (("put", *here, "folder", "--token", "1", "x"), 125, "plain"),
            (("put", *here, "folder/", "--token", "1", "x"), 125, "a file"),
            (("put", *here, "no/x", "--token", "1", "x"), 125, "No such"),
            (("put", *below, "../x", "--token", "1", "x"), 125, "below"),
            (("put", *below, "/x", "--token", "1", "x"), 125, "below"),
            (("put", *here, "n" * 250, "--token", "1", "x"), 125, "too long"),
            (("get", *here, "nothing"), 1, "nobody"),
            (("show", *here, "nothing"), 1, "nobody"),
            (("check", *here, "nothing", "--token", "1"), 1, "claim first"),
            (("file", "x", "--token", "-1", "--", "true"), 125, "whole number"),
            (("file", "x", "--token", "9007199254740992", "--", "true"), 125, "whole"),
            (("file", "x", "--token", "1"), 125, "what to run"),
            (("claim", "x", "--token", "1", "--", "true"), 125, "runs no command"),
            (("install", "file:"), 125, "needs no installation"),
            (("install", "oracle://u:secret@h/d"), 125, "no kind of resource")):
        done = t.picket("fence", *words)
        equal((words, done.returncode), (words, code))
        contains(done.stderr, part)
        equal(len(done.stderr.splitlines()), 1)
        check("secret" not in done.stderr, "a password was shown")
    left = sorted(os.listdir(t.dir))
    equal([n for n in left if n not in ("below", "folder", "state")], [])
    equal(os.listdir(t.path("below")), [])


@test
def file__where_nothing_may_be_written_nothing_is(t):
    if os.getuid() != 0:
        skip("needs another user")
    os.mkdir(t.path("closed"), 0o755)
    t.write("closed/report", "old")
    os.chmod(t.dir, 0o755)
    program = shutil.copy(t.program, t.path("picket"))
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", program, "fence",
         "put", "--resource", "file:closed", "report", "--token", "1", "x"],
        cwd=t.dir, env=t.env, capture_output=True, text=True, check=False)
    equal(done.returncode, 122)
    contains(done.stderr, "Permission denied")
    equal((t.read("closed/report"), os.listdir(t.path("closed"))), ("old", ["report"]))


main()

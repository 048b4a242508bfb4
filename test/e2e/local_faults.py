#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The embedded default on a full disk, after a reboot, in directories that are not its
own, behind a process that does not let go, and after everything was killed at once.

Disks and reboots are made of namespaces, which only root may make.
"""
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time

from diagnose import descendants
from tap import check, contains, equal, main, test, wait_until

NOBODY = 65534


# ---- what this machine allows ----

def permitted(*command):
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def needs(condition, reason):
    """A test that can't run here counts as skipped, and says why."""
    def decorate(function):
        if condition:
            return function

        def skipped(_t):
            pass
        skipped.__name__ = f"{function.__name__} # SKIP {reason}"
        return skipped
    return decorate


MOUNTS = permitted("unshare", "-m", "--propagation", "private", "mount", "-t", "tmpfs",
                   "tmpfs", "/mnt")
CLOCKS = MOUNTS and permitted("unshare", "-m", "-T", "--fork", "--boottime", "1", "true")


# ---- looking ----

def one_line(done, code, *parts):
    """The command failed with that code, said why in one line, and nothing else."""
    if done.returncode != code or done.stdout or done.stderr.count("\n") != 1:
        check(False, f"wanted exit code {code} and one line, got {done}")
    check(done.stderr.startswith("picket: "), done.stderr)
    for part in parts:
        contains(done.stderr, str(part))


def json_of(done):
    if done.returncode != 0 or done.stderr:
        check(False, f"failed: {done}")
    return json.loads(done.stdout)


def fingerprint(folder):
    """Names, modes, owners and bytes of all that is in a folder, and of itself."""
    digest = hashlib.sha256()
    for at, folders, names in os.walk(folder):
        folders.sort()
        for path in [at] + [os.path.join(at, name) for name in sorted(names)]:
            st = os.lstat(path)
            digest.update(f"{path} {st.st_mode} {st.st_uid} {st.st_size}\n".encode())
            if os.path.isfile(path):
                with open(path, "rb") as f:
                    digest.update(f.read())
    return digest.hexdigest()


class Namespace:
    """Mounts, and a clock, that only the programs in it see."""

    def __init__(self, t, setup, *flags):
        self.t = t
        script = f"{setup} && echo ready && exec sleep 1000"
        self.holder = subprocess.Popen(
            ["unshare", "-m", "--propagation", "private", *flags, "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        equal(self.holder.stdout.readline(), "ready\n")
        self.clock = "-T" in flags

    def pid(self):
        """Of a process that is in the clock's namespace too: with --fork, the child."""
        pid = self.holder.pid
        if self.clock:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as f:
                pid = int(f.read().split()[0])
        return str(pid)

    def run(self, *command):
        flags = ["-m", "-T"] if self.clock else ["-m"]
        return subprocess.run(["nsenter", "-t", self.pid(), *flags, "--", *command],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=self.t.env, check=False)

    def picket(self, *args):
        return self.run(self.t.program, *map(str, args))


# ---- (a) a full disk ----

@test
@needs(MOUNTS, "may not mount")
def full_disk__is_told_and_loses_nothing(t):
    disk = t.path("disk")
    os.mkdir(disk)
    t.env["PICKET_URL"] = f"local:{disk}/state"
    space = Namespace(t, f"mount -t tmpfs -o size=256k tmpfs '{disk}'")
    tokens = {"first": json_of(space.picket("acquire", "--ttl", "1h", "-o", "json",
                                            "first"))["token"]}
    space.run("sh", "-c", f"cat /dev/zero > '{disk}/fill'")  # until there is no room left
    # What fits into the journal's last page is written all the same.
    failed = None
    while failed is None:
        name = f"more/{len(tokens)}"
        done = space.picket("acquire", "--ttl", "1h", "-o", "json", name)
        if done.returncode == 0:
            tokens[name] = json.loads(done.stdout)["token"]
        else:
            failed = name
    one_line(done, 125, "No space left on device", "nothing was changed")
    one_line(space.picket("run", "other", "--", "touch", t.path("ran")), 125, "No space")
    check(not os.path.exists(t.path("ran")), "the command ran without a lock")
    # Looking needs no room.
    equal(json_of(space.picket("show", "-o", "json", "first"))["holds"][0]["token"],
          tokens["first"])
    space.run("rm", f"{disk}/fill")
    held = {row["lock"]: row["holder"]["token"]
            for row in json_of(space.picket("ls", "-o", "json"))}
    # The last one may have got its lock just before there was no room to tell it so, nor
    # to give the lock back: then its TTL ends it.
    last = max(held.values())
    held.pop(failed, None)
    equal(held, tokens)
    after = json_of(space.picket("acquire", "-n", "-o", "json", "after"))
    check(after["token"] > last, "a token came twice")


# ---- (b) a reboot ----

def left_of(show, token):
    equal([hold["token"] for hold in show["holds"]], [token])
    return show["holds"][0]["left_ms"]


@test
@needs(CLOCKS, "may not make clocks")
def reboot__stretches_leases_and_tokens_go_on(t):
    def hold(picket, name, ttl):
        return json_of(picket("acquire", "-n", "--ttl", ttl, "-o", "json", name))["token"]

    def show(picket, name):
        return json_of(picket("show", "-o", "json", name))

    boot_id = t.write("boot_id", "0f0f0f0f-1111-2222-3333-444444444444\n")
    with open("/proc/uptime", encoding="ascii") as f:
        uptime = int(float(f.read().split()[0]))
    token = hold(t.picket, "long", "1h")
    last = hold(t.picket, "short", "2s")
    before = left_of(show(t.picket, "long"), token)
    rebooted = Namespace(
        t, f"mount --bind '{boot_id}' /proc/sys/kernel/random/boot_id",
        "-T", "--fork", "--boottime", str(-(uptime * 3 // 4)))
    seen = rebooted.run("cat", "/proc/sys/kernel/random/boot_id").stdout
    equal(seen, t.read("boot_id"))
    later = float(rebooted.run("cat", "/proc/uptime").stdout.split()[0])
    check(later < uptime, "the clock did not begin anew")
    left = left_of(show(rebooted.picket, "long"), token)
    check(before <= left <= 3600_000, f"{before} ms were left, and now {left}")
    # The new clock ticks: what is not renewed ends, and others come after it.
    done = rebooted.picket("acquire", "-w", "20s", "-o", "json", "short")
    check(json_of(done)["token"] > last, "the token counter went back")
    last = json_of(done)["token"]
    # And back again, to a boot that was seen before, with a clock that is far ahead.
    between = left_of(show(rebooted.picket, "long"), token)
    left = left_of(show(t.picket, "long"), token)
    check(between <= left <= 3600_000, f"{between} ms were left, and now {left}")
    check(hold(t.picket, "new", "1h") > last, "the token counter went back")


# ---- (c) time namespaces ----

def within(t, offset, *args):
    """Runs the program in a time namespace of its own, which ends with it."""
    return subprocess.run(["unshare", "-T", "--fork", "--boottime", str(offset),
                           t.program, *map(str, args)], stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, env=t.env, check=False)


@test
@needs(CLOCKS, "may not make clocks")
def clocks__that_are_ahead_end_no_lease(t):
    """One namespace after the other, each a day ahead of the last. The kernel gives the
    number of one that is gone to the next."""
    done = within(t, 0, "acquire", "-n", "--ttl", "1h", "-o", "json", "long")
    token = json_of(done)["token"]
    before = 3600_000
    for day in (1, 2, 3, 0, 2, 1):
        show = json_of(within(t, day * 86400, "show", "-o", "json", "long"))
        left = left_of(show, token)
        check(left <= before, f"the clock went back: {before} ms were left, now {left}")
        before = left


@test
@needs(CLOCKS, "may not make clocks")
def clocks__of_two_namespaces_are_one(t):
    """In turns: no lease ends early, no clock goes back, and none stands still."""
    ahead = Namespace(t, "true", "-T", "--fork", "--boottime", "86400")
    behind = Namespace(t, "true", "-T", "--fork", "--boottime", "-60")

    def hold(space, name, ttl):
        done = space.picket("acquire", "-n", "--ttl", ttl, "-o", "json", name)
        return json_of(done)["token"]

    def show(space, name):
        return json_of(space.picket("show", "-o", "json", name))

    asked = time.monotonic()
    token = hold(t, "long", "1h")
    told = time.monotonic()
    last = hold(t, "short", "2s")
    before = 3600_000
    for n, space in enumerate((ahead, t, behind) * 3):
        least = (time.monotonic() - told) * 1000
        hold(space, f"other/{n}", "1h")  # looking alone does not move the clock
        left = left_of(show(space, "long"), token)
        most = (time.monotonic() - asked) * 1000
        check(3600_000 - most - 2 <= left <= min(before, 3600_000 - least + 2),
              f"{left} ms are left, {before} were, {least:.0f} to {most:.0f} passed")
        before = left
    # Each looks in its turn; a clock that begins anew each time never gets there.
    wait_until(lambda: not any(show(space, "short")["holds"]
                               for space in (ahead, t, behind)), what="the end of it")
    check(hold(behind, "short", "1h") > last, "a token came twice")


# ---- (d) directories ----

def refused(t, code, *parts, user=None):
    """Every verb says the same in one line, and leaves the directory as it is."""
    state = t.path("state")
    before = fingerprint(state) if os.path.isdir(state) else t.read("state")
    for verb in (["acquire", "-n", "db"], ["show", "db"], ["ls"], ["ls", "-o", "json"],
                 ["watch", "--count", "1"],
                 ["break", "db", "--token", "1", "--reason", "x"],
                 ["run", "db", "--", "touch", t.path("ran")],
                 ["run", "-F", "db", "--", "touch", t.path("ran")]):
        one_line(t.picket(*verb, user=user, group=user), code, state, *parts)
    check(not os.path.exists(t.path("ran")), "the command ran without a lock")
    equal(fingerprint(state) if os.path.isdir(state) else t.read("state"), before)


def use(t):
    json_of(t.picket("acquire", "--ttl", "1h", "-o", "json", "kept"))
    return t.path("state/journal")


def patch(path, change):
    with open(path, "rb") as f:
        data = bytearray(f.read())
    change(data)
    with open(path, "wb") as f:
        f.write(data)


@test
def directory__not_writable(t):
    """As somebody else, since root may write everywhere."""
    program = shutil.copy(t.program, t.path("picket"))
    os.chmod(t.dir, 0o755)
    t.program = program
    user = NOBODY if os.getuid() == 0 else None
    os.mkdir(t.path("state"), 0o555)
    refused(t, 122, "Permission denied", user=user)  # empty
    os.chmod(t.path("state"), 0o700)
    use(t)
    os.chmod(t.path("state"), 0o555)
    if user is None:
        os.chmod(t.path("state/lock"), 0o400)
    refused(t, 122, "Permission denied", user=user)  # somebody's
    os.chmod(t.path("state"), 0o700)
    t.env["PICKET_URL"] += "/a/b/c"
    os.chmod(t.path("state"), 0o555)
    refused(t, 122, "Permission denied", user=user)  # not to be made


@test
def directory__not_ours(t):
    os.mkdir(t.path("state"))
    t.write("state/thesis.tex", "important")
    refused(t, 125, "not a Picket state directory")


@test
def directory__is_a_file(t):
    t.write("state", "important")
    refused(t, 125, "Not a directory")


def fnv(data):
    """The digest of core/wire.h."""
    digest = 0xcbf29ce484222325
    for byte in data:
        digest = (digest ^ byte) * 0x100000001b3 % 2**64
    return digest


@test
def directory__of_a_newer_picket(t):
    journal = use(t)

    def raise_format(data):
        data[4] += 1
        data[24:32] = struct.pack("<Q", fnv(data[:24]))
    patch(journal, raise_format)
    refused(t, 125, "/journal has format version 2; this build reads 1", "newer picket")


@test
def directory__damaged(t):
    journal = use(t)
    patch(journal, lambda data: data.__setitem__(40, data[40] ^ 4))
    refused(t, 125, "damaged at byte", "put back a copy")
    patch(journal, lambda data: data.__setitem__(40, data[40] ^ 4))
    check(json_of(t.picket("show", "-o", "json", "kept"))["holds"], "the hold is gone")


@test
def directory__cut_short(t):
    """Anywhere: after the last record, between two, within one."""
    journal = use(t)
    with open(journal, "rb") as f:
        whole = f.read()
    for size in range(len(whole) - 1, 40, -len(whole) // 60):
        patch(journal, lambda data, n=size: data.__delitem__(slice(n, None)))
        one_line(t.picket("acquire", "-n", "db"), 125, journal, "cut short",
                 f"{len(whole)} bytes were acknowledged, {size} are there",
                 "put back the whole file")
    refused(t, 125, "cut short")
    with open(journal, "wb") as f:
        f.write(whole)
    check(json_of(t.picket("show", "-o", "json", "kept"))["holds"], "the hold is gone")
    # Who knows what that means may go on with what is left.
    patch(journal, lambda data: data.__delitem__(slice(len(data) - 1, None)))
    refused(t, 125, "cut short")
    os.unlink(t.path("state/lock"))
    json_of(t.picket("acquire", "-n", "-o", "json", "db"))


@test
def directory__without_its_journal(t):
    journal = use(t)
    os.rename(journal, t.path("away"))
    refused(t, 125, "journal is gone", "put it back")
    os.rename(t.path("away"), journal)
    check(json_of(t.picket("show", "-o", "json", "kept"))["holds"], "the hold is gone")


@test
def directory__with_a_foreign_journal(t):
    journal = use(t)
    patch(journal, lambda data: data.__setitem__(slice(0, 4), b"RIFF"))
    refused(t, 125, "not a Picket journal")


# ---- (e) somebody does not let go ----

@test
def lock__held_by_a_stranger(t):
    """Its pid is named, because that is what one needs to know then."""
    journal = use(t)
    lock = os.path.join(os.path.dirname(journal), "lock")
    holder = subprocess.Popen(["flock", "-o", lock, "sleep", "300"])
    wait_until(lambda: not permitted("flock", "-n", lock, "true"), what="the lock")
    before = fingerprint(t.path("state"))
    verbs = [["show", "kept"], ["ls"], ["acquire", "-q", "db"],
             ["run", "-q", "db", "--", "touch", t.path("ran")]]
    started = [t.start(*verb) for verb in verbs]  # together: each is patient for a while
    for p in started:
        out, err = p.communicate()
        one_line(subprocess.CompletedProcess(p.args, p.returncode, out, err), 125,
                 f"process {holder.pid}", "does not let go")
    check(not os.path.exists(t.path("ran")), "the command ran without a lock")
    equal(fingerprint(t.path("state")), before)
    holder.kill()
    holder.wait()
    equal(json_of(t.picket("show", "-o", "json", "kept"))["holders"], 1)
    equal(t.picket("run", "db", "--", "true").returncode, 0)


# ---- (f) everything is killed at once, again and again ----

ROUNDS = 20
WORKERS = 8

# A holder: nobody else may be inside, and whoever was inside before and is dead is not.
# The link is made in one step, with the pid in it, like a file by O_EXCL.
INSIDE = r"""
if ! ln -s $$ "$1/inside" 2>/dev/null; then
    other=$(readlink "$1/inside")
    state=$(sed 's/.*) //; s/ .*//' "/proc/$other/stat" 2>/dev/null)
    case $state in ''|Z|X) ;; *) echo "$PICKET_TOKEN $other" >>"$1/overlaps" ;; esac
    ln -sfn $$ "$1/inside"
fi
echo "$PICKET_TOKEN" >>"$1/log"
rm -f "$1/inside"
"""

WORKER = r"""
while :; do
    "$0" run --ttl 700ms --kill-after 100ms --lock-delay 120ms db -- \
        sh "$1/inside.sh" "$1"
    code=$?
    case $code in 0|123) ;; *) echo "exit code $code" >>"$1/failures" ;; esac
done
"""


def power_cut(started):
    """Kills all at once, as far as that can be done one by one, and sees them dead."""
    pids = descendants()
    for pid in pids:  # nobody may see the others die and tidy up
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    while pids := descendants():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        time.sleep(0.002)
    for p in started:
        p.returncode = -signal.SIGKILL  # reaped above


def tokens_of(t):
    """In the order in which their holders wrote them; the last line may be half a one."""
    text = t.read("log")
    return [int(line) for line in text[:text.rfind("\n") + 1].splitlines()]


@test
def power_cut__tokens_grow_and_holders_never_meet(t):
    t.write("inside.sh", INSIDE)
    dice = random.Random(1)
    for _ in range(ROUNDS):
        known = len(tokens_of(t))
        started = [subprocess.Popen(["sh", "-c", WORKER, t.program, t.dir], env=t.env,
                                    cwd=t.dir, stdin=subprocess.DEVNULL,
                                    stderr=subprocess.DEVNULL) for _ in range(WORKERS)]
        wait_until(lambda n=known: len(tokens_of(t)) >= n + 3, 20, "three more grants")
        time.sleep(dice.random() * 0.1)  # a moment that nobody chose
        power_cut(started)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(t.path("inside"))
        # Right after the cut: all of it can be read.
        json_of(t.picket("ls", "-o", "json"))
    equal(t.read("failures"), "")
    equal(t.read("overlaps"), "")
    tokens = tokens_of(t)
    check(len(tokens) >= 3 * ROUNDS)
    check(all(a < b for a, b in zip(tokens, tokens[1:])), f"out of order: {tokens}")
    last = json_of(t.picket("acquire", "-w", "20s", "-o", "json", "db"))
    check(last["token"] > tokens[-1], "a token came twice")
    print(f"# {len(tokens)} grants, {ROUNDS} cuts")


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Whose an embedded store is: users of a group exclude each other, strangers are kept
out, and local: is the machine's store where there is one. With real users, and so as
root."""
import functools
import json
import os
import shutil
import stat
import subprocess

from holding import line_with
from tap import check, contains, equal, main, skip, test, wait_until

GROUP = 64242
ONE, TWO, STRANGER = 64201, 64202, 64203
MACHINE = "/var/lib/picket"
HOW = "install -d -m 2770 -g GROUP"


def as_user(uid, group=GROUP):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}",
            *([f"--groups={group}"] if group else ["--clear-groups"])]


class Users:
    """Ways to run the program as users that nobody else is."""

    def __init__(self, t):
        if os.getuid() != 0:
            skip("needs other users, and so root")
        self.t = t
        os.chmod(t.dir, 0o755)
        self.program = shutil.copy(t.program, t.path("picket"))
        os.chmod(self.program, 0o755)

    def argv(self, uid, *words, group=GROUP):
        return [*as_user(uid, group), self.program, *words]

    def run(self, uid, *words, group=GROUP, env=None):
        return subprocess.run(self.argv(uid, *words, group=group), cwd=self.t.dir,
                              env=self.t.env | (env or {}), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)

    def waiters(self, uid, *words):
        return json.loads(self.run(uid, "show", "-o", "json", *words).stdout)["waiters"]

    def hold(self, uid, *words, env=None):
        holder = subprocess.Popen(
            self.argv(uid, "run", "-v", *words, "--", "cat"), cwd=self.t.dir,
            env=self.t.env | (env or {}), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        line_with(holder.stderr, "running cat")
        return holder


def make(path, mode, uid=0, gid=GROUP):
    os.mkdir(path)
    os.chown(path, uid, gid)
    os.chmod(path, mode)
    return "local:" + path


def modes(path):
    """Mode and group of everything in a state directory."""
    found = {}
    for name in ("lock", "journal", "wake"):
        st = os.stat(os.path.join(path, name))
        found[name] = (stat.S_IMODE(st.st_mode), st.st_gid)
    return found


def let_go(holder):
    holder.stdin.close()
    equal(holder.wait(), 0)


@test
def users__of_a_group_exclude_each_other(t):
    u = Users(t)
    on = ("--on", make(t.path("shared"), 0o2770))
    for first, second in ((ONE, TWO), (TWO, ONE)):
        holder = u.hold(first, "nightly", *on)
        busy = u.run(second, "run", "-n", "nightly", *on, "--", "true")
        equal(busy.returncode, 124)
        contains(busy.stderr, f"held by {first}@")
        equal(modes(t.path("shared")), {"lock": (0o660, GROUP),
                                        "journal": (0o660, GROUP),
                                        "wake": (0o2770, GROUP)})
        # A waiter of the other user is woken by the release.
        waiter = subprocess.Popen(
            u.argv(second, "run", "nightly", *on, "--", "echo", "mine"), cwd=t.dir,
            env=t.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        wait_until(functools.partial(u.waiters, first, "nightly", *on))
        let_go(holder)
        equal((waiter.communicate()[0], waiter.returncode), ("mine\n", 0))
    denied = u.run(STRANGER, "show", "nightly", *on, group=None)
    equal(denied.returncode, 122)


@test
def journal__that_is_written_anew_stays_the_groups(t):
    u = Users(t)
    on = ("--on", make(t.path("shared"), 0o2770))
    equal(u.run(ONE, "acquire", "a", *on).returncode, 0)
    before = os.stat(t.path("shared/journal")).st_ino
    big = "x" * 60000
    for uid in (TWO, ONE):
        for _ in range(8):
            equal(u.run(uid, "run", "--value", big, "b", *on, "--", "true").returncode, 0)
    check(os.stat(t.path("shared/journal")).st_ino != before, "it was not written anew")
    equal(modes(t.path("shared"))["journal"], (0o660, GROUP))
    for uid in (ONE, TWO):
        equal(u.run(uid, "show", "-q", "a", *on).returncode, 0)


@test
def root__gives_its_files_to_the_group(t):
    """A store that was root's alone until an admin gave the directory to a group."""
    u = Users(t)
    path = t.path("shared")
    on = ("--on", make(path, 0o700, gid=0))
    equal(t.picket("acquire", "a", *on).returncode, 0)
    equal(modes(path)["journal"], (0o600, 0))
    os.chown(path, 0, GROUP)
    os.chmod(path, 0o2770)
    early = u.run(ONE, "show", "a", *on)
    equal(early.returncode, 122)
    contains(early.stderr, "'chgrp -R' and 'chmod -R g+rw'")
    equal(t.picket("show", "-q", "a", *on).returncode, 0)
    equal(u.run(ONE, "show", "-q", "a", *on).returncode, 0)


@test
def directory__in_which_anybody_replaces_files_is_refused(t):
    u = Users(t)
    for mode, said in ((0o777, "chmod o-w"), (0o2777, "chmod o-w"), (0o3777, "chmod o-w"),
                       (0o3770, "chmod -t")):
        path = t.path(f"dir{mode:o}")
        url = make(path, mode)
        done = u.run(ONE, "run", "db", "--on", url, "--", "true")
        equal(done.returncode, 122)
        contains(done.stderr, f"{said} {path}'")
        equal(os.listdir(path), [])


@test
def files__of_a_stranger_are_refused(t):
    u = Users(t)
    url = make(t.path("sticky"), 0o1777)
    equal(u.run(STRANGER, "acquire", "a", "--on", url, group=None).returncode, 0)
    os.chmod(t.path("sticky/lock"), 0o666)
    os.chmod(t.path("sticky/journal"), 0o666)
    done = u.run(ONE, "show", "a", "--on", url)
    equal(done.returncode, 122)
    contains(done.stderr, f"belong to user {STRANGER}")
    contains(done.stderr, HOW)
    equal(u.run(STRANGER, "show", "-q", "a", "--on", url, group=None).returncode, 0)


def in_own_machine(function):
    """Gives the test a machine with a /var/lib of its own, by a mount namespace."""
    @functools.wraps(function)
    def run(t):
        function(t, Machine(t))
    return run


class Machine(Users):
    """Users on a machine whose /var/lib is the test's."""

    def __init__(self, t):
        super().__init__(t)
        self.lib = t.path("lib")
        os.mkdir(self.lib, 0o755)
        self.path = os.path.join(self.lib, "picket")

    def argv(self, uid, *words, group=GROUP):
        os.makedirs(self.home(uid), exist_ok=True)
        os.chown(self.home(uid), uid, uid)
        return ["unshare", "-m", "sh", "-ec", 'mount --bind "$0" /var/lib; exec "$@"',
                self.lib, "env", "-u", "PICKET_URL", f"HOME={self.home(uid)}",
                *super().argv(uid, *words, group=group)]

    def home(self, uid):
        return self.t.path(f"home{uid}")

    def findings(self, uid, group=GROUP):
        done = self.run(uid, "doctor", "-o", "json", group=group)
        return {f["code"]: f["text"] for f in json.loads(done.stdout)["findings"]}


@test
@in_own_machine
def local__is_the_machines_store_where_there_is_one(_t, m):
    make(m.path, 0o2770)
    holder = m.hold(ONE, "nightly")
    equal(m.run(TWO, "run", "-n", "nightly", "--", "true").returncode, 124)
    equal(m.run(0, "run", "-n", "nightly", "--", "true", group=None).returncode, 124)
    env = {"XDG_STATE_HOME": m.home(TWO)}
    equal(m.run(TWO, "run", "-n", "nightly", "--", "true", env=env).returncode, 124)
    contains(m.findings(TWO)["shared"], f'{MACHINE} hold for all members of group '
             f'"{GROUP}"')
    # Who is not in the group has a store of his own, and is told so.
    equal(m.run(STRANGER, "run", "-n", "nightly", "--", "true", group=None).returncode, 0)
    found = m.findings(STRANGER, group=None)
    contains(found["one-user"], f'user "{STRANGER}" alone')
    contains(found["one-user"], f"{HOW} {MACHINE}")
    let_go(holder)


@test
@in_own_machine
def local__is_a_users_own_elsewhere(_t, m):
    for mode in (None, 0o700, 0o777, 0o755):
        if mode is not None:
            shutil.rmtree(m.path, ignore_errors=True)
            make(m.path, mode)
        holder = m.hold(ONE, "nightly")
        equal(m.run(TWO, "run", "-n", "nightly", "--", "true").returncode, 0)
        equal(m.run(ONE, "run", "-n", "nightly", "--", "true").returncode, 124)
        contains(m.findings(ONE)["one-user"], m.home(ONE))
        let_go(holder)


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tools while single calls of the C library fail below them, and with few
descriptors. Each run ends with a documented exit code; a refusal says why in lines of
ours; and what was reported as done is done.
"""
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import threading

from injecting import (ALL, HANG_S, PICKET, Call, Page, Report, each, judge_end,
                       numbers)

# pylint: disable=wrong-import-order
from stores import STORES
from tap import Failed, check, main, test, wait_until

CODES = {0, 1, 122, 123, 124, 125, 126, 127}
FAULTS = (
    ("alloc", "none"), ("read", "short"), ("read", "EINTR"), ("read", "reset"),
    ("write", "short"), ("write", "EINTR"), ("write", "reset"), ("fd", "EMFILE"),
    ("wait", "EINTR"), ("sync", "EIO"),
)
LOADER = "error while loading shared libraries"  # it failed before the program began


class Tool:
    """One verb: its words, what must be there before, and what must be true after it
    has reported success. `own`: the names of this run."""
    codes_of_a_stop = (125,)

    def __init__(self, rig, own):
        self.rig = rig
        self.name = own
        self.prepared = None  # token and lease
        self.file = rig.t.path(f"ran-{own.replace('/', '-')}")

    def clean(self, *words):
        """A run without a fault, as a part of the preparation or the check."""
        done = self.rig.picket(*words)
        if done.returncode != 0:
            raise Failed(f"{words} failed without a fault: {done}")
        return done.stdout

    def holders(self):
        with self.rig.lock:
            said = self.rig.observer.ask("show", self.name).split()
        check(said[0] == "OK", f"the observer can't look: {said}")
        return said[2:]

    def acquired(self, ttl="60s"):
        told = json.loads(self.clean("acquire", "--ttl", ttl, "-o", "json", self.name))
        self.prepared = str(told["token"]), str(told["lease"])
        return self.prepared

    def ran(self):
        try:
            with open(self.file, encoding="ascii") as f:
                return f.read().count("ran")
        except FileNotFoundError:
            return 0

    def words(self):
        raise NotImplementedError

    def done(self, out):
        """Checks after exit code 0."""

    def always(self):
        """Checks after every run; here: releases what the preparation took."""
        if self.prepared:
            self.rig.picket("release", self.name, "--token", self.prepared[0], "--lease",
                            self.prepared[1])


class Run(Tool):
    def words(self):
        return ("run", "-n", "--ttl", "3s", self.name, "--", "sh", "-c",
                f"echo ran >> {self.file}")

    def done(self, _out):
        check(self.ran() == 1, f"reported as done, but it ran {self.ran()} times")

    def always(self):
        check(self.ran() <= 1, "the command ran more than once")
        wait_until(lambda: not self.holders(), what=f"{self.name} becomes free")


class RunInPlace(Run):
    """-F: the command takes the place of `picket`, and a helper guards it. A helper that
    stops leaves the command its exit code."""
    codes_of_a_stop = (0, 125)

    def words(self):
        return ("run", "-F", *super().words()[1:])


class Once(Tool):
    def words(self):
        return ("once", "--ttl", "3s", self.name, "--", "sh", "-c",
                f"echo ran >> {self.file}; echo out")

    def done(self, out):
        check(out == "out\n", f"printed {out!r}")
        check(self.ran() == 1, f"reported as done, but it ran {self.ran()} times")
        check(self.clean(*self.words()) == "out\n" and self.ran() == 1,
              "the outcome was not recorded")


class Acquire(Tool):
    def words(self):
        return "acquire", "-n", "--ttl", "3s", "-o", "json", self.name

    def done(self, out):
        told = str(json.loads(out)["token"])
        # The lease may be over by now on a slow machine; then the lock has moved on.
        check(self.holders() in ([told], []), f"told {told}, the store: {self.holders()}")
        self.prepared = told, str(json.loads(out)["lease"])

    def always(self):
        super().always()
        wait_until(lambda: not self.holders(), what=f"{self.name} becomes free")


class Release(Tool):
    def words(self):
        token, lease = self.acquired()
        return "release", self.name, "--token", token, "--lease", lease

    def done(self, _out):
        check(not self.holders(), "reported as released, and still held")


class Extend(Tool):
    def words(self):
        return "extend", "--lease", self.acquired()[1]


class Break(Tool):
    def words(self):
        self.acquired()
        return "break", self.name, "--reason", "test"

    def done(self, _out):
        check(not self.holders(), "reported as broken, and still held")


class Show(Tool):
    def words(self):
        self.acquired()
        return "show", "-o", "json", self.name

    def done(self, out):
        check(str(json.loads(out)["holds"][0]["token"]) == self.prepared[0], out)


class List(Show):
    def words(self):
        super().words()
        return "ls", "-o", "json", self.name

    def done(self, out):
        check([str(row["holder"]["token"]) for row in json.loads(out)]
              == [self.prepared[0]], out)


class Fence(Tool):
    def words(self):
        return "fence", "put", self.name, "--token", self.acquired()[0], "value"

    def done(self, _out):
        told = self.clean("fence", "get", self.name, "--token", "1000000")
        check("value" in told, f"reported as written, and there is {told!r}")


class Zombie(Tool):
    """A fenced file: the fence must not be taken for a lower one than it is."""
    claims = 1  # before the newest write; each uses the other slot of the fence's file

    def resource(self, *words):
        folder = self.rig.t.path("fenced")
        os.makedirs(folder, exist_ok=True)
        return "fence", *words, "--resource", f"file:{folder}"

    def words(self):
        for token in range(1, self.claims + 1):
            self.clean(*self.resource("claim", self.file_name(), "--token", token))
        self.clean(*self.resource("put", self.file_name(), "--token", "9", "newest"))
        return self.resource("put", self.file_name(), "--token", "7", "zombie")

    def file_name(self):
        return self.name.replace("/", "-")

    def done(self, _out):
        raise Failed("a late write was let through")

    def always(self):
        told = self.clean(*self.resource("get", self.file_name()))
        check(told == "newest", f"the file has {told!r}")


class LateZombie(Zombie):
    claims = 2


TOOLS = (Run, RunInPlace, Once, Acquire, Release, Extend, Break, Show, List, Fence,
         Zombie, LateZombie)


class Rig:
    """A store, and an observer that no fault touches."""

    def __init__(self, t, url):
        self.t = t
        self.url = url
        self.lock = threading.Lock()
        self.observer = Call(url, 60000, env=t.env)
        check(self.observer.ask("open").startswith("OK"), "the observer can't open")

    def close(self):
        self.observer.kill()

    def picket(self, *words, env=None, limit=None):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        try:
            return subprocess.run(
                [PICKET, *map(str, words)],
                env=self.t.env | {"PICKET_URL": self.url} | (env or {}),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_S,
                preexec_fn=few if limit else None, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"did not end within {HANG_S:.0f} s") from None

    def judge(self, tool, done, outcome):
        if outcome == "ended":
            check(done.returncode in CODES, f"exit code {done.returncode}: {done}")
            if done.returncode in (122, 125):
                check(re.match(r"picket: .", done.stderr), f"no reason told: {done}")
            if done.returncode == 0:
                tool.done(done.stdout)
            outcome = str(done.returncode)
        else:
            check(done.returncode in tool.codes_of_a_stop,
                  f"exit code {done.returncode}: {done}")
        tool.always()
        return outcome

    def run(self, kind, spec, page):
        tool = kind(self, f"{kind.__name__.lower()}/{os.path.basename(page.path)}")
        words = tool.words()
        done = self.picket(*words, env=page.environment(spec, PICKET))
        outcome = judge_end(page, done.returncode, done.stderr, spec.startswith("alloc"))
        return self.judge(tool, done, outcome)

    def run_with(self, kind, limit, page):
        """Under a real limit of descriptors."""
        tool = kind(self, f"{kind.__name__.lower()}/{os.path.basename(page.path)}")
        words = tool.words()
        done = self.picket(*words, limit=limit)
        if LOADER in done.stderr:
            return "not loaded"
        check(done.returncode >= 0, f"ended by signal: {done}")
        return self.judge(tool, done, "ended")


def over(t, name, kind):
    """Every n over the embedded store, which is quick; a few over others. An embedded
    store is the run's own: what earlier runs left in it would change which call is the
    n-th."""
    report = Report()
    with STORES[name](t.path("store")) as store, \
            contextlib.closing(Rig(t, store.url)) as shared:
        def run(spec, page):
            if name != "local":
                return shared.run(kind, spec, page)
            with contextlib.closing(Rig(t, f"local:{page.path}.store")) as own:
                return own.run(kind, spec, page)
        for call, fault in FAULTS:
            page = Page(t.dir)
            run(f"{call}:0:{fault}", page)
            count = page.count(call)
            most = sys.maxsize if name == "local" else 3
            specs = [(f"{call}:{n}:{fault}", Page(t.dir)) for n in numbers(count, most)]
            each(report, specs, run)
            if count:
                report.tell(f"{name} {kind.__name__.lower()} {call} {fault}", count)
    report.end()


def add(name, kind):
    def case(t):
        over(t, name, kind)
    case.__name__ = f"tools_{name}_{kind.__name__.lower()}__survives_every_single_fault"
    test(case, timeout=36000 if ALL else 600)


for store_name in ("local", "picket"):
    for tool_kind in TOOLS:
        if ALL or store_name == "local" or tool_kind in (Run, Acquire, Release):
            add(store_name, tool_kind)


@test(timeout=36000 if ALL else 600)
def tools__refuse_with_few_descriptors(t):
    """From none to enough; all of them for the verb that needs most."""
    report = Report()
    for name in ("local", "picket"):
        with STORES[name](t.path(name)) as store:
            rig = Rig(t, store.url)
            for kind in TOOLS if ALL or name == "local" else (Run, Acquire):
                step = 1 if ALL or (kind is Run and name == "local") else 4
                limits = [(limit, Page(t.dir)) for limit in range(4, 32, step)]
                each(report, limits, lambda n, p, k=kind: rig.run_with(k, n, p))
                report.tell(f"{name} {kind.__name__.lower()} ulimit -n", len(limits))
    report.end()


main()

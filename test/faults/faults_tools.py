#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The tools while single calls of the C library fail below them, and with few
descriptors. Each run ends with a documented exit code; a refusal says why in lines of
ours; and what was reported as done is done.
"""
import json
import os
import re
import resource
import subprocess
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
    """-F: the command takes the place of `picket`, and a helper guards it."""

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


TOOLS = (Run, RunInPlace, Once, Acquire, Release, Extend, Break, Show, List, Fence)


class Rig:
    """A store, and an observer that no fault touches."""

    def __init__(self, t, url):
        self.t = t
        self.url = url
        self.lock = threading.Lock()
        self.observer = Call(url, 60000, env=t.env)
        check(self.observer.ask("open").startswith("OK"), "the observer can't open")

    def picket(self, *words, env=None, limit=None):
        def few():
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        try:
            return subprocess.run(
                [PICKET, *words], env=self.t.env | {"PICKET_URL": self.url} | (env or {}),
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
            check(done.returncode == 125, f"exit code {done.returncode}: {done}")
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
    """All n where a descriptor is missing: few, and each is another place."""
    report = Report()
    with STORES[name](t.path("store")) as store:
        rig = Rig(t, store.url)
        for call, fault in FAULTS:
            page = Page(t.dir)
            rig.run(kind, f"{call}:0:{fault}", page)
            count = page.count(call)
            most = 100 if call == "fd" and name == "local" else 3
            specs = [(f"{call}:{n}:{fault}", Page(t.dir)) for n in numbers(count, most)]
            each(report, specs, lambda spec, p: rig.run(kind, spec, p))
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

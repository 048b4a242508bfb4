#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The client library over each store while single calls of the C library fail below it.

For each store, class of calls and fault: a run without a fault counts the calls, then
one run per n lets call n fail. Every run is the same short session beside an observer
that no fault touches, and what the client was told must agree with what the observer
sees. Outcomes "failed" and "unknown" are allowed; a crash, a false success, a hold that
outlives its lease, a leak and a hang are not.
"""
import os
import queue

from injecting import ALL, Call, Ended, Page, Report, each, judge_end, numbers

# pylint: disable=wrong-import-order
from stores import STORES, Absent
from tap import Failed, check, main, skip, test, wait_until

TTL_MS = 3000
WAIT_MS = 60000  # only a hang reaches it

FAULTS = (
    ("alloc", "none"), ("theirs", "none"),
    ("read", "short"), ("read", "EINTR"), ("read", "reset"),
    ("write", "short"), ("write", "EINTR"), ("write", "reset"),
    ("connect", "ECONNREFUSED"), ("fd", "EMFILE"), ("wait", "EINTR"),
    ("read", "EIO"), ("write", "EIO"), ("sync", "EIO"),
    ("sync", "ENOSPC"),
)


class Session:
    """One run: a client under the injector, and an observer."""

    def __init__(self, subject, observer, name, queue_seen):
        self.subject = subject
        self.queue_seen = queue_seen
        self.observer = observer
        self.first = f"{name}/a"
        self.second = f"{name}/b"
        self.failed = []  # statuses other than OK

    def holders(self, name):
        said = self.observer.ask("show", name).split()
        check(said[0] == "OK", f"the observer can't look: {said}")
        return said[2:], int(said[1])

    def ask(self, *words):
        said = self.subject.ask(*words)
        if not said.startswith("OK"):
            self.failed.append(f"{words[0]} {said.split()[0]}")
        return said

    def twice(self, *words):
        """Asks; asks once more if that failed, and then it must succeed: the fault is
        over."""
        said = self.ask(*words)
        if not said.startswith("OK"):
            said = self.ask(*words)
            check(said.startswith("OK"), f"fails although the fault is over: {said}")
        return said

    def is_held(self, name, told):
        """Told that it holds: so the observer sees it, or the client knows better by
        now (P5)."""
        token = told.split()[1]
        if token not in self.holders(name)[0]:
            state = self.subject.ask("state", name)
            check(state != "held", f"told {told!r}, but the store has no such hold")
            self.failed.append("lost")

    def is_free(self, name):
        found = self.holders(name)[0]
        check(not found, f"told that {name} is released, but {found} holds it")

    def play(self):
        self.twice("open")
        self.is_held(self.first, self.twice("take", self.first, WAIT_MS))
        self.ask("check", self.first)
        self.waits()
        self.ask("list")
        if self.ask("drop", self.first).split()[0] in ("OK", "LOST", "NOTHELD"):
            self.is_free(self.first)
        return self.subject.ask("close").split()

    def waits(self):
        """Is granted the second lock when the observer releases it."""
        check(self.observer.ask("take", self.second, 0).startswith("OK"),
              "the observer can't take a lock")
        self.subject.send("take", self.second, WAIT_MS)
        if self.queue_seen:
            wait_until(
                lambda: self.subject.answered() or self.holders(self.second)[1] > 0,
                what="the client waits")
        else:
            self.subject.answered(0.3)  # likely it waits by then; both ways are fine
        self.observer.ask("drop", self.second)
        told = self.subject.answer()
        if not told.startswith("OK"):
            self.failed.append(f"take {told.split()[0]}")
            told = self.ask("take", self.second, WAIT_MS)
            check(told.startswith("OK"), f"can't take it although it is free: {told}")
        self.is_held(self.second, told)

    def is_over(self):
        """Nothing of it outlives its lease."""
        for name in (self.first, self.second):
            wait_until(lambda at=name: self.holders(at) == ([], 0),
                       what=f"{name} becomes free")


class Rig:
    """A store, and observers for as many runs as there are at once."""

    def __init__(self, store, t):
        self.url = store.url
        self.store = store
        self.t = t
        self.observers = queue.SimpleQueue()
        self.descriptors = None  # that a client leaves open

    def observer(self, url):
        if self.observers.empty():
            fresh = Call(url, 60000, env=self.t.env)
            said = fresh.ask("open")
            check(said.startswith("OK"), f"the observer can't open: {said}")
            return fresh
        return self.observers.get()

    def run(self, spec, page):
        """One session; returns its outcome in a word. An embedded store is the run's own:
        what earlier runs left in it would change which call is the n-th."""
        fresh = self.store.scheme == "local"
        url = f"local:{page.path}.store" if fresh else self.url
        observer = self.observer(url)
        subject = Call(url, TTL_MS, page, spec, env=self.t.env)
        try:
            session = Session(subject, observer, os.path.basename(page.path),
                              self.store.scheme != "redlock")
            outcome = self.judge(session, subject, page, spec)
        except Ended:
            observer.kill()
            raise Failed(f"the observer ended: {observer.said}") from None
        except Failed:
            subject.kill()
            observer.kill()
            raise
        if fresh:
            observer.kill()
        else:
            self.observers.put(observer)
        return outcome

    def judge(self, session, subject, page, spec):
        closed = None
        try:
            closed = session.play()
        except Ended:
            if subject.process.poll() is None and session.observer.process.poll():
                raise
        code, said = subject.finish()
        memory = spec.startswith(("alloc", "theirs"))
        outcome = judge_end(page, code, said, memory)
        session.observer.ask("drop", session.second)
        session.is_over()
        if outcome != "ended":
            return outcome
        check(code == 0 and closed,
              f"ended early with {code} after {subject.said}: {said}")
        open_more = int(closed[2]) - int(closed[1])
        if self.descriptors is None:
            self.descriptors = open_more
        check(open_more <= self.descriptors, f"{open_more} descriptors left open")
        check(page.live() == 0, f"{page.live()} blocks leaked, of {page.live_at()}")
        return "+".join(sorted(set(session.failed))) or "unharmed"


def all_of(name, kind):
    """How many to try at least: all where runs are short."""
    return 200 if (name, kind) in (("local", "alloc"), ("local", "theirs")) else None


def over(t, name):
    try:
        store = STORES[name](t.path("store"))
    except Absent as why:
        skip(str(why))
    os.chmod(t.dir, 0o755)  # PostgreSQL's own user must get into it
    report = Report()
    with store:
        rig = Rig(store, t)
        for kind, fault in FAULTS:
            if (name, kind) == ("zk", "theirs"):
                continue  # libzookeeper itself uses what malloc refused
            page = Page(t.dir)
            rig.run(f"{kind}:0:{fault}", page)
            count = page.count(kind)
            specs = [(f"{kind}:{n}:{fault}", Page(t.dir))
                     for n in numbers(count, all_of(name, kind))]
            each(report, specs, rig.run)
            if count:
                report.tell(f"{name} {kind} {fault}", count)
    report.end()


def add(name):
    def case(t):
        over(t, name)
    case.__name__ = f"client_{name}__survives_every_single_fault"
    test(case, timeout=36000 if ALL else 600)


for each_name in STORES:
    if each_name not in ("picket3", "etcd3"):  # the same driver as with one
        add(each_name)
main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The embedded store on a disk whose syncs fail.

A run under the injector lets one sync fail, or all of them from then on. What the program
was told must agree with what the next one finds, and nothing is acknowledged in a file
whose name may be gone after a power cut.
"""
import json
import os

from injecting import PICKET, Page

# pylint: disable=wrong-import-order
from tap import check, contains, equal, main, test

FULL = "No space left on device"
FAILED = "Input/output error"
LARGE = 60000  # bytes of a fence's value: a few of them make the journal be compacted


def faulty(t, spec, *words):
    """Runs the program under the injector: its result and the injector's page."""
    page = Page(t.dir)
    done = t.picket(*words, env=page.environment(spec, PICKET))
    equal(page.crash(), "")
    return done, page


def take(t, name, spec=None):
    """Result, page and token of an acquire."""
    words = ("acquire", "-n", "--ttl", "1h", "-o", "json", name)
    done, page = faulty(t, spec or "sync:0:EIO", *words)
    return done, page, json.loads(done.stdout)["token"] if done.returncode == 0 else None


def one_line(done, part):
    equal((done.returncode, done.stdout, done.stderr.count("\n")), (125, "", 1))
    contains(done.stderr, part)


def held(t):
    done = t.picket("ls", "-o", "json")
    equal((done.returncode, done.stderr), (0, ""))
    return {row["lock"]: row["holder"]["token"] for row in json.loads(done.stdout)}


@test
def full__at_the_sync_is_told_at_once(t):
    """Some file systems find out at the sync that there is no room. That is not repeated
    until time is over: the disk stays full. With room again, everything goes on."""
    last = take(t, "first")[2]
    tokens = {"first": last}
    for n in range(3):
        done, page, token = take(t, f"full/{n}", "datasync:1:ENOSPC:on")
        equal((page.injected(), token), (1, None))
        one_line(done, FULL)
        contains(done.stderr, "nothing was changed")
        equal(held(t), tokens)
        last = take(t, f"after/{n}")[2]
        check(last > max(tokens.values()), "a token came twice")
        tokens[f"after/{n}"] = last


@test
def full__at_any_sync_loses_nothing(t):
    take(t, "first")
    syncs = take(t, "second")[1].count("sync")
    check(syncs > 0, "nothing is synced")
    tokens = held(t)
    for n in range(1, syncs + 1):
        done, page, token = take(t, f"full/{n}", f"sync:{n}:ENOSPC")
        equal(page.injected(), 1)
        if token is None:
            one_line(done, FULL)
        else:
            tokens[f"full/{n}"] = token
        # Granted, but there was no room to say so, nor to give it back: its TTL ends it.
        found = held(t)
        equal({name: found.get(name) for name in tokens}, tokens)
        token = take(t, f"after/{n}")[2]
        check(token > max(found.values()), "a token came twice")
        tokens[f"after/{n}"] = token


def grow(t, spec="sync:0:EIO"):
    """Writes to a fence until the journal was compacted, or would have been by the last
    write, which is done under `spec`."""
    value = t.write("value", "x" * LARGE)
    journal = t.path("state/journal")
    words = ("fence", "put", "big", "--token", "1", "--file", value)
    while not os.path.exists(journal) or os.path.getsize(journal) < 256 * 1024 - LARGE:
        equal(t.picket(*words).returncode, 0)
    before = os.stat(journal).st_ino
    done, page = faulty(t, spec, *words)
    return done, page, os.stat(journal).st_ino != before


@test
def compaction__whose_name_may_be_gone_is_not_appended_to(t):
    """After a power cut the old journal may be back: what was acknowledged must be in
    it."""
    _, _, last = take(t, "first")
    done, page, renamed = grow(t, "dirsync:1:EIO")
    equal((page.injected(), renamed, done.returncode), (1, True, 0))
    # It is in the old journal, which has its name on disk. Nothing else is acknowledged.
    for n in range(3):
        done, page, token = take(t, f"refused/{n}", "dirsync:1:EIO:on")
        check(page.injected() > 0, "the name was not synced")
        equal(token, None)
        one_line(done, FAILED)
        equal(held(t), {"first": last})  # looking needs no sync of the name
    done, page, token = take(t, "after")
    check(page.count("dirsync") > 0, "the name was not synced")
    check(token > last, "a token came twice")
    equal(held(t), {"first": last, "after": token})
    done, page, _ = take(t, "later")
    equal((done.returncode, page.count("dirsync")), (0, 0))  # once is enough


@test
def compaction__survives_any_failed_sync(t):
    _, _, last = take(t, "first")
    done, page, renamed = grow(t)
    equal((done.returncode, renamed), (0, True))
    syncs = page.count("sync")
    check(syncs >= 3, f"{syncs} syncs: of a record, a file and a name")
    for n in range(1, syncs + 1):
        done, page, _ = grow(t, f"sync:{n}:EIO")
        equal(page.injected(), 1)
        equal(done.returncode, 0)  # done, or done by the second try
        _, _, token = take(t, f"after/{n}")
        check(token > last, "a token came twice")
        last = token
    equal(len(held(t)), syncs + 1)


main()

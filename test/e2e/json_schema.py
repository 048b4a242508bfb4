#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Everything that verbs print with -o json is as docs/json.md says: names and types."""
import http.client
import json
import os
import re
import subprocess

from cluster import READY_S
from holding import line_with, ok, waiting
from stores import Picket, Postgres, Redis
from tap import check, contains, equal, main, test

DOCUMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs",
                        "json.md")
TYPES = {"string": str, "boolean": bool, "array": list, "object": dict,
         "null": type(None), "number": (int, float)}
EXACT = 2 ** 53


def table(title):
    """The rows of a section's first table, without its head."""
    with open(DOCUMENT, encoding="utf-8") as f:
        section = f.read().split(f"\n## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines()
            if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


FIELDS = {row[0].strip("`"): [TYPES[t] for t in row[1].split(" or ")]
          for row in table("Fields")}
VERBS = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[1])) for row in table("Verbs")}


def fits(value, wanted):
    if isinstance(value, bool):
        return bool in wanted
    return any(isinstance(value, t) for t in wanted)


def judge(value, where):
    """Every name in it is documented, and has the type that the document says."""
    if isinstance(value, dict):
        for key, inner in value.items():
            check(key in FIELDS, f"{where}: {key!r} is not documented")
            check(fits(inner, FIELDS[key]), f"{where}: {key} is {inner!r}")
            judge(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for inner in value:
            judge(inner, where + "[]")
    elif isinstance(value, int):
        check(value < EXACT, f"{where}: {value} is rounded by others")


def options_of(verb):
    """Codes besides 0 that are no failure: of settings that the doctor does not like."""
    return (1,) if verb == "doctor" else ()


class Run:
    """Runs verbs on one store and judges what they print."""

    def __init__(self, t, url):
        self.t, self.url = t, url
        self.seen = set()

    def __call__(self, verb, *words, code=0, **options):
        name, *action = verb.split()
        done = self.t.picket(name, *action, "-o", "json", "--on", self.url, *words,
                             **options)
        check(done.returncode in (code, *options_of(verb)), f"{verb}: {done.stderr}")
        return self.told(verb, done.stdout)

    def told(self, verb, text):
        lines = [json.loads(line) for line in text.splitlines()]
        check(lines, f"{verb} printed nothing")
        for line in lines:
            judge(line, verb)
            for one in line if isinstance(line, list) else [line]:
                extra = set(one) - VERBS[verb] - {k + "_base64" for k in VERBS[verb]}
                check(not extra, f"{verb}: {extra} are not of this verb")
                self.seen |= set(one)
        return lines[0]

    def env(self, got):
        return {"PICKET_LOCK": got["lock"], "PICKET_TOKEN": str(got["token"]),
                "PICKET_LEASE": got["lease"]}


def locks(run):
    """The verbs that every store has. Returns the lease's id."""
    got = run("acquire", "db", "--ttl", "60s")
    shown = run("show", "db")
    equal((shown["lock"], shown["holds"][0]["lease"]), ("db", got["lease"]))
    equal(run("ls")[0]["holder"]["lease"], got["lease"])
    env = run.env(got)
    equal(run("extend", env=env)["lease"], got["lease"])
    on = ("--on", run.url)
    waiter = waiting(run.t, *on, "db")
    row = run("show", "db")["queue"][0]
    check(isinstance(row["lease"], str) and row["place"] == 1, "not a wait")
    run("release", env=env)
    equal(waiter.wait(), 0)
    got = run("acquire", "db", "--ttl", "60s")
    run("break", "db", "--reason", "test")
    leader = run.t.start("elect", "-o", "json", *on, "lead", "me")
    equal(run.told("elect", leader.stdout.readline())["lock"], "lead")
    run("elect --observe", "--once", "lead")
    leader.terminate()
    leader.wait()
    run("elect --observe", "--once", "lead", code=1)
    run("doctor")
    return got["lease"]


def machine(run):
    """What the machine has besides."""
    watch = run.t.start("watch", "-v", "-o", "json", "--on", run.url)
    line_with(watch.stderr, "watching everything")
    got = run("acquire", "w", "--also", "x")
    run("release", env=run.env(got))
    token = ("--token", str(got["token"]))
    run("fence", "claim", "r", *token)
    run("fence", "put", "r", *token, "text")
    run("fence", "get", "r")
    run("fence", "check", "r", "--token", "1", code=1)
    run("fence", "shadow", "r")
    run("fence", "show", "r")
    subprocess.run([run.t.program, "fence", "put", "r", *token, "--on", run.url, "-"],
                   input=b"\xff\x00", env=run.t.env, check=True)
    check("value_base64" in run("fence", "get", "r"), "not bytes")
    ok(run.t.picket("once", "--on", run.url, "k", "--", "echo", "hi"), 0)
    run("once --show", "k")
    seen = []
    while "fence-mode" not in (e["event"] for e in seen):
        seen.append(run.told("watch", watch.stdout.readline()))
    check(any(e.get("lock") == "w" for e in seen), "no event of the lock")
    check(any(e.get("resource") == "r" for e in seen), "no event of the fence")
    watch.terminate()
    watch.wait()


@test
def schema__local(t):
    run = Run(t, "local:" + t.path("state"))
    locks(run)
    machine(run)
    run("drill", "--ttl", "300ms")
    run.told("version", ok(t.picket("version", "-o", "json")))
    dev = t.start("dev", "-o", "json")
    run.told("dev", dev.stdout.readline())
    dev.terminate()
    dev.wait()


@test
def schema__picket(t):
    with Picket(t.path("c")) as store:
        run = Run(t, store.url)
        locks(run)
        machine(run)
        run("cluster status")
        run("bench", "pairs", "--time", "100ms", "--clients", "1")
        limits = json.loads(ok(t.picket("cluster", "limits", "-o", "json", "--on",
                                        store.url)))
        check(all(isinstance(v, int) and v < EXACT for v in limits.values()))


@test
def events__of_the_dashboard_have_ids_as_strings(t):
    with Picket(t.path("c")) as store:
        lease = Run(t, store.url)("acquire", "db")["lease"]
        c = http.client.HTTPConnection("127.0.0.1", store.servers[0].http_port,
                                       timeout=READY_S)
        c.request("GET", "/events?lock=db")
        answer, seen = c.getresponse(), ""
        while '"holds":[{' not in seen:
            line = answer.readline().decode()
            check(line, "the events have ended")
            seen += line
        contains(seen, f'"lease":"{lease}"')
        c.close()


@test
def schema__redis(t):
    with Redis(t.path("r")) as store:
        locks(Run(t, store.url))


@test
def schema__postgres(t):
    with Postgres(t.dir) as store:
        lease = locks(Run(t, store.url))
        check(int(lease) >= EXACT, f"lease {lease} shows nothing")


main()

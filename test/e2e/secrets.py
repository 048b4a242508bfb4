#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Passwords and arguments stay where they were given: not in labels, messages, logs,
keys, the process list or the environment of anybody but the job."""
import contextlib
import glob
import http.client
import json
import os
import subprocess

from cluster import READY_S, Cluster, free_ports
from holding import let_go, line_with, ok, parsed
from tap import check, contains, equal, main, test, wait_until

SECRET = "s3cret77"      # of a URL
ARGUMENT = "hunter2222"  # of the job
JOB = ("sh", "-c", f"cat; : -p{ARGUMENT} --password={ARGUMENT}")


def without(text, *secrets):
    for secret in secrets or (SECRET, ARGUMENT):
        check(secret not in text, f"{secret!r} is in {text!r}")
    return text


@contextlib.contextmanager
def redis(t):
    """A real one with a password; gives its URL and a way to ask it."""
    port, = free_ports(1)
    server = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", t.dir,
         "--save", "", "--requirepass", SECRET], stdout=subprocess.DEVNULL)

    def ask(*words):
        return subprocess.run(["redis-cli", "-p", str(port), *words], check=False,
                              env={"REDISCLI_AUTH": SECRET, "PATH": os.environ["PATH"]},
                              stdout=subprocess.PIPE, text=True).stdout.strip()
    try:
        wait_until(lambda: ask("PING") == "PONG", what="Redis")
        yield f"redis://:{SECRET}@127.0.0.1:{port}/0", ask
    finally:
        server.kill()
        server.wait()


def start_job(t, *words):
    """Starts a holder whose command line has both secrets in it."""
    holder = t.start("run", "-v", *words, "db", "--", *JOB, stdin=subprocess.PIPE)
    line_with(holder.stderr, "running sh")
    return holder


def family(pid):
    """The process and all that descends from it."""
    found = [pid]
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with open(path, encoding="ascii") as f:
            for child in f.read().split():
                found += family(int(child))
    return found


def of_process(pid, what):
    with open(f"/proc/{pid}/{what}", "rb") as f:
        return f.read().decode().split("\0")


@test
def label__has_the_program_and_no_arguments(t):
    with redis(t) as (url, ask):
        holder = start_job(t, "--on", url)
        contains(without(ok(t.picket("show", "db", "--on", url))), "(sh)")
        row = parsed(t.picket("show", "-o", "json", "db", "--on", url))["holds"][0]
        without(json.dumps(row))
        equal((row["command"], row["note"], row["pid"]), ("sh", "", holder.pid))
        without(ok(t.picket("ls", "-o", "json", "--on", url)))
        for words in (("-n",), ("-w", "20ms")):
            busy = t.picket("run", *words, "db", "--on", url, "--", "true")
            equal(busy.returncode, 124)
            contains(without(busy.stderr), "(sh)")
        keys = [k for k in ask("KEYS", "*").splitlines() if k]
        check(keys, "no key in Redis")
        kept = [ask(read, k) for k in keys for read in ("GET", "HGETALL")]
        contains(without("\n".join(kept)), "command=sh")
        let_go(holder)


@test
def label__says_more_when_asked_to(t):
    for words, env in ((("--label", "command"), {}), ((), {"PICKET_LABEL": "command"})):
        holder = t.start("run", "-v", *words, "--note", "for you", "db", "--", "cat",
                         "-", f"redis://u:{SECRET}@h", stdin=subprocess.PIPE, env=env)
        line_with(holder.stderr, "running cat")
        row = parsed(t.picket("show", "-o", "json", "db"))["holds"][0]
        equal((row["command"], row["note"]), ("cat - redis://u@h", "for you"))
        holder.stdin.close()
        holder.wait()
    ok(t.picket("acquire", "a", "--label", "command", "--note", "n"))
    row = parsed(t.picket("show", "-o", "json", "a"))["holds"][0]
    contains(row["command"], "picket acquire a --label command")
    ok(t.picket("acquire", "b"))
    equal(parsed(t.picket("show", "-o", "json", "b"))["holds"][0]["command"],
          os.path.basename(t.program))
    wrong = t.picket("acquire", "c", "--label", "all")
    equal(wrong.returncode, 125)
    contains(wrong.stderr, "neither program nor command")


@test
def processes__show_no_secret(t):
    with redis(t) as (url, _):
        for words in ((), ("-F",)):
            job = ("db", "--", *JOB)
            holder = t.start("run", *words, "--on", url, *job, stdin=subprocess.PIPE)
            wait_until(lambda: t.picket("show", "-q", "db", "--on", url).returncode == 0)
            ours = [pid for pid in family(holder.pid) + helpers(t)
                    if of_process(pid, "comm")[0].startswith("picket")]
            check(ours, "no process of picket was found")
            for pid in ours:
                words_shown = of_process(pid, "cmdline")
                without(" ".join(words_shown))
                contains(" ".join(words_shown), "redis://127.0.0.1:")
                without("\n".join(of_process(pid, "environ")))
            # The job has its own words, and the store's whole URL in one variable.
            found = [pid for pid in family(holder.pid)
                     if of_process(pid, "cmdline")[0] == "sh"]
            wait_until(lambda: of_process(found[0], "cmdline")[0] == "sh")
            env = [e for e in of_process(found[0], "environ") if SECRET in e]
            equal(env, [f"PICKET_URL={url}"])
            holder.stdin.close()
            holder.wait()


def helpers(t):
    """Processes of the program under test that have left our tree."""
    found = []
    for path in glob.glob("/proc/[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(path + "/exe") == os.path.realpath(t.program):
                if os.readlink(path + "/cwd") == os.path.realpath(t.dir):
                    found.append(int(os.path.basename(path)))
    return found


@test
def processes__show_no_command_of_a_shell(t):
    holder = t.start("run", "-v", "db", "-c", f"cat; : {ARGUMENT}", stdin=subprocess.PIPE)
    line_with(holder.stderr, "running ")
    for pid in helpers(t):
        without(" ".join(of_process(pid, "cmdline")))
    let_go(holder)


URLS = ("picket://u:{}@127.0.0.1:{}", "redis://u:{}@127.0.0.1:{}/0",
        "redis://u:{}@/x@127.0.0.1:{}", "redlock://u:{}@127.0.0.1:{}",
        "etcd://u:{}@127.0.0.1:{}", "zk://u:{}@127.0.0.1:{}", "consul://:{}@127.0.0.1:{}",
        "consul://u:{}@127.0.0.1:{}", "postgres://u:{}@127.0.0.1:{}/d",
        "postgres://127.0.0.1:{1}/d?user=u&password={0}", "postgres://u:{}@[::1:{}/d",
        "postgres://u:{}@127.0.0.1:{}/d?lock=advisory", "etcds://u:{}@127.0.0.1:{}",
        "mysql://u:{}@127.0.0.1:{}/d", "nosuch://u:{}@127.0.0.1:{}")


GATE = ("gate", "--listen", "127.0.0.1:0", "--resource-from", "path-prefix",
        "--upstream")


@test(timeout=1800)
def errors__never_quote_a_password(t):
    port, = free_ports(1)
    for form in URLS:
        url = form.format(SECRET, port)
        for words in (("run", "-n", "db", "--on", url, "--", "true"),
                      ("acquire", "-w", "10ms", "db", "--on", url),
                      ("cluster", "status", "--on", url),
                      ("fence", "claim", "r", "--token", 1, "--resource", url),
                      (*GATE, f"http://127.0.0.1:{port}", "--on", url),
                      (*GATE, f"http://u:{SECRET}@127.0.0.1:{port}")):
            done = t.picket(*words)
            check(done.returncode in (122, 125), f"{words}: {done.returncode}")
            check(done.stderr, "nothing was said")
            without(done.stdout + done.stderr)


@test
def doctor__never_quotes_a_password(t):
    port, = free_ports(1)
    for form in URLS[1:2] + URLS[8:10]:
        done = t.picket("doctor", form.format(SECRET, port), "-o", "json", "-v")
        without(done.stdout + done.stderr)


@test
def server__shows_and_logs_no_secret(t):
    """The dashboard, its events and the log of a node."""
    with Cluster(t.program, t.path("c"), 1) as cluster:
        node = cluster.nodes[0]
        holder = start_job(t, "--on", cluster.url)
        c = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=READY_S)
        c.request("GET", "/events?lock=db")
        answer, seen = c.getresponse(), ""
        while "command=" not in seen:
            line = answer.readline().decode()
            check(line, "the events have ended")
            seen += line
        contains(without(seen), "command=sh")
        c.close()
        for path in ("/", "/metrics"):
            c = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=READY_S)
            c.request("GET", path, headers={"Accept": "text/html"})
            without(c.getresponse().read().decode())
            c.close()
        let_go(holder)
        for path in glob.glob(t.path("c/**/*log*"), recursive=True):
            if os.path.isfile(path):
                with open(path, encoding="utf-8", errors="replace") as f:
                    without(f.read())


@test
def acquire__names_its_store_to_the_shell_alone(t):
    with redis(t) as (url, _):
        got = ok(t.picket("acquire", "db", "--on", url))
        check(f"PICKET_URL='{url}'\n" in got or f"PICKET_URL={url}\n" in got, got)
        contains(got, "export PICKET_LOCK PICKET_TOKEN PICKET_LEASE PICKET_URL\n")
        shell = subprocess.run(
            ["sh", "-ec", f'eval "$1"\n{t.program} extend --ttl 1h\n{t.program} release',
             "sh", got], env=t.env, stderr=subprocess.PIPE, text=True, check=False)
        equal((shell.returncode, shell.stderr), (0, ""))
        equal(ok(t.picket("show", "db", "--on", url)), "db: free\n")
        without(ok(t.picket("acquire", "-o", "json", "db", "--on", url)))


main()

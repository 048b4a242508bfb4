#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""`picket doctor`: what is declared, found and measured, in text and as JSON."""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from cluster import QUICK, Cluster, free_ports
from tap import check, contains, equal, main, skip, stopped, test, wait_until

FLAGS = ["shared", "semaphore", "sets", "election", "fences", "watch", "lock_delay",
         "extend", "by_id", "reasons"]


def built_in(t, driver):
    """Whether this program has that driver."""
    drivers = json.loads(t.picket("version", "-o", "json").stdout)["drivers"]
    return any(d["driver"] == driver for d in drivers)


def report(t, *args, code=0, **options):
    """What it says as JSON."""
    done = t.picket("doctor", "-o", "json", *args, **options)
    check(done.returncode == code, f"exit code {done.returncode}: {done.stdout}"
                                   f"{done.stderr}")
    return json.loads(done.stdout)


def in_memory(folder):
    """Whether that folder is on a file system that a reboot forgets."""
    done = subprocess.run(["stat", "-f", "-c", "%T", folder], text=True, check=False,
                          stdout=subprocess.PIPE)
    return done.stdout.strip() in ("tmpfs", "ramfs")


def want_disk(t):
    if in_memory(t.dir):
        skip("temporary folders are in memory here")


def codes(r, grade):
    return [f["code"] for f in r["findings"] if f["grade"] == grade]


def one_line(text):
    equal(len(text.splitlines()), 1)
    check(text.startswith("picket: "), text)


# ---- the embedded store ----

@test
def text__fits_a_page_and_ends_with_a_verdict(t):
    want_disk(t)
    done = t.picket("doctor")
    equal(done.returncode, 0)
    equal(done.stderr, "")
    lines = done.stdout.splitlines()
    check(all(len(line) <= 90 for line in lines), done.stdout)
    equal(lines[0], f"{t.env['PICKET_URL']} (local)")
    for word in ["promise", "scope", "tokens", "fairness", "waiting", "clock", "failover",
                 "offers", "lacks", "round trip", "pause"]:
        check(any(line.startswith(f"  {word}") for line in lines), word)
    equal(lines[-1], "Nothing unsafe found.")


@test
def json__has_every_declared_word(t):
    want_disk(t)
    r = report(t)
    equal(r["url"], t.env["PICKET_URL"])
    equal(r["declared"]["driver"], "local")
    equal(r["declared"]["promise"], "correctness")
    equal(r["declared"]["tokens"], 2)
    check(all(r["declared"][f] is True for f in FLAGS))
    equal((r["reached"], r["error"], r["unsafe"], r["ttl_ms"]), (True, None, 0, 10000))
    m = r["measured"]
    equal(m["calls"], 50)
    check(0 < m["round_trip_p50_us"] <= m["round_trip_max_us"], m)
    check(m["pause_us"] >= 0, m)
    contains(codes(r, "fine"), "ttl")


@test
def version__tells_the_same_flags(t):
    want_disk(t)
    drivers = json.loads(t.picket("version", "-o", "json").stdout)["drivers"]
    local = next(d for d in drivers if d["driver"] == "local")
    equal(local, report(t)["declared"])


@test
def url__is_a_word_or_an_option_or_the_environment(t):
    want_disk(t)
    for args in [[f"local:{t.dir}/x"], ["--on", f"local:{t.dir}/x"], ["local:x"]]:
        equal(report(t, *args)["url"], f"local:{t.dir}/x")
    done = t.picket("doctor", "local:x", "--on", "local:y")
    equal(done.returncode, 125)
    one_line(done.stderr)


@test
def quiet__answers_by_its_exit_code(t):
    want_disk(t)
    done = t.picket("doctor", "-q")
    equal((done.returncode, done.stdout, done.stderr), (0, "", ""))


@test
def doctor__takes_no_lock(t):
    first = json.loads(t.picket("acquire", "-o", "json", "a").stdout)
    t.picket("doctor", "-q")
    second = json.loads(t.picket("acquire", "-o", "json", "b").stdout)
    equal((second["token"], int(second["lease"])),
          (first["token"] + 1, int(first["lease"]) + 1))
    equal(t.picket("ls", "-q").stdout, "a\nb\n")


@test
def memory__forgets_tokens(t):
    if not in_memory("/dev/shm"):
        skip("/dev/shm is not in memory here")
    folder = tempfile.mkdtemp(prefix="picket-test-", dir="/dev/shm")
    try:
        r = report(t, f"local:{folder}", code=1)
        equal(codes(r, "unsafe"), ["memory-only"])
        equal(r["unsafe"], 1)
        done = t.picket("doctor", f"local:{folder}")
        equal(done.returncode, 1)
        contains(done.stdout, "UNSAFE  memory-only")
        equal(t.picket("doctor", "-q", f"local:{folder}").returncode, 1)
    finally:
        shutil.rmtree(folder)


# ---- measuring ----

@test
def pause__makes_a_ttl_too_short(t):
    """A process that is stopped for longer than a lease lives is what it looks for."""
    p = t.start("doctor", "-v", "-o", "json", "--ttl", "300ms")
    while "pauses of this machine" not in p.stderr.readline():
        check(p.poll() is None, "it ended before it measured")
    p.send_signal(signal.SIGSTOP)
    wait_until(lambda: stopped(p.pid), what="stopped")
    time.sleep(0.5)  # this is the pause
    p.send_signal(signal.SIGCONT)
    out = p.communicate()[0]
    r = json.loads(out)
    equal(p.returncode, 1)
    contains(codes(r, "unsafe"), "ttl-too-short")
    check(r["measured"]["pause_us"] >= 500000 - 1000, r["measured"])


@test
def progress__is_for_terminals_and_leaves_nothing(t):
    want_disk(t)
    terminal, ours = os.openpty()
    p = t.start("doctor", "-o", "json", stderr=ours)
    os.close(ours)
    shown = b""
    with contextlib.suppress(OSError):  # the end of a terminal
        while data := os.read(terminal, 65536):
            shown += data
    os.close(terminal)
    equal(json.loads(p.communicate()[0])["reached"], True)
    contains(shown.decode(), "measuring the pauses of this machine: ")
    check(shown.endswith(b"\r\033[K"), shown[-40:])


@test
def ttl__must_be_one(t):
    for wrong in ["49ms", "25h", "5"]:
        done = t.picket("doctor", "--ttl", wrong)
        equal((done.returncode, done.stdout), (125, ""))
        one_line(done.stderr)


# ---- clusters ----

@test
def one_node__is_worth_a_note(t):
    with Cluster(t.program, t.path("c"), 1) as c:
        r = report(t, c.url)
        equal(codes(r, "note"), ["single-node"])
        contains(codes(r, "fine"), "leader")
        equal(r["declared"]["driver"], "picket")


@test
def three_nodes__are_counted(t):
    with Cluster(t.program, t.path("c"), 3, QUICK) as c:
        wait_until(lambda: t.picket("cluster", "status", "--on",
                                    c.url).returncode == 0, what="a healthy cluster")
        r = report(t, c.url, "--require", "correctness")
        equal(r["failures_tolerated"], 1)
        equal([n for n in codes(r, "note") if n != "ttl-tight"], [])
        check({"nodes", "leader", "promise"} <= set(codes(r, "fine")), r)
        # A node that has just started has not told everybody where its clients go.
        wait_until(lambda: t.picket("cluster", "status", "--on",
                                    c.nodes[0].url).returncode == 0, what="addresses")
        equal(codes(report(t, c.nodes[0].url), "note"), ["one-address"])

        gone, other = c.followers()
        gone.kill()
        wait_until(lambda: t.picket("cluster", "status", "--on",
                                    c.url).returncode == 2, what="a missing node")
        r = report(t, c.url, code=2)
        away = next(f for f in r["findings"] if f["code"] == "unhealthy-nodes")
        contains(away["text"], f"({gone.name} is unreachable)")
        contains(away["text"], "3 voters, 2 of them healthy: it bears 0 more failures")
        equal(r["failures_tolerated"], 0)

        other.kill()
        wait_until(lambda: not any(n.alive() and n.serves() for n in c.nodes),
                   what="no leader")
        r = report(t, c.url, "-w", "1", code=125)
        contains(codes(r, "note"), "no-leader")
        equal((r["reached"], r["measured"]), (False, None))


# ---- the tables of docs/drivers.md ----

def table(heading):
    """Rows of the table whose heading begins so, by the store in the first cell."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "../../docs/drivers.md")
    with open(path, encoding="utf-8") as f:
        text = f.read()
    lines = text[text.index(heading):].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    return {name.strip(): cells for first, *cells in rows
            for name in first.replace("`", "").split(",")}


def declared_by(t, store):
    """What the driver declares; nobody need be there."""
    scheme, _, mode = store.partition(": ")
    scheme = scheme.rstrip(":")
    url = {"local": "local:" + t.path("x"),
           "postgres": "postgres://127.0.0.1:1/x?lock=" + (mode or "lease")}
    done = t.picket("doctor", "-o", "json", "-w", "0",
                    url.get(scheme, scheme + "://127.0.0.1:1"))
    return json.loads(done.stdout)["declared"]


@test
def documents__tables_say_what_the_drivers_declare(t):
    first, second = table("| | class | token |"), table("| | shared | election value |")
    equal(sorted(first), sorted(second))
    stores = {name: name.replace(" advisory", ": advisory") for name in first}
    drivers = json.loads(t.picket("version", "-o", "json").stdout)["drivers"]
    built = {d["driver"].replace("zookeeper", "zk") for d in drivers}
    equal(built - {s.partition(":")[0] for s in stores}, set())
    for name, store in stores.items():
        if store.partition(":")[0] not in built:
            continue
        d = declared_by(t, store.replace("::", ":"))
        group, token, order, waits = first[name][:4]
        if group != "the same":
            check(d["promise"] in group, f"{name}: {group}, {d['promise']}")
        equal((name, token == "none"), (name, d["tokens"] == 0))
        equal((name, order.startswith("first come")), (name, d["fairness"] == "fifo"))
        equal((name, waits[:4]), (name, d["waiting"][:4]))
        flags = [d[k] for k in ("shared", "election", "watch", "extend", "by_id",
                                "lock_delay", "reasons", "sets")]
        equal((name, second[name]), (name, ["yes" if f else "no" for f in flags]))
        equal(d["sets"], d["semaphore"] and d["fences"])


# ---- what goes wrong ----

@test
def nobody_there__leaves_what_is_declared(t):
    port = free_ports(1)[0]
    done = t.picket("doctor", f"picket://127.0.0.1:{port}", "-w", "1")
    equal(done.returncode, 125)
    one_line(done.stderr)
    contains(done.stderr, f"127.0.0.1:{port}")
    contains(done.stdout, "  promise     correctness")
    check("Nothing unsafe" not in done.stdout, done.stdout)
    r = report(t, f"picket://127.0.0.1:{port}", "-w", "1", code=125)
    equal((r["reached"], r["measured"]), (False, None))
    contains(r["error"], f"127.0.0.1:{port}")


@test
def wrong_words__cost_one_line(t):
    for args in [["foo://x"], ["picket:x"], ["picket://"], ["local"],
                 ["--require", "all"], ["local:x", "local:y"], ["--on", ""]]:
        done = t.picket("doctor", *args)
        equal((done.returncode, done.stdout), (125, ""))
        one_line(done.stderr)


@test
def unusable_place__is_told_beside_what_is_declared(t):
    t.write("file", "not a directory")
    r = report(t, f"local:{t.dir}/file", code=125)
    equal((r["reached"], r["declared"]["driver"]), (False, "local"))
    contains(r["error"], "file")


# ---- Redis, if it is built in ----

@contextlib.contextmanager
def redis(t, *flags):
    """A server of our own, and its port."""
    port = free_ports(1)[0]
    folder = t.path(f"redis-{port}")
    os.mkdir(folder)
    p = subprocess.Popen(["redis-server", "--port", str(port), "--bind", "127.0.0.1",
                          "--dir", folder, "--save", "", *flags],
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ping():
        return ask(port, "PING")[0] in ("PONG", "NOAUTH Authentication required.")
    try:
        wait_until(ping, what="redis-server")
        yield port
    finally:
        p.kill()
        p.wait()


def ask(port, *words):
    done = subprocess.run(["redis-cli", "-p", str(port), *words], text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return done.stdout.splitlines() or [""]


def unsafe_about(r, *words):
    """An unsafe finding that has one of the words."""
    return any(f["grade"] == "unsafe" and any(w in f["code"] + f["text"] for w in words)
               for f in r["findings"])


@test
def redis__is_looked_at(t):
    if not built_in(t, "redis"):
        skip("this program has no redis driver")
    safe = ["--appendonly", "yes", "--appendfsync", "always"]
    with redis(t, *safe) as port:
        url = f"redis://127.0.0.1:{port}"
        r = report(t, url)
        equal(codes(r, "unsafe"), [])
        contains(codes(report(t, url, "--require", "correctness", code=1), "unsafe"),
                 "only-efficiency")

        ask(port, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        ask(port, "CONFIG", "SET", "maxmemory", "100mb")
        check(unsafe_about(report(t, url, code=1), "evict", "maxmemory"), "eviction")
        ask(port, "CONFIG", "SET", "maxmemory-policy", "noeviction")

        ask(port, "CONFIG", "SET", "appendonly", "no")
        check(unsafe_about(report(t, url, code=1), "aof", "appendonly"), "no AOF")
        ask(port, "CONFIG", "SET", "appendonly", "yes")

        with redis(t, *safe, "--replicaof", f"127.0.0.1 {port}"):
            wait_until(lambda: any("connected_slaves:1" in line
                                   for line in ask(port, "INFO", "replication")),
                       what="a replica")
            check(unsafe_about(report(t, url, code=1), "replica"), "a replica")


@test
def password__is_never_shown(t):
    if not built_in(t, "redis"):
        skip("this program has no redis driver")
    with redis(t, "--requirepass", "secret77") as port:
        url = f"redis://:wrong88@127.0.0.1:{port}"
        for form in ["text", "json"]:
            done = t.picket("doctor", "-o", form, url)
            equal(done.returncode, 122)
            check("wrong88" not in done.stdout + done.stderr, done.stdout + done.stderr)
            contains(done.stdout, f"redis://127.0.0.1:{port}")
            one_line(done.stderr)
        check("secret77" not in json.dumps(
            report(t, f"redis://:secret77@127.0.0.1:{port}", code=1)), "the password")


@test
def password__is_hidden_wherever_libpq_takes_one(t):
    if not built_in(t, "postgres"):
        skip("this program has no postgres driver")
    where = "127.0.0.1:1/db"
    for url, shown in (
            (f"postgres://u:sec?ret77@{where}", f"postgres://u@{where}"),
            (f"postgres://u:sec?ret77@{where}?connect_timeout=2",
             f"postgres://u@{where}?connect_timeout=2"),
            (f"postgres://{where}?user=u&password=sec%20ret77",
             f"postgres://{where}?user=u&password="),
            (f"postgres://{where}?password=sec%20ret77&user=u&sslpassword=sec%20ret77",
             f"postgres://{where}?password=&user=u&sslpassword=")):
        done = t.picket("doctor", "-w", "0", "-o", "json", url)
        check("ret77" not in done.stdout + done.stderr, done.stdout + done.stderr)
        equal(json.loads(done.stdout)["url"], shown)


main(on_disk=True)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Locks in a real Consul, when CONSUL_BIN names one: what is Consul's own about them.
What every store must do is in test/conform."""
import base64
import contextlib
import http.server
import json
import os
import socket
import subprocess
import threading
import time

from cluster import Loopback, free_ports
from databases import Cutter
from lan import Lan
from stores import Absent, ConsulServer
from tap import check, contains, equal, main, skip, test, wait_until

CALL = os.path.abspath(os.environ.get("LOCK_CALL", "build/test/lock_call"))
ROOT = "b1gs33cr3t-0000-4000-8000-000000000000"


class Placed(ConsulServer):
    """On a host of its own."""

    place = Loopback

    def command(self):
        return [*self.place.enter, *super().command()]


class Consul:
    """One server, and its HTTP API."""

    def __init__(self, t, token=None, host=Loopback):
        try:
            self.server = Placed(t.path("consul"), token)
        except Absent as e:
            skip(e)
        self.server.place = host
        self.server.host = host.address
        self.program = self.server.program
        self.port = self.server.port
        self.url = f"consul://{host.address}:{self.port}"

    def __enter__(self):
        self.server.start()
        self.server.wait()
        return self

    def __exit__(self, *_):
        self.server.kill()

    def ask(self, *words):
        """The answer, or its status if it is none."""
        status, text = self.server.ask(*words)
        return json.loads(text or "null") if status == 200 else status

    def keys(self, prefix="picket/"):
        found = self.ask("GET", f"/kv/{prefix}?keys")
        return [] if found == 404 else found

    def holder(self, name):
        found = self.ask("GET", f"/kv/picket/{name}/.lock")
        return "" if found == 404 else found[0].get("Session", "")


class Client:
    """One client of the library, asked line by line."""

    def __init__(self, url, ttl_ms=180000, host=Loopback):
        self.process = subprocess.Popen([*host.enter, CALL, url, str(ttl_ms)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def say(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def hear(self):
        return self.process.stdout.readline().split(maxsplit=1)

    def ask(self, *words):
        self.say(*words)
        return self.hear()

    def close(self):
        self.process.stdin.close()
        equal(self.process.wait(30), 0)


class Late:
    """Stands between a client and a server, and keeps the first request that has `words`
    to itself until it is told to let it through."""

    def __init__(self, port, words):
        self._to = ("127.0.0.1", port)
        self._words = words
        self.kept = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(self._to)
            for source, target, asks in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(source, target, asks),
                                 daemon=True).start()

    def _pump(self, source, target, asks):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if asks and self.kept is None and self._words in data:
                    self.kept = data
                else:
                    target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)

    def let_through(self):
        """The status that the request gets now."""
        with socket.create_connection(self._to, 5) as s:
            s.sendall(self.kept)
            return int(s.recv(65536).split()[1])


# ---- what stands in the store ----

@test
def keys__are_gone_when_nobody_holds(t):
    with Consul(t) as c:
        a = Client(c.url)
        status, token = a.ask("take", "a/b%c", 0)
        equal(status, "OK")
        key = c.ask("GET", "/kv/picket/a%252Fb%2525c/.lock")[0]
        equal((key["ModifyIndex"], key["Flags"]), (int(token), 3304740253564472344))
        contains(base64.b64decode(key["Value"]).decode(), "\nmode=exclusive\n")
        equal(len(c.keys("picket/.leases/")), 1)
        equal(a.ask("drop", "a/b%c")[0], "OK")
        equal(len(c.keys()), 1)
        equal(a.ask("take", "kept", 0)[0], "OK")
        a.close()  # which ends the lease and all on it
        equal((c.keys(), c.ask("GET", "/session/list")), ([], []))


@test
def sessions__depend_on_nothing_but_their_ttl(t):
    with Consul(t) as c:
        for ttl_ms, wanted in [(500, "10s"), (25500, "25.5s")]:
            a = Client(c.url, ttl_ms)
            equal(a.ask("take", "db", 0)[0], "OK")
            session = c.ask("GET", "/session/list")[0]
            equal((session["NodeChecks"], session["LockDelay"]), ([], 0))
            equal(session["TTL"].replace("25500ms", "25.5s").replace("10000ms", "10s"),
                  wanted)
            a.close()


# ---- beside Consul's own clients ----

@test
def consul_lock__and_we_exclude_each_other(t):
    with Consul(t) as c:
        flag = t.path("running")
        theirs = subprocess.Popen(
            [c.program, "lock", f"-http-addr=127.0.0.1:{c.port}", "-monitor-retry=0",
             "picket/db", f"touch {flag}; while test -e {flag}; do sleep 0.05; done"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: os.path.exists(flag), 20, "consul lock")
        a = Client(c.url)
        status, why = a.ask("take", "db", 0)
        equal(status, "BUSY")
        contains(why, "db is held")
        a.say("take", "db", 30000)
        os.unlink(flag)
        equal(a.hear()[0], "OK")
        theirs.wait()
        again = subprocess.run(
            [c.program, "lock", f"-http-addr=127.0.0.1:{c.port}", "-n=1", "-timeout=2s",
             "picket/db", f"touch {flag}"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, check=False)
        check(again.returncode != 0 and not os.path.exists(flag), "both held it")
        a.close()


@test
def lock_delay__of_others_is_waited_for(t):
    with Consul(t) as c:
        session = c.ask("PUT", "/session/create", b'{"LockDelay": "2s"}')["ID"]
        equal(c.ask("PUT", f"/kv/picket/db/.lock?acquire={session}", b"theirs"), True)
        a = Client(c.url)
        equal(a.ask("take", "db", 0)[0], "BUSY")
        began = time.monotonic()
        c.ask("PUT", f"/session/destroy/{session}")
        equal(a.ask("take", "db", 0)[0], "BUSY")
        equal(a.ask("take", "db", 30000)[0], "OK")
        check(time.monotonic() - began >= 2, "the lock-delay was not kept")
        a.close()


@test
def hold__that_others_take_away_is_told(t):
    with Consul(t) as c:
        a = Client(c.url)
        equal(a.ask("take", "db", 0)[0], "OK")
        c.ask("DELETE", "/kv/picket/db/.lock")
        wait_until(lambda: a.ask("state", "db")[0] == "lost", 20, "the loss")
        equal(a.ask("take", "other", 0)[0], "OK")  # the lease is as it was
        a.close()


# ---- answers that don't come ----

@test
def grant__whose_answer_is_lost_is_found_again(t):
    with Consul(t) as c:
        proxy = Cutter(c.port, b'"Verb":"lock","Key":"picket/db/.lock"')
        a = Client(f"consul://127.0.0.1:{proxy.port}")
        status, token = a.ask("take", "db", 20000)
        equal((status, proxy.cuts), ("OK", 1))
        equal(c.ask("GET", "/kv/picket/db/.lock")[0]["ModifyIndex"], int(token))
        equal(a.ask("drop", "db")[0], "OK")
        equal(len(c.keys()), 1)
        a.close()
        equal(c.keys(), [])


@test
def release__whose_answer_is_lost_is_done_once(t):
    with Consul(t) as c:
        proxy = Cutter(c.port, b'"Verb":"delete-cas","Key":"picket/db/.lock"')
        a = Client(f"consul://127.0.0.1:{proxy.port}")
        equal(a.ask("take", "db", 0)[0], "OK")
        equal((a.ask("drop", "db")[0], proxy.cuts), ("OK", 1))
        equal(c.holder("db"), "")
        a.close()


@test
def lease__whose_answer_is_lost_is_one(t):
    with Consul(t) as c:
        for words in [b"/v1/session/create", b'"Verb":"lock","Key":"picket/.leases/']:
            proxy = Cutter(c.port, words)
            a = Client(f"consul://127.0.0.1:{proxy.port}")
            equal((a.ask("take", "db", 0)[0], proxy.cuts), ("OK", 1))
            equal(len(c.keys("picket/.leases/")), 1)
            a.close()
            equal(c.keys(), [])


def late_grant(t, wait_ms):
    """A request that is stuck on its way, while its client goes on: asks again and gets
    the lock, or gives up. When it comes through at last, the lock is free and the lease
    alive, but nobody wants it any more."""
    with Consul(t) as c:
        proxy = Late(c.port, b'"Verb":"lock","Key":"picket/db/.lock"')
        a = Client(f"consul://127.0.0.1:{proxy.port}", 9000)
        equal(a.ask("take", "other", 0)[0], "OK")
        equal(a.ask("take", "db", wait_ms)[0], "OK")
        check(proxy.kept is not None, "nothing was kept")
        equal(a.ask("drop", "db")[0], "OK")
        equal(c.holder("db"), "")
        equal(proxy.let_through(), 409)
        equal(c.holder("db"), "")
        equal(a.ask("state", "other")[0], "held")
        a.close()


@test
def try__whose_request_comes_late_has_no_effect(t):
    late_grant(t, 0)


@test
def wait__whose_request_comes_late_has_no_effect(t):
    late_grant(t, 30000)


@test
def stopped_server__does_not_hang_a_call(t):
    with Consul(t) as c:
        equal(t.picket("ls", "--on", c.url).returncode, 0)
        c.server.stop()
        began = time.monotonic()
        done = t.picket("acquire", "--on", c.url, "-w", "2", "--ttl", "5s", "db")
        took = time.monotonic() - began
        c.server.cont()
        equal(done.returncode, 125)
        contains(done.stderr, c.url)
        check(took < 30, f"{took} s")


# ---- cables that are cut ----

@test
def holder__that_is_cut_off_knows_before_others_hold(t):
    with Lan(2) as lan:
        there, away = lan.hosts
        with Consul(t, host=there) as c:
            a, b = Client(c.url, 2000, away), Client(c.url, 2000, there)
            token = int(a.ask("take", "db", 0)[1])
            b.say("take", "db", 60000)
            lan.part([there], [away])
            wait_until(lambda: a.ask("state", "db")[0] == "lost", 10, "the loss")
            check(c.holder("db") != "", "the store gave it away first")
            status, later = b.hear()
            equal(status, "OK")
            check(int(later) > token, f"{later} after {token}")
            lan.heal()
            equal(a.ask("take", "other", 30000)[0], "OK")  # with a new lease
            a.close()
            b.close()


@test
def waiter__whose_line_is_dead_without_a_word_gets_its_turn(t):
    with Lan(2) as lan:
        there, away = lan.hosts
        with Consul(t, host=there) as c:
            a, b = Client(c.url, host=there), Client(c.url, host=away)
            equal(a.ask("take", "db", 0)[0], "OK")
            b.say("take", "db", 100000)
            wait_until(lambda: len(c.keys("picket/.leases/")) == 2, 10, "the waiter")
            lan.part([there], [away])
            equal(a.ask("drop", "db")[0], "OK")
            lan.heal()
            equal(b.hear()[0], "OK")
            a.close()
            b.close()


# ---- who may not, and what is no Consul ----

@test
def token__is_needed_and_never_shown(t):
    with Consul(t, ROOT) as c:
        there = f"127.0.0.1:{c.port}"
        for url, code in [(f"consul://{there}", 122),
                          (f"consul://:nonsense77@{there}", 122),
                          (f"consul://:{ROOT}@{there}", 0)]:
            done = t.picket("acquire", "-q", "--on", url, "-n", "db")
            equal(done.returncode, code)
            said = done.stdout + done.stderr
            check("nonsense77" not in said and ROOT not in said, said)
            if code:
                equal(len(done.stderr.splitlines()), 1)
                contains(done.stderr, f"consul://{there}")
                contains(done.stderr, "key:write")
        done = t.picket("doctor", "-o", "json", f"consul://:{ROOT}@{there}")
        equal(done.returncode, 0)
        check(ROOT not in done.stdout, done.stdout)
        contains([f["code"] for f in json.loads(done.stdout)["findings"]], "auth")


@test
def doctor__looks_at_servers_and_access(t):
    with Consul(t) as c:
        r = json.loads(t.picket("doctor", "-o", "json", c.url).stdout)
        found = {f["code"]: f["grade"] for f in r["findings"]}
        equal({k: v for k, v in found.items() if not k.startswith("ttl")},
              {"version": "fine", "no-auth": "note", "single-node": "note",
               "least-ttl": "note"})
        equal(r["declared"]["driver"], "consul")


class Page(http.server.BaseHTTPRequestHandler):
    """A web server that has a page for everything."""

    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"<html>hello</html>")

    def log_message(self, *_):  # pylint: disable=arguments-differ
        pass


def missing(t):
    drivers = json.loads(t.picket("version", "-o", "json").stdout)["drivers"]
    return not any(d["driver"] == "consul" for d in drivers)


@test
def wrong_servers__are_told_from_none(t):
    if missing(t):
        skip("this program has no consul driver")
    web = http.server.HTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=web.serve_forever, daemon=True).start()
    talker = socket.create_server(("127.0.0.1", 0))

    def talk():
        while True:
            s = talker.accept()[0]
            s.recv(1000)
            s.sendall(b"-ERR unknown command\r\n")
            s.close()
    threading.Thread(target=talk, daemon=True).start()
    for port, word in [(web.server_port, "is not a Consul"),
                       (talker.getsockname()[1], "is not a Consul"),
                       (free_ports(1)[0], "connect")]:
        done = t.picket("acquire", "-q", "-n", "--ttl", "1s", "--on",
                        f"consul://127.0.0.1:{port}", "db")
        equal(done.returncode, 125)
        equal(len(done.stderr.splitlines()), 1)
        contains(done.stderr, f"consul://127.0.0.1:{port}")
        contains(done.stderr, word)


@test
def urls__that_are_wrong_cost_one_line(t):
    if missing(t):
        skip("this program has no consul driver")
    for url in ["consul:", "consul:x", "consul://", "consul:///p", "consul://a,b",
                "consul://h?x=y", "consul://h:99999", "consul://user:secret77@h",
                "consul://:secret77@", "consul://h/" + 300 * "x"]:
        done = t.picket("ls", "--on", url)
        equal((done.returncode, done.stdout), (125, ""))
        equal(len(done.stderr.splitlines()), 1)
        contains(done.stderr, "consul://[:TOKEN@]HOST[:PORT][/PREFIX]")
        check("secret77" not in done.stderr, done.stderr)


main()

# SPDX-License-Identifier: MIT
"""`picket gate`: who may pass, who stands, and what becomes of zombies."""
import itertools
import json
import os
import signal
import socket
import struct
import threading
import time

from cluster import Cluster
from gating import Gate, Service
from holding import freeze
from tap import check, contains, equal, main, test, wait_until


def fly(g, s, token, name, path="/r/hold"):
    """A request that is in flight at the service until s.release(name)."""
    call = g.later("PUT", f"{path}?{name}", token=token, body=b"x")
    wait_until(lambda: s.seen(path=f"{path}?{name}"), what="the request in flight")
    return call


def waiting(g, n):
    wait_until(lambda: g.metric("picket_gate_waiting") == n, what=f"{n} that wait")


# ---- the fence ----

@test
def fence__refuses_lower_tokens_and_lets_equal_and_higher_pass(t):
    with Service() as s, Gate(t, s) as g:
        equal(g.call("PUT", "/a/echo", token=5, body=b"one").body, b"one")
        low = g.call("PUT", "/a/echo", token=4, body=b"two")
        equal((low.status, low.error), (409, "stale"))
        equal([low.json[k] for k in ("resource", "token", "fence")], ["a", 4, 5])
        equal(g.call("PUT", "/a/echo", token=5).status, 200)
        equal(g.call("PUT", "/a/echo", token=6).status, 200)
        equal(g.call("GET", "/a/echo", token=5).status, 409)  # reads are fenced too
        equal(g.call("PUT", "/b/echo", token=1).status, 200)  # another resource
        equal([c["token"] for c in s.calls], [5, 5, 6, 1])
        equal(g.outcome("stale"), 2)
        for name, value in (
                ("picket_gate_standing", 1), ("picket_gate_fence_raises_total", 3),
                ("picket_gate_resources", 2), ("picket_gate_claims_total", 3),
                ("picket_gate_claims_failed_total", 0)):
            equal((name, g.metric(name)), (name, value))
        equal(t.picket("fence", "check", "gate/a", "--token", 6).returncode, 0)
        contains(g.look("/fences").body.decode(), '"resource":"a","fence":6')
        equal([g.look(p).status for p in ("/healthz", "/readyz", "/nothing")],
              [200, 200, 404])


@test
def tokens__that_are_none_are_refused_and_change_nothing(t):
    bad = ["0", "-1", "+5", "1.5", "abc", "", "9007199254740992", "99999999999999999999",
           "0x10", "05", "5 6"]
    with Service() as s, Gate(t, s) as g:
        for token in bad:
            a = g.call("PUT", "/a/echo", token=token)
            equal((token, a.status, a.error), (token, 400, "bad-token"))
        twice = (b"GET /a/echo HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 5\r\n"
                 b"X-Picket-Token: 5\r\nConnection: close\r\n\r\n")
        contains(g.raw(twice).decode(), "400 Bad Request")
        equal(s.calls, [])
        equal(g.call("PUT", "/a/echo", token=1).status, 200)


@test
def fence__survives_kill_9_and_a_clean_end(t):
    with Service() as s:
        with Gate(t, s, "--ttl", "1s") as g:
            equal(g.call("PUT", "/a/echo", token=7).status, 200)
        with Gate(t, s, "--ttl", "1s", "--standby") as g:  # the first was killed
            wait_until(lambda: g.look("/readyz").status == 200, what="a free lock")
            equal(g.call("PUT", "/a/echo", token=6).status, 409)
            equal(g.call("PUT", "/a/echo", token=8).status, 200)
            equal(g.terminate(), 0)
        with Gate(t, s) as g:
            equal(g.call("PUT", "/a/echo", token=7).json["fence"], 8)


@test
def resource__may_stand_in_a_header(t):
    with Service() as s, Gate(t, s, source="header") as g:
        put = lambda token, name: g.call("PUT", "/x/echo", token=token,
                                         X_Picket_Resource=name).status
        equal([put(5, "one"), put(4, "one"), put(4, "two")], [200, 409, 200])
        a = g.call("PUT", "/x/echo", token=5)
        equal((a.status, a.error), (400, "bad-resource"))
        equal(put(9, "once/x"), 400)


# ---- in flight ----

@test
def higher__waits_for_lower_in_flight(t):
    with Service() as s, Gate(t, s) as g:
        old = fly(g, s, 1, "old")
        new = [g.later("PUT", "/r/echo", token=2, body=b"n") for _ in range(2)]
        waiting(g, 2)
        equal(g.call("PUT", "/r/echo", token=1).status, 409)  # raised already
        equal(s.seen(token=2), [])
        s.release("old")
        equal(old.result().status, 200)
        equal([n.result().status for n in new], [200, 200])
        first = min(c["began"] for c in s.seen(token=2))
        check(first >= s.seen(token=1)[0]["began"], "the newer began first")
        equal(g.metric("picket_gate_in_flight"), 0)


@test
def waiter__that_is_overtaken_is_refused(t):
    with Service() as s, Gate(t, s) as g:
        old = fly(g, s, 1, "old")
        two = g.later("PUT", "/r/echo", token=2)
        waiting(g, 1)
        three = g.later("PUT", "/r/echo", token=3)
        refused = two.result()
        equal((refused.status, refused.json["fence"]), (409, 3))
        s.release("old")
        equal([old.result().status, three.result().status], [200, 200])


@test
def drain__gives_up_and_leaves_the_fence_raised(t):
    with Service() as s, Gate(t, s, "--drain", "200ms") as g:
        old = fly(g, s, 1, "old")
        late = g.call("PUT", "/r/echo", token=2)
        equal((late.status, late.error), (503, "older-in-flight"))
        check("retry-after" in late.headers, "no Retry-After")
        equal(g.call("PUT", "/r/echo", token=1).status, 409)
        s.release("old")
        equal(old.result().status, 200)
        equal(g.call("PUT", "/r/echo", token=2).status, 200)


@test
def cut_off__resets_the_lower_and_admits_the_higher(t):
    with Service() as s, Gate(t, s, "--cut-off", "200ms") as g:
        old = fly(g, s, 1, "old")
        equal(g.call("PUT", "/r/echo", token=2).status, 200)
        cut = old.result()
        equal((cut.status, cut.error, cut.json["fence"]), (409, "cut-off", 2))
        equal(g.metric("picket_gate_cut_offs_total"), 1)


RESET = struct.pack("ii", 1, 0)  # for SO_LINGER: closing breaks off


def goes_away(t, length, reset):
    """A client sends two bytes of its body and goes when the service has them: however
    it does that, its request is in flight until the service is done with it."""
    with Service() as s, Gate(t, s) as g:
        with socket.create_connection(("127.0.0.1", g.port)) as c:
            c.sendall(b"PUT /r/hold?gone HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 1\r\n"
                      b"Content-Length: %d\r\n\r\nxx" % length)
            wait_until(lambda: s.seen(token=1), what="the request in flight")
            if reset:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        new = g.later("PUT", "/r/echo", token=2)
        waiting(g, 1)
        equal((s.seen(token=2), g.metric("picket_gate_in_flight")), ([], 1))
        s.release("gone")
        equal(new.result().status, 200)
        equal("error" in s.seen(token=1)[0], length > 2)


@test
def client__that_ends_its_connection_leaves_its_request_in_flight(t):
    goes_away(t, length=2, reset=False)


@test
def client__that_breaks_off_leaves_its_request_in_flight(t):
    goes_away(t, length=2, reset=True)


@test
def client__that_ends_in_the_middle_of_a_body_leaves_it_in_flight(t):
    goes_away(t, length=3, reset=False)


@test
def client__that_breaks_off_in_the_middle_of_a_body_leaves_it_in_flight(t):
    goes_away(t, length=3, reset=True)


@test
def silence__is_504_and_stays_in_flight(t):
    with Service() as s, Gate(t, s, "--upstream-timeout", "300ms") as g:
        late = g.call("PUT", "/r/hold?old", token=1)
        equal((late.status, late.error), (504, "upstream-silent"))
        new = g.later("PUT", "/r/echo", token=2)
        waiting(g, 1)
        s.release("old")
        equal(new.result().status, 200)
        equal(g.metric("picket_gate_in_flight"), 0)


# ---- policies ----

@test
def missing__is_refused_passed_or_counted(t):
    with Service() as s:
        with Gate(t, s) as g:
            a = g.call("PUT", "/a/echo")
            equal((a.status, a.error), (428, "token-missing"))
            equal(s.calls, [])
        with Gate(t, s, "--name", "g2", "--missing", "pass") as g:
            a = g.call("PUT", "/a/echo")
            equal((a.status, a.headers.get("picket-would-refuse")), (200, None))
            equal(g.call("GET", "/").status, 200)
        with Gate(t, s, "--name", "g3", "--missing", "shadow") as g:
            a = g.call("PUT", "/a/echo")
            equal((a.status, a.headers["picket-would-refuse"]), (200, "missing"))
            equal(g.metric('picket_gate_shadow_total{would="missing"}'), 1)
            equal(g.call("PUT", "/a/echo", token=5).status, 200)
            equal(g.call("PUT", "/a/echo", token=4).status, 409)


@test
def shadow__refuses_nothing_and_counts_everything(t):
    with Service() as s, Gate(t, s, "--shadow") as g:
        would = lambda a: (a.status, a.headers.get("picket-would-refuse"))
        equal(would(g.call("PUT", "/r/echo", token=5)), (200, None))
        equal(would(g.call("PUT", "/r/echo", token=4)), (200, "stale"))
        equal(would(g.call("PUT", "/r/echo", token="x")), (200, "bad-token"))
        equal(would(g.call("PUT", "/r/echo")), (200, "missing"))
        old = fly(g, s, 5, "old")
        equal(would(g.call("PUT", "/r/echo", token=6)), (200, None))  # does not wait
        s.release("old")
        equal(old.result().status, 200)
        for name in ("stale", "bad-token", "missing", "delayed"):
            equal(g.metric(f'picket_gate_shadow_total{{would="{name}"}}'), 1)
        equal(g.outcome("stale"), 0)
        contains(g.said(), "event=would-refuse why=stale resource=r token=4 fence=5")
        for _ in range(100):
            g.call("PUT", "/r/echo", token=4)
        check(g.said().count("event=would-refuse") < 100, "the log is not sampled")


def shadow_without_a_store(t, drain):
    with Cluster(t.program, t.path("c"), 1) as c, Service() as s, \
            Gate(t, s, "--shared", "--shadow", "--on", c.url, "--drain", drain) as g:
        equal(g.call("PUT", "/r/echo", token=5).status, 200)
        c.nodes[0].kill()
        equal(g.call("PUT", "/r/echo", token=6).status, 200)
        check(g.metric('picket_gate_shadow_total{would="store"}') > 0, "not counted")
        equal((g.outcome("store"), len(s.seen(token=6))), (0, 1))


@test
def shadow__lets_through_when_the_store_does_not_answer_in_time(t):
    shadow_without_a_store(t, "300ms")


@test
def shadow__lets_through_when_the_store_is_known_to_be_gone(t):
    shadow_without_a_store(t, "1h")


# ---- standing ----

@test
def second__gate_of_a_name_says_who_stands(t):
    with Service() as s, Gate(t, s) as g:
        second = t.picket(*Gate(t, s).words)
        equal(second.returncode, 124)
        contains(second.stderr, str(g.process.pid))
        contains(second.stderr, "--standby")


@test
def standby__takes_over_when_the_first_ends_or_is_paused(t):
    flags = ("--ttl", "1s", "--standby")
    with Service() as s, Gate(t, s, "--ttl", "1s") as first, Gate(t, s, *flags) as second:
        equal(first.call("PUT", "/a/echo", token=5).status, 200)
        idle = second.call("PUT", "/a/echo", token=6)
        equal((idle.status, idle.error), (503, "not-standing"))
        equal(second.look("/readyz").status, 503)
        equal(second.metric("picket_gate_standing"), 0)
        freeze(first.process.pid)
        wait_until(lambda: second.look("/readyz").status == 200, what="second stands")
        equal(second.call("PUT", "/a/echo", token=4).json["fence"], 5)
        equal(second.call("PUT", "/a/echo", token=6).status, 200)
        os.kill(first.process.pid, signal.SIGCONT)
        equal(first.call("PUT", "/a/echo", token=7).status, 503)  # the zombie gate
        equal(second.terminate(), 0)
        wait_until(lambda: first.look("/readyz").status == 200, what="first stands again")
        equal(first.call("PUT", "/a/echo", token=5).json["fence"], 6)  # learned anew


@test
def break__of_its_lock_stops_it_until_it_has_it_again(t):
    with Service() as s, Gate(t, s) as g:
        upload = socket.create_connection(("127.0.0.1", g.port))
        upload.sendall(b"PUT /a/sink HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 5\r\n"
                       b"Content-Length: 100\r\n\r\nhalf of it")
        wait_until(lambda: s.seen(token=5), what="the upload")
        equal(t.picket("break", "gate", "--reason", "test").returncode, 0)
        contains(upload.recv(4096).decode(), "not-standing")  # it must not go on
        upload.close()
        wait_until(lambda: g.said().count("event=standing") == 2, what="standing again")
        contains(g.said(), "event=lost lock=gate")
        equal(g.call("PUT", "/a/echo", token=5).status, 200)


@test
def break__of_its_lock_refuses_those_that_wait(t):
    """All of them, while what they wait for is being stopped."""
    with Service() as s, Gate(t, s) as g:
        upload = socket.create_connection(("127.0.0.1", g.port), 20)
        upload.sendall(b"PUT /r/sink HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 5\r\n"
                       b"Content-Length: 100\r\n\r\nhalf of it")
        wait_until(lambda: s.seen(token=5), what="the upload")
        newer = [g.later("PUT", "/r/echo", token=6) for _ in range(3)]
        waiting(g, 3)
        equal(t.picket("break", "gate", "--reason", "test").returncode, 0)
        contains(upload.recv(4096).decode(), "not-standing")
        equal([n.result().error for n in newer], ["not-standing"] * 3)
        equal(s.seen(token=6), [])
        upload.close()
        wait_until(lambda: g.said().count("event=standing") == 2, what="standing again")
        equal(g.call("PUT", "/r/echo", token=6).status, 200)


@test
def sigterm__sent_twice_forwards_nobody_that_waits(t):
    """Who is told to try again elsewhere must not have been served here."""
    with Service() as s, Gate(t, s) as g:
        old = fly(g, s, 1, "old")
        equal(g.call("PUT", "/other/echo", token=1).status, 200)  # an idle connection
        new = g.later("PUT", "/r/echo", token=2, body=b"n")
        waiting(g, 1)
        g.process.terminate()
        wait_until(lambda: "event=draining" in g.said(), what="draining")
        g.process.terminate()
        equal([old.result().status, new.result().status], [503, 503])
        equal(s.seen(token=2), [])
        wait_until(lambda: g.process.poll() is not None, what="the end of the gate")
        equal(g.process.returncode, 0)
        contains(g.said(), "drained=no")


@test
def sigterm__lets_what_is_in_flight_end(t):
    with Service() as s, Gate(t, s) as g:
        idle = g.connect()
        idle.connect()
        old = fly(g, s, 1, "old")
        g.process.terminate()
        wait_until(lambda: "event=draining" in g.said(), what="draining")
        check(g.process.poll() is None, "it did not wait")
        equal(g.look("/readyz").status, 503)  # no more requests, please
        s.release("old")
        equal(old.result().status, 200)
        equal(g.process.wait(15), 0)
        contains(g.said(), "drained=yes")
        equal(t.picket("show", "-q", "gate").returncode, 1)  # free


# ---- several gates ----

def flights(t):
    """The locks of what is in flight, and how many wait for each."""
    rows = json.loads(t.picket("ls", "-o", "json", "gate/flight/").stdout)
    return {row["lock"]: row["waiters"] for row in rows}


@test
def shared__gates_share_their_fences_through_a_cluster(t):
    with Cluster(t.program, t.path("c"), 3) as c, Service() as s:
        flags = ("--shared", "--on", c.url)
        with Gate(t, s, *flags) as one, Gate(t, s, *flags) as two:
            equal(one.call("PUT", "/a/echo", token=5).status, 200)
            equal(two.call("PUT", "/a/echo", token=4).status, 409)
            equal(two.call("PUT", "/a/echo", token=6).status, 200)
            equal(one.call("PUT", "/a/echo", token=5).json["fence"], 6)
            c.leader().kill()
            equal(one.call("PUT", "/a/echo", token=7).status, 200)
            equal(two.call("PUT", "/a/echo", token=6).status, 409)
            for node in c.nodes:
                node.kill()
            down = one.call("PUT", "/a/echo", token=8)
            equal((down.status, down.error), (503, "store"))
            equal(s.seen(token=8), [])
            check(one.metric("picket_gate_claims_failed_total") >= 1, "not counted")


@test
def shared__a_higher_token_waits_for_lower_ones_of_another_gate(t):
    with Service() as s, Gate(t, s, "--shared") as one, Gate(t, s, "--shared") as two:
        old = fly(one, s, 1, "old")
        new = two.later("PUT", "/r/echo", token=2)
        wait_until(lambda: flights(t) == {"gate/flight/r/1": 1, "gate/flight/r/2": 0},
                   what="the wait for the lower one")
        equal(one.call("PUT", "/r/echo", token=1).status, 409)
        equal(two.call("PUT", "/other/echo", token=1).status, 200)
        equal(s.seen(token=2), [])
        s.release("old")
        equal([old.result().status, new.result().status], [200, 200])
        wait_until(lambda: flights(t) == {}, what="the end of all locks")


@test
def shared__a_wait_for_another_gate_is_bounded(t):
    flags = ("--shared", "--drain", "400ms")
    with Service() as s, Gate(t, s, *flags) as one, Gate(t, s, *flags) as two:
        old = fly(one, s, 1, "old")
        late = two.call("PUT", "/r/echo", token=2)
        equal((late.status, late.error), (503, "older-in-flight"))
        equal(one.call("PUT", "/r/echo", token=1).json["fence"], 2)
        s.release("old")
        equal(old.result().status, 200)
        wait_until(lambda: two.call("PUT", "/r/echo", token=2).status == 200,
                   what="the way to be free")


@test
def shared__a_gate_that_dies_is_not_waited_for_longer_than_its_lease(t):
    flags = ("--shared", "--ttl", "1s")
    with Service() as s, Gate(t, s, *flags) as one, Gate(t, s, *flags) as two:
        fly(one, s, 1, "old")
        one.process.kill()
        equal(two.call("PUT", "/r/echo", token=2).status, 200)
        s.release("old")


# ---- zombies ----

HOLDERS, WRITES = 24, 10


def storm(write):
    """Holders one after another, each of which goes on writing as a zombie. Returns all
    writes: token, status, when it was sent and answered."""
    writes, lock = [], threading.Lock()
    starts = [threading.Event() for _ in range(HOLDERS + 1)]
    starts[0].set()

    def hold(token):
        starts[token - 1].wait(20)
        for n in range(WRITES):
            sent = time.monotonic()
            status = write(token)
            with lock:
                writes.append((token, status, sent, time.monotonic()))
            if n == WRITES // 3:
                starts[token].set()  # the lock has moved on; this one does not know

    threads = [threading.Thread(target=hold, args=(k,)) for k in range(1, HOLDERS + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return writes


def post(port, token):
    with socket.create_connection(("127.0.0.1", port), 20) as c:
        c.sendall(b"POST /r/count HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                  b"X-Picket-Token: %d\r\nContent-Length: 0\r\n\r\n" % token)
        got = b""
        while piece := c.recv(4096):
            got += piece
    return int(got.split(b" ", 2)[1])


class Storm:
    """What came of a storm through these ports, in turn."""

    def __init__(self, t, s, what, *ports):
        t.write("counter", "0")
        s.calls.clear()
        turn = itertools.cycle(ports)
        writes = storm(lambda token: post(next(turn), token))
        done = [w for w in writes if w[1] == 200]
        self.all = len(writes)
        self.refused = sum(w[1] == 409 for w in writes)
        self.lost = len(done) - int(t.read("counter"))
        # In the order in which the service began them.
        self.stale = highest = 0
        for call in sorted(s.seen(method="POST"), key=lambda c: c["began"]):
            self.stale += call["token"] < highest
            highest = max(highest, call["token"])
        # Sent after a higher one had been answered.
        self.late = sum(any(b[0] > a[0] and b[3] < a[2] for b in done) for a in done)
        print(f"# {what}: {self.all} writes, {self.refused} refused, {self.stale} stale "
              f"accepted ({self.late} of them sent after a higher one's answer), "
              f"{self.lost} updates lost")


@test
def zombies__corrupt_without_the_gate_and_never_with_it(t):
    with Service(t.path("counter")) as s:
        straight = Storm(t, s, "straight", s.server_port)
        check(straight.stale > 0 and straight.lost > 0, "the control shows no harm")
        with Gate(t, s) as g:
            gate = Storm(t, s, "gate", g.port)
            equal((gate.stale, gate.late, gate.lost), (0, 0, 0))
            check(gate.refused > HOLDERS, "hardly any refused")
            equal(g.outcome("forwarded") + g.outcome("stale"), HOLDERS * WRITES)


@test
def zombies__pass_no_shared_gate_either(t):
    with Cluster(t.program, t.path("c"), 3) as c, Service(t.path("counter")) as s:
        flags = ("--shared", "--on", c.url)
        with Gate(t, s, *flags) as one, Gate(t, s, *flags) as two:
            gates = Storm(t, s, "two gates", one.port, two.port)
            equal((gates.stale, gates.late, gates.lost), (0, 0, 0))
            check(gates.refused > HOLDERS, "hardly any refused")
            one_only = Storm(t, s, "one of them", one.port)
            equal(one_only.refused, one_only.all - WRITES)  # only the last one's pass


# ---- the command line ----

@test
def options__that_are_wrong_are_told_in_one_line(t):
    need = ["gate", "--listen", "127.0.0.1:0", "--upstream", "http://127.0.0.1:1",
            "--resource-from", "path-prefix"]
    cases = [
        (["gate"], "--listen"),
        (need[:5], "--resource-from"),
        ([*need[:5], "--resource-from", "cookie"], "path-prefix or header"),
        ([*need, "--upstream", "https://h"], "http://"),
        ([*need, "--upstream", "http://"], "host"),
        ([*need, "--upstream", "http://127.0.0.1:99999"], "port"),
        ([*need, "--listen", "nowhere"], "HOST:PORT"),
        ([*need, "--missing", "maybe"], "refuse, pass or shadow"),
        ([*need, "--name", ""], "--name"),
        ([*need, "--name", "x" * 65], "--name"),
        ([*need, "--shared", "--standby"], "--standby"),
        ([*need, "--drain", "1s", "--cut-off", "2s"], "--cut-off"),
        ([*need, "--depth", "0"], "--depth"),
        ([*need, "--drain", "5"], "--drain"),
        ([*need, "--log", "xml"], "--log"),
        ([*need, "--admin", "127.0.0.1"], "127.0.0.1"),
        ([*need, "--on", "nothing:"], "nothing:"),
    ]
    for words, part in cases:
        done = t.picket(*words)
        equal((words, done.returncode), (words, 125))
        contains(done.stderr.splitlines()[-1], part)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = t.picket(*need, "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        equal(done.returncode, 125)
        contains(done.stderr, "in use")


@test
def log__can_be_parsed_as_json(t):
    with Service() as s:
        g = t.start(*Gate(t, s).words, "--log", "json")
        events = []
        while "started" not in events:
            events.append(json.loads(g.stderr.readline())["event"])
        g.terminate()
        events += [json.loads(line)["event"] for line in g.stderr]
        equal(g.wait(), 0)
    check({"standing", "draining"} <= set(events), str(events))


@test
def help__is_complete(t):
    text = t.picket("gate", "--help").stdout
    for word in ("--listen", "--upstream", "--resource-from", "--depth", "--name",
                 "--missing", "--shadow", "--shared", "--standby", "--drain", "--cut-off",
                 "--retry-unknown", "--upstream-timeout", "--connections", "--admin",
                 "--on", "Exit codes:", "Examples:", "X-Picket-Token"):
        contains(text, word)


main()

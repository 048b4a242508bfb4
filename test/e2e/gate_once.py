# SPDX-License-Identifier: MIT
"""`picket gate` and Idempotency-Key: each row of the table in docs/gate.md."""
import fcntl
import hashlib
import os
import signal
import socket
import time

from cluster import Cluster, free_ports
from gating import Gate, Service
from holding import parsed
from tap import check, contains, equal, main, test, wait_until

PASS = ("--missing", "pass")


def post(g, path, key, body=b"x", method="POST", **headers):
    return g.call(method, path, body=body, Idempotency_Key=key, **headers)


def replayed(answer):
    return answer.headers.get("picket-replayed") == "true"


@test
def repeat__gets_the_first_answer_without_a_call(t):
    with Service() as s, Gate(t, s, *PASS) as g:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            first = post(g, "/a/status?201", method, method=method)
            again = post(g, "/a/status?201", method, method=method)
            equal((first.status, again.status), (201, 201))
            equal(first.body, again.body)
            equal((replayed(first), replayed(again)), (False, True))
            equal(len(s.seen(method=method)), 1)
            for name in ("x-body", "server", "date", "via"):
                equal(first.headers[name], again.headers[name])
        equal(g.outcome("replayed"), 4)
        equal(post(g, "/b/status?200", "POST").status, 200)  # another resource's key
        for _ in range(2):  # reads are not calls that need it
            a = post(g, "/a/status?200", "POST", method="GET")
            check(not replayed(a), "replayed")


@test
def answers__of_all_kinds_are_kept(t):
    with Service() as s, Gate(t, s, *PASS) as g:
        for path in ("/a/status?204", "/a/status?404", "/a/status?409", "/a/status?302",
                     "/a/flow-chunked?50000", "/a/until-end?abc", "/a/echo"):
            first, again = post(g, path, path), post(g, path, path)
            equal((path, again.status, again.body), (path, first.status, first.body))
            equal((path, len(s.seen(path=path)), replayed(again)), (path, 1, True))


@test
def repeats__wait_for_a_client_that_does_not_read(t):
    one = b"POST /a/flow?60000 HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n" \
          b"Content-Length: 1\r\n\r\nx"
    with Service() as s, Gate(t, s, *PASS) as g:
        for leaves in (True, False):
            with socket.create_connection(("127.0.0.1", g.port), 20) as c:
                last = one.replace(b"Host", b"Connection: close\r\nHost")
                c.sendall(one * 199 + last)
                wait_until(lambda: g.outcome("replayed") > 3, what="the first repeats")
                if not leaves:
                    got = b""
                    while piece := c.recv(1 << 20):
                        got += piece
                    equal(got.count(b"Picket-Replayed: true"), 200)
            wait_until(lambda: g.metric("picket_gate_exchanges") == 0, what="its end")
        equal(len(s.calls), 1)


@test
def body__that_breaks_off_decides_by_the_answer(t):
    head = b"POST /a/%s HTTP/1.1\r\nHost: h\r\nIdempotency-Key: %s\r\n" \
           b"Content-Length: 5\r\n\r\nx"
    with Service() as s, Gate(t, s, *PASS) as g:
        for path, error in ((b"strict", ""), (b"sink", "outcome-unknown"),
                            (b"lenient", "answer-not-kept")):
            with socket.create_connection(("127.0.0.1", g.port)) as c:
                c.sendall(head % (path, path))
                wait_until(lambda: s.seen(path="/a/" + path.decode()), what="the call")
            wait_until(lambda: g.metric("picket_gate_exchanges") == 0, what="its end")
            again = post(g, "/a/" + path.decode(), path.decode(), b"xxxxx")
            equal((path, again.error, replayed(again)), (path, error, False))


@test
def client__that_leaves_before_the_call_leaves_no_mark(t):
    """Nothing was sent to the service, so that the outcome is not unknown."""
    with Service() as s, Gate(t, s, *PASS) as g:
        equal(post(g, "/a/echo", "other").status, 200)
        with open(t.path("state/lock"), "r+b") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the store does not answer
            with socket.create_connection(("127.0.0.1", g.port)) as c:
                c.sendall(b"POST /a/echo HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n"
                          b"Content-Length: 1\r\n\r\nx")
                wait_until(lambda: g.metric("picket_gate_exchanges") == 1, what="a start")
            wait_until(lambda: g.metric("picket_gate_connections") == 0, what="its end")
        wait_until(lambda: g.metric("picket_gate_exchanges") == 0, what="the end of all")
        equal(len(s.calls), 1)
        a = post(g, "/a/echo", "k")
        equal((a.status, replayed(a), len(s.calls)), (200, False, 2))


@test
def key__of_another_call_is_422(t):
    with Service() as s, Gate(t, s, *PASS) as g:
        equal(post(g, "/a/echo", "k", b"body").status, 200)
        for answer in (post(g, "/a/echo", "k", b"other"),
                       post(g, "/a/echo?x", "k", b"body"),
                       post(g, "/a/echo", "k", b"body", method="PUT"),
                       post(g, "/a/echo", "k", iter([b"bod", b"y!"]))):
            equal((answer.status, answer.error), (422, "key-reused"))
        check(replayed(post(g, "/a/echo", "k", iter([b"bo", b"dy"]))), "chunks differ")
        equal(len(s.calls), 1)
        for key in ("", "x" * 256, "\xe4"):
            equal(post(g, "/a/echo", key).error, "bad-key")


@test
def repeat__of_what_is_under_way_is_told_so(t):
    with Service() as s, Gate(t, s, *PASS) as g:
        first = g.later("POST", "/a/hold?h", body=b"x", Idempotency_Key="k")
        wait_until(lambda: s.calls, what="the call")
        again = post(g, "/a/hold?h", "k")
        equal((again.status, again.error), (409, "in-progress"))
        s.release("h")
        equal(first.result().body, b"held\n")
        check(replayed(post(g, "/a/hold?h", "k")), "not replayed")
        equal(len(s.calls), 1)


@test
def answer__outlives_the_gate_and_its_clients(t):
    with Service() as s:
        with Gate(t, s, *PASS) as g:
            equal(post(g, "/a/status?201", "k").status, 201)
            with socket.create_connection(("127.0.0.1", g.port)) as c:
                c.sendall(b"POST /a/hold?h HTTP/1.1\r\nHost: h\r\n"
                          b"Idempotency-Key: gone\r\nContent-Length: 1\r\n\r\nx")
                wait_until(lambda: s.seen(path="/a/hold?h"), what="the call")
            s.release("h")  # nobody is there to take the answer
            wait_until(lambda: g.metric("picket_gate_exchanges") == 0, what="its end")
            equal(g.terminate(), 0)
        with Gate(t, s, *PASS) as g:
            check(replayed(post(g, "/a/status?201", "k")), "forgotten")
            check(replayed(post(g, "/a/hold?h", "gone")), "not kept")
        equal(len(s.calls), 2)


@test
def outcome__is_unknown_after_kill_9_in_between(t):
    with Service() as s:
        with Gate(t, s, *PASS, "--ttl", "1s") as g:
            call = g.later("POST", "/a/hold?h", body=b"x", Idempotency_Key="k")
            wait_until(lambda: s.calls, what="the call")
            g.kill()
            wait_until(call.done, what="the client's end")
        flags = (*PASS, "--ttl", "1s", "--standby")
        with Gate(t, s, *flags) as g:
            wait_until(lambda: g.look("/readyz").status == 200, what="the next gate")
            unknown = post(g, "/a/hold?h", "k")
            equal((unknown.status, unknown.error), (409, "outcome-unknown"))
            equal(post(g, "/a/echo", "k").status, 422)
            equal(len(s.calls), 1)
            equal(g.terminate(), 0)
        with Gate(t, s, *flags, "--retry-unknown") as g:
            s.release("h")
            equal(post(g, "/a/hold?h", "k").body, b"held\n")
            equal(len(s.calls), 2)
            check(replayed(post(g, "/a/hold?h", "k")), "not kept")


@test
def answers__that_do_not_settle_it_clear_the_mark(t):
    with Service() as s, Gate(t, s, *PASS) as g:
        for status in (500, 503, 408, 425, 429):
            path = f"/a/status?{status}"
            for n in (1, 2):
                a = post(g, path, str(status))
                equal((a.status, replayed(a), len(s.seen(path=path))), (status, False, n))
    (port,) = free_ports(1)
    with Gate(t, f"http://127.0.0.1:{port}", *PASS, "--name", "down") as g:
        for _ in range(2):  # nothing was sent: it may be tried again
            equal(post(g, "/a/down", "d").error, "upstream")
        equal(g.metric("picket_gate_unrecorded_total"), 0)


@test
def calls__that_break_off_are_not_made_again(t):
    with Service() as s, Gate(t, s, *PASS, "--upstream-timeout", "300ms") as g:
        equal(post(g, "/a/vanish", "v").status, 502)
        equal(post(g, "/a/vanish", "v").error, "outcome-unknown")
        try:
            post(g, "/a/vanish?half", "h")
        except ConnectionError:
            pass
        half = post(g, "/a/vanish?half", "h")
        equal((half.error, half.json["status"]), ("answer-not-kept", 200))
        for n in (1, 2):  # of what says no, half is enough
            try:
                post(g, "/a/vanish?half503", "n")
            except ConnectionError:
                pass
            wait_until(lambda: g.metric("picket_gate_exchanges") == 0, what="its end")
            equal(len(s.seen(path="/a/vanish?half503")), n)
        equal(post(g, "/a/hold?s", "s").status, 504)
        equal(post(g, "/a/hold?s", "s").error, "in-progress")
        s.release("s")  # too late for the first, in time for the next
        wait_until(lambda: g.metric("picket_gate_exchanges") == 0, what="its end")
        check(replayed(post(g, "/a/hold?s", "s")), "not kept")
        equal(len(s.calls), 5)


@test
def call__that_was_cut_off_is_of_unknown_outcome(t):
    with Service() as s, Gate(t, s, "--cut-off", "200ms") as g:
        old = g.later("POST", "/a/hold?h", token=1, body=b"x", Idempotency_Key="k")
        wait_until(lambda: s.calls, what="the call")
        equal(g.call("PUT", "/a/echo", token=2).status, 200)
        equal(old.result().error, "cut-off")
        again = post(g, "/a/hold?h", "k", X_Picket_Token="2")
        equal((again.status, again.error), (409, "outcome-unknown"))
        equal(len(s.seen(path="/a/hold?h")), 1)


@test
def keys__that_the_store_has_no_room_for_are_503(t):
    with Cluster(t.program, t.path("c"), 1) as c, Service() as s:
        done = t.picket("cluster", "configure", "fences=1", "--on", c.url)
        equal(done.returncode, 0)
        with Gate(t, s, *PASS, "--on", c.url) as g:
            equal(post(g, "/a/echo", "first").status, 200)
            equal(post(g, "/a/echo", "second").status, 503)
            check(replayed(post(g, "/a/echo", "first")), "forgotten")
            equal(len(s.calls), 1)


@test
def large__answers_are_passed_on_and_not_kept(t):
    with Service() as s, Gate(t, s, *PASS) as g:
        for path in ("/a/flow?1000000", "/a/flow-chunked?1000000",
                     "/a/flow-chunked?70000"):
            first = post(g, path, path)
            equal((first.status, len(first.body)), (200, int(path.partition("?")[2])))
            again = post(g, path, path)
            equal((again.status, again.error, again.json["status"]),
                  (409, "answer-not-kept", 200))
            equal(post(g, path, path, b"other").status, 422)
            equal(len(s.seen(path=path)), 1)
        body = os.urandom(1 << 20)  # large requests are no matter
        equal(len(post(g, "/a/sink", "up", body).body) > 0, True)
        check(replayed(post(g, "/a/sink", "up", body)), "not kept")


@test
def answers__before_the_body_was_whole_are_not_kept(t):
    with Service() as s, Gate(t, s, *PASS) as g:
        body = bytes(64 << 20)  # more than sockets take in while nobody reads
        equal(post(g, "/a/refuse", "k", body).status, 413)
        again = post(g, "/a/refuse", "k", body)
        equal((again.error, again.json["status"]), ("answer-not-kept", 413))
        equal(len(s.calls), 1)


@test
def repeat__that_waits_to_go_on_is_told_to(t):
    with Service() as s, Gate(t, s, *PASS) as g:
        equal(post(g, "/a/echo", "k", b"hello").status, 200)
        with socket.create_connection(("127.0.0.1", g.port), 10) as c:
            c.sendall(b"POST /a/echo HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n"
                      b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            contains(c.recv(4096).decode(), "100 Continue")
            c.sendall(b"hello")
            contains(c.recv(4096).decode(), "Picket-Replayed: true")
        equal(len(s.calls), 1)


@test
def repeat__is_not_in_flight_while_its_body_comes(t):
    """Nothing of it goes to the service, so that nobody has to wait for it."""
    with Service() as s, Gate(t, s, "--drain", "10s") as g:
        equal(post(g, "/a/echo", "k", b"hello", X_Picket_Token="1").status, 200)
        with socket.create_connection(("127.0.0.1", g.port), 20) as c:
            c.sendall(b"POST /a/echo HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n"
                      b"X-Picket-Token: 1\r\nExpect: 100-continue\r\n"
                      b"Content-Length: 5\r\n\r\n")
            contains(c.recv(4096).decode(), "100 Continue")
            equal(g.call("PUT", "/a/echo", token=2).status, 200)
            c.sendall(b"hello")
            contains(c.recv(4096).decode(), "Picket-Replayed: true")


def ends_at_the_second_signal(g):
    g.process.terminate()
    wait_until(lambda: "event=draining" in g.said(), what="draining")
    g.process.terminate()
    wait_until(lambda: g.process.poll() is not None, what="the end of the gate")
    equal(g.process.returncode, 0)


@test
def sigterm__sent_twice_waits_for_no_body_of_a_repeat(t):
    with Service() as s, Gate(t, s, *PASS, "--body-timeout", "1h") as g:
        equal(post(g, "/a/echo", "k", b"hello").status, 200)
        with socket.create_connection(("127.0.0.1", g.port), 20) as c:
            c.sendall(b"POST /a/echo HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n"
                      b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n")
            contains(c.recv(4096).decode(), "100 Continue")
            ends_at_the_second_signal(g)
            contains(c.recv(4096).decode(), "503 Service Unavailable")


@test
def sigterm__sent_twice_waits_for_no_reader_of_a_repeat(t):
    one = b"POST /a/flow?60000 HTTP/1.1\r\nHost: h\r\nIdempotency-Key: k\r\n" \
          b"Content-Length: 1\r\n\r\nx"
    with Service() as s, Gate(t, s, *PASS, "--body-timeout", "1h") as g:
        with socket.create_connection(("127.0.0.1", g.port), 20) as c:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.sendall(one * 200)
            last = -1
            while last != (last := g.outcome("replayed")) or last < 3:
                time.sleep(0.1)  # until it takes no more
            ends_at_the_second_signal(g)


@test
def key__of_the_longest_resource_is_kept(t):
    """A register's name is made of the gate's name, the resource and the key."""
    with Service() as s, Gate(t, s, *PASS, "--name", "g" * 64) as g:
        lengths = range(1, 256)
        taken = [n for n in lengths if g.call("GET", f"/{'r' * n}/echo").status == 200]
        equal(taken, list(range(1, taken[-1] + 1)))
        check(taken[-1] < 255, "no resource is too long")
        path = f"/{'r' * taken[-1]}/echo"
        equal(post(g, path, "k").status, 200)
        check(replayed(post(g, path, "k")), "not kept")
        longer = post(g, f"/r{path[1:]}", "k")
        equal((longer.status, longer.error), (400, "bad-resource"))


@test
def key__that_was_kept_long_enough_is_new_again(t):
    with Service() as s, Gate(t, s, *PASS, "--keep-keys", "300ms") as g:
        for path in ("/a/status?201", "/a/vanish"):
            post(g, path, path)
            wait_until(lambda p=path: post(g, p, p) and len(s.seen(path=p)) > 1,
                       what="a second call")
        equal(g.terminate(), 0)
    with Service() as s, Gate(t, s, *PASS) as g:  # a day, unless said otherwise
        equal(post(g, "/a/echo", "k").status, 200)
        name = "gate/once/a/" + hashlib.sha256(b"k").hexdigest()
        left = parsed(t.picket("fence", "show", name, "-o", "json"))["left_ms"]
        check(12 * 3600_000 < left <= 24 * 3600_000, f"{left} ms left")


@test
def token__is_judged_before_the_key(t):
    with Service() as s, Gate(t, s) as g:
        equal(post(g, "/a/echo", "k", X_Picket_Token="5").status, 200)
        equal(post(g, "/a/echo", "k", X_Picket_Token="4").error, "stale")
        check(replayed(post(g, "/a/echo", "k", X_Picket_Token="6")), "not replayed")
        equal(g.call("PUT", "/a/echo", token=5).status, 409)  # the repeat has raised it


@test
def gates__of_a_cluster_share_keys(t):
    with Cluster(t.program, t.path("c"), 3) as c, Service() as s:
        flags = (*PASS, "--shared", "--on", c.url, "--ttl", "1s")
        with Gate(t, s, *flags) as one, Gate(t, s, *flags) as two:
            equal(post(one, "/a/status?201", "k").status, 201)
            check(replayed(post(two, "/a/status?201", "k")), "not shared")
            first = one.later("POST", "/a/hold?h", body=b"x", Idempotency_Key="h")
            wait_until(lambda: s.seen(path="/a/hold?h"), what="the call")
            equal(post(two, "/a/hold?h", "h").error, "in-progress")
            os.kill(one.process.pid, signal.SIGSTOP)  # past its lease
            wait_until(lambda: post(two, "/a/hold?h", "h").error == "outcome-unknown",
                       what="the end of the first gate's lock")
            s.release("h")
            os.kill(one.process.pid, signal.SIGCONT)
            equal(first.result().status, 200)
            equal(one.metric("picket_gate_unrecorded_total"), 1)  # the zombie's record
            equal(post(two, "/a/hold?h", "h").error, "outcome-unknown")
            equal(len(s.calls), 2)


main()

# SPDX-License-Identifier: MIT
"""`picket gate` as an HTTP/1.1 proxy: framing, connections, bounds, malformed input."""
import contextlib
import http.client
import itertools
import os
import random
import re
import select
import shutil
import socket
import struct
import subprocess
import time
import zlib

from cluster import free_ports
from gating import PIECE, Gate, Later, Service
from tap import Failed, check, contains, equal, main, skip, test, wait_until

MB = 1 << 20
LARGE = 300 * MB
PASS = ("--missing", "pass")


def statuses(got):
    """The status codes of the answers in these bytes."""
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d\d\d) ", got)]


# ---- framing ----

@test
def bodies__pass_in_both_framings(t):
    with Service() as s, Gate(t, s) as g:
        sent = os.urandom(200000)
        equal(g.call("PUT", "/a/echo", token=1, body=sent).body, sent)
        pieces = [sent[i:i + 777] for i in range(0, len(sent), 777)]
        equal(g.call("PUT", "/a/echo", token=1, body=iter(pieces)).body, sent)
        seen = s.calls[-1]["headers"]
        equal((seen["Transfer-Encoding"], seen["Content-Length"]), ("chunked", None))
        for path in ("/a/flow", "/a/flow-chunked"):
            a = g.call("GET", f"{path}?1000000", token=1)
            equal(zlib.crc32(a.body), zlib.crc32((PIECE * 16)[:1000000]))
        a = g.call("GET", "/a/until-end?bytes", token=1)
        equal((a.body, a.headers["transfer-encoding"]), (b"bytes", "chunked"))
        equal(g.call("PUT", "/a/echo", token=1, body=b"").status, 200)


@test
def answers__without_a_body_have_none(t):
    with Service() as s, Gate(t, s) as g:
        c = g.connect()
        for _ in range(2):  # what was left over would show in the next one
            a = g.call("HEAD", "/a/flow?1234", token=1, connection=c)
            equal((a.status, a.headers["content-length"], a.body), (200, "1234", b""))
            for status in (204, 304):
                a = g.call("GET", f"/a/status?{status}", token=1, connection=c)
                equal((a.status, a.body), (status, b""))
            a = g.call("HEAD", "/a/echo", connection=c)  # one of our own
            equal((a.status, a.body), (428, b""))
        equal(g.metric("picket_gate_connections_total"), 1)


@test
def connections__are_kept_on_both_sides(t):
    with Service() as s, Gate(t, s) as g:
        c = g.connect()
        for i in range(20):
            put = lambda token: g.call("PUT", "/a/echo", token, b"x" * i, c).status
            equal((put(1), put("no token")), (200, 400))
        equal(g.metric("picket_gate_connections_total"), 1)
        equal(g.metric("picket_gate_upstream_connects_total"), 1)
        seen = s.calls[-1]["headers"]
        equal((seen["Via"], seen["X-Forwarded-For"], seen["Connection"]),
              ("1.1 picket-gate", "127.0.0.1", None))


@test
def pipelined__requests_are_answered_in_order(t):
    one = b"PUT /a/echo?%d HTTP/1.1\r\nHost: h\r\nX-Picket-Token: %d\r\n" \
          b"Content-Length: 3\r\n\r\n%03d"
    with Service() as s, Gate(t, s) as g:
        tokens = [1, 1, 2, 1, 2, 3] * 20
        data = b"".join(one % (i, k, i) for i, k in enumerate(tokens))
        last = b"GET /a/echo HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
        got = g.raw(data + last)
        high = list(itertools.accumulate(tokens, max))
        wanted = [200 if k == h else 409 for k, h in zip(tokens, high)]
        equal(statuses(got), wanted + [428])
        places = [int(c["path"].partition("?")[2]) for c in s.calls]
        equal(places, [i for i, w in enumerate(wanted) if w == 200])
        # Refusals alone: hundreds of them out of one block.
        got = g.raw(b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n" * 1000 + last)
        equal(statuses(got), [428] * 1001)


@test
def old__clients_are_served(t):
    with Service() as s, Gate(t, s) as g:
        head = b"GET /a/%s HTTP/1.0\r\nX-Picket-Token: 1\r\n%s\r\n"
        got = g.raw(head % (b"flow-chunked?100", b""))
        contains(got.decode(), "Connection: close")
        check(b"chunked" not in got, "HTTP/1.0 has no chunks")
        equal(got.partition(b"\r\n\r\n")[2], PIECE[:100])
        equal(s.calls[0]["headers"]["Host"], f"127.0.0.1:{s.server_port}")
        keep = b"Connection: keep-alive\r\n"
        got = g.raw(head % (b"flow?5", keep) + head % (b"flow?5", b""))
        equal(got.count(b"01234"), 2)
        contains(got.decode(), "Connection: keep-alive")


@test
def expectations__are_passed_on(t):
    with Service() as s, Gate(t, s) as g:
        with socket.create_connection(("127.0.0.1", g.port), 10) as c:
            c.sendall(b"PUT /a/echo HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 1\r\n"
                      b"Expect: 100-continue\r\nContent-Length: 5\r\n"
                      b"Connection: close\r\n\r\n")
            contains(c.recv(4096).decode(), "HTTP/1.1 100 Continue")
            c.sendall(b"hello")
            got = b""
            while piece := c.recv(4096):
                got += piece
        equal(statuses(got), [200])
        check(got.endswith(b"hello"), got)
        refused = g.raw(b"PUT /a/echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
                        b"Content-Length: 5\r\n\r\n")
        equal(statuses(refused), [428])  # at once, and the connection ends
        equal(len(s.calls), 1)


@test
def fields__of_one_connection_are_not_passed_on(t):
    with Service() as s, Gate(t, s) as g:
        g.call("PUT", "/a/echo", token=3, Connection="X-Mine", X_Mine="1", TE="trailers",
               Keep_Alive="5", X_Other="2", X_Forwarded_For="10.0.0.1")
        seen = s.calls[0]["headers"]
        equal([seen[k] for k in ("X-Mine", "TE", "Keep-Alive", "X-Other")],
              [None, None, None, "2"])
        equal((seen["X-Picket-Token"], seen["X-Forwarded-For"], seen["Host"]),
              ("3", "10.0.0.1, 127.0.0.1", f"127.0.0.1:{g.port}"))


@test
def base__path_stands_before_every_target(t):
    with Service() as s, Gate(t, s.url + "/base/", source="header") as g:
        put = lambda path: g.call("PUT", path, token=1, X_Picket_Resource="r")
        equal(put("/echo?q=1").headers["x-path"], "/base/echo?q=1")
        equal(put("/a//b%2Fc/echo").status, 400)  # an escape that could lead out of it
        equal(put("/../echo").error, "bad-path")


# ---- large ----

@test
def large__bodies_stream_through_little_memory(t):
    crc = 0
    for _ in range(LARGE // len(PIECE)):
        crc = zlib.crc32(PIECE, crc)
    with Service() as s, Gate(t, s) as g:
        g.call("PUT", "/a/echo", token=1, body=b"x" * MB)
        before = g.memory()
        pieces = (PIECE for _ in range(LARGE // len(PIECE)))
        a = g.call("PUT", "/a/sink", token=1, body=pieces, Content_Length=str(LARGE))
        equal(a.body, b"%d %d" % (LARGE, crc))
        got = count_download(g, f"/a/flow?{LARGE}")
        equal(got, (LARGE, crc))
        grown = g.memory() - before
        print(f"# {LARGE // MB} MB up and down: {grown // 1024} KB more than before")
        check(grown < 2 * MB, f"it grew by {grown} bytes")


def count_download(g, path):
    c = g.connect()
    c.request("GET", path, headers={"X-Picket-Token": "1"})
    answer, n, crc = c.getresponse(), 0, 0
    while piece := answer.read(1 << 18):
        n += len(piece)
        crc = zlib.crc32(piece, crc)
    c.close()
    return n, crc


@test
def slow__readers_hold_the_service_back(t):
    with Service() as s, Gate(t, s) as g:
        g.call("GET", "/a/flow?1000000", token=1)
        before = g.memory()
        with socket.create_connection(("127.0.0.1", g.port)) as c:
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.sendall(b"GET /a/flow?%d HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 1\r\n\r\n"
                      % LARGE)
            c.recv(1000)
            # All that could be in memory would have been taken long before that.
            count_download(g, f"/b/flow?{64 * MB}")
            equal(s.calls[1]["ended"], None)
            check(g.memory() - before < 2 * MB, "it takes more than it can give away")


@test
def slow__services_hold_clients_back(t):
    size = 64 * MB
    with Service() as s, Gate(t, s) as g:
        g.call("PUT", "/a/sink", token=1, body=PIECE)
        before, sent, crc = g.memory(), 0, 0
        with socket.create_connection(("127.0.0.1", g.port)) as c:
            c.sendall(b"PUT /a/sink?slow HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 1\r\n"
                      b"Content-Length: %d\r\nConnection: close\r\n\r\n" % size)
            data = random.Random(1).randbytes(MB)  # so that a mix-up shows
            while sent < size:
                if not select.select([], [c], [], 0.3)[1]:
                    check(g.memory() - before < 2 * MB, "it takes what nobody wants")
                    s.release("slow")
                n = c.send(data[sent % MB:sent % MB + 65536][:size - sent])
                crc = zlib.crc32(data[sent % MB:sent % MB + n], crc)
                sent += n
            check(s.hold("slow").is_set(), "it was never held back")
            got = b""
            while piece := c.recv(4096):
                got += piece
        check(got.endswith(b"\r\n\r\n%d %d" % (size, crc)), got[-100:])


# ---- malformed ----

def smuggled():
    """Requests that must be refused, with the connection closed behind them."""
    start = b"POST /a/echo HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 1\r\n"
    fields = [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"Content-Length: 5, 5",
        b"Content-Length: 5\r\nContent-Length: 5",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Content-Length: -5", b"Content-Length: +5", b"Content-Length: 0x5",
        b"Content-Length : 5", b"Content-Length: 5\r\n folded", b"Content-Length: 5 5",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: xchunked", b"Transfer-Encoding: chunked, gzip",
        b"Transfer-Encoding : chunked", b"Transfer-Encoding:\x0bchunked",
        b"Transfer-Encoding: identity", b"X: a\x00b", b"X: a\rb", b"X: a\nY: b",
        b"\x7f: a", b"X Y: a", b"NoColon", b"Host: again",
        b"Content-Length: 9" + b"9" * 30, b"Connection: X-Picket-Token",
        b"Connection: Content-Length\r\nContent-Length: 5",
        b"Expect: something",
    ]
    yield from (start + f + b"\r\n\r\nhello" for f in fields)
    lines = [b"GET  /a/echo HTTP/1.1", b"GET /a/echo  HTTP/1.1", b"GET /a/echo HTTP/3.0",
             b"GET /a/echo", b"GET http://h/a/echo HTTP/1.1", b"GET * HTTP/1.1",
             b"\x16\x03\x01", b"CONNECT h:443 HTTP/1.1", b"get /a/echo HTTP/1.1",
             b"GET /a/echo#x HTTP/1.1"]
    yield from (line + b"\r\nHost: h\r\nX-Picket-Token: 1\r\n\r\n" for line in lines)
    yield b"GET /a/echo HTTP/1.1\r\nX-Picket-Token: 1\r\n\r\n"
    yield b"GET /a/echo HTTP/1.1\nHost: h\nX-Picket-Token: 1\n\n"
    yield b"GET /a/echo HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\n" \
          b"Connection: Upgrade\r\nX-Picket-Token: 1\r\n\r\n"


@test
def malformed__requests_are_refused_and_reach_nobody(t):
    after = b"GET /a/echo HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 1\r\n\r\n"
    with Service() as s, Gate(t, s) as g:
        for n, data in enumerate(smuggled(), 1):
            got = g.raw(data + after)
            codes = statuses(got)
            check(len(codes) == 1 and codes[0] in (400, 417, 501, 505), f"{data}: {got}")
            contains(got.decode(), "Connection: close")
        equal(s.calls, [])
        equal(g.outcome("malformed"), n)
        for head in (b"CONNECT h:443 HTTP/1.1\r\n",
                     b"GET /a HTTP/1.1\r\nUpgrade: x\r\nConnection: Upgrade\r\n"):
            got = g.raw(head + b"Host: h\r\nX-Picket-Token: 1\r\n\r\n")
            equal(statuses(got), [501])
        equal(g.call("GET", "/a/echo", token=1).status, 200)


@test
def chunks__that_are_malformed_end_the_request(t):
    head = b"POST /a/sink HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 1\r\n" \
           b"Transfer-Encoding: chunked\r\n\r\n"
    bodies = [b"x\r\n", b"-1\r\n", b"5\nhello\r\n0\r\n\r\n", b"5\r\nhello!\r\n0\r\n\r\n",
              b"fffffffffffffffff\r\n", b"0x5\r\nhello\r\n", b"5 \r\nhello\r\n0\r\n\r\n",
              b"3\r\nabc\r\nzz\r\n", b"1;" + b"x" * 2000 + b"\r\na\r\n0\r\n\r\n",
              b"0\r\n" + b"T: x\r\n" * 3000 + b"\r\n"]
    with Service() as s, Gate(t, s) as g:
        for body in bodies:
            got = g.raw(head + body)
            equal((body[:20], statuses(got)), (body[:20], [400]))
        wait_until(lambda: g.metric("picket_gate_in_flight") == 0, what="their end")
        equal(g.call("GET", "/a/echo", token=2).status, 200)
        check(all("error" in c for c in s.seen(method="POST")), "the service took one")


@test
def paths__that_lead_elsewhere_are_refused(t):
    bad = ["/a/../b/echo", "/./a/echo", "/../echo", "//a/echo", "/a//echo", "/a%2fecho",
           "/a%2Fecho", "/a%5cecho", "/%2e%2e/echo", "/a/%2e%2E/echo", "/a%00/echo",
           "/a;v=1/echo", "/a\\b/echo", "/a%zz/echo", "/a/echo/..", "/a/echo/.",
           "/%ff/echo", "/a%0d%0a/echo"]
    with Service() as s, Gate(t, s, "--depth", "2") as g:
        for path in bad:
            got = g.raw(b"GET " + path.encode() + b" HTTP/1.1\r\nHost: h\r\n"
                        b"X-Picket-Token: 9\r\nConnection: close\r\n\r\n")
            equal((path, statuses(got)), (path, [400]))
        equal(s.calls, [])
        equal(g.call("GET", "/a/b/echo", token=5).status, 200)
        equal(g.call("GET", "/%61/%62/echo", token=4).status, 409)  # the same place


# ---- bounds ----

@test
def slow__clients_lose_their_place(t):
    flags = ("--header-timeout", "300ms", "--body-timeout", "300ms", "--idle-timeout",
             "300ms")
    start = b"PUT /a/sink HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 1\r\n"
    with Service() as s, Gate(t, s, *flags) as g:
        with socket.create_connection(("127.0.0.1", g.port), 15) as c:
            c.settimeout(0.02)
            for byte in itertools.cycle(b"X"):  # drop by drop, without end
                try:
                    c.sendall(bytes([byte]))
                    got = c.recv(4096)
                    break
                except TimeoutError:
                    continue
        equal(statuses(got), [408])
        equal(g.raw(b""), b"")  # idle ones are just closed
        equal(statuses(g.raw(start)), [408])
        equal(statuses(g.raw(start + b"Content-Length: 10\r\n\r\nhello")), [408])
        wait_until(lambda: g.metric("picket_gate_in_flight") == 0, what="its end")
        equal(g.outcome("too-slow"), 3)


@test
def heads__have_bounds(t):
    with Service() as s, Gate(t, s) as g:
        start = b"GET /a/echo HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 1\r\n"
        equal(statuses(g.raw(start + b"X: " + b"x" * 17000 + b"\r\n\r\n")), [431])
        equal(statuses(g.raw(start + b"X: 1\r\n" * 99 + b"\r\n")), [431])
        equal(statuses(g.raw(b"GET /" + b"a" * 40000)), [431])
        end = b"Connection: close\r\n\r\n"
        equal(statuses(g.raw(start + b"X: " + b"x" * 16000 + b"\r\n" + end)), [200])
        equal(len(s.calls), 1)


@test
def flights__have_a_limit_though_their_clients_are_gone(t):
    """Twice the connections: so many requests whose client has gone are waited for."""
    head = b"PUT /a/hold?h HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 1\r\n" \
           b"Content-Length: 0\r\n\r\n"
    with Service() as s, Gate(t, s, "--connections", "2") as g:
        for n in range(1, 5):
            with socket.create_connection(("127.0.0.1", g.port)) as c:
                c.sendall(head)
                wait_until(lambda k=n: len(s.seen(token=1)) == k, what="the request")
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wait_until(lambda: g.metric("picket_gate_connections") == 0, what="its end")
        equal(g.metric("picket_gate_in_flight"), 4)
        equal(g.call("GET", "/a/echo", token=1).status, 503)
        s.release("h")
        wait_until(lambda: g.metric("picket_gate_exchanges") == 0, what="their end")
        equal(g.call("GET", "/a/echo", token=1).status, 200)


@test
def resources__have_names_of_a_bounded_length(t):
    """255 bytes less those of --name and 71, and one more for the slash between."""
    most = 255 - len("gate") - 71
    with Service() as s, Gate(t, s) as g:
        equal(g.call("GET", "/" + "a" * most, token=1).status, 200)
        equal(g.call("GET", "/" + "a" * (most + 1), token=1).error, "bad-resource")


@test
def connections__have_a_limit(t):
    with Service() as s, Gate(t, s, "--connections", "3") as g:
        held = [g.connect() for _ in range(3)]
        for c in held:
            equal(g.call("GET", "/a/echo", token=1, connection=c).status, 200)
        equal(statuses(g.raw(b"GET /a/echo HTTP/1.1\r\n")), [503])
        equal(g.metric("picket_gate_connections_refused_total"), 1)
        held.pop().close()
        wait_until(lambda: g.metric("picket_gate_connections") < 3, what="room")
        equal(g.call("GET", "/a/echo", token=1).status, 200)


@test
def requests__whose_clients_have_gone_have_a_limit(t):
    """They stay in flight, so that connections alone would bound nothing."""
    with Service() as s, Gate(t, s, "--connections", "2", *PASS) as g:
        for n in range(1, 5):
            with socket.create_connection(("127.0.0.1", g.port)) as c:
                c.sendall(b"PUT /a/hold?h HTTP/1.1\r\nHost: h\r\n"
                          b"Content-Length: 0\r\n\r\n")
                wait_until(lambda k=n: len(s.calls) == k, what="the request in flight")
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            wait_until(lambda: g.metric("picket_gate_connections") == 0, what="its end")
        equal(g.metric("picket_gate_exchanges"), 4)
        a = g.call("PUT", "/a/echo")
        equal((a.status, a.error), (503, "too-many"))
        s.release("h")
        wait_until(lambda: g.metric("picket_gate_exchanges") == 0, what="their end")
        equal(g.call("PUT", "/a/echo").status, 200)


@test
def slow__clients_are_no_silence_of_the_service(t):
    flags = ("--upstream-timeout", "300ms", "--body-timeout", "1h")
    with Service() as s, Gate(t, s, *flags, *PASS) as g:
        with socket.create_connection(("127.0.0.1", g.port), 20) as c:
            c.sendall(b"PUT /a/sink HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n"
                      b"half")
            wait_until(lambda: s.calls, what="the upload")
            # Begun after it, and silent for longer than a service may be.
            equal(g.call("GET", "/b/hold?h").status, 504)
            equal((select.select([c], [], [], 0)[0], g.outcome("upstream-silent")),
                  ([], 1))


# ---- the service fails ----

@test
def answers__that_are_not_http_are_refused(t):
    s = OneShot()
    ok = b"HTTP/1.1 200 OK\r\n"

    def serve(answer):
        with contextlib.suppress(ConnectionError):  # the gate reads no further
            s.serve(True, answer)

    with Gate(t, s, *PASS) as g:
        for answer in (b"nonsense\r\n\r\n", b"HTTP/1.1 101 Switching\r\n\r\n",
                       ok + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
                       ok + b"X: " + b"x" * 40000,
                       ok + b"X: y\n\r\n"):
            # The connection stays open: it is not its end that shows the mistake.
            server = Later(lambda a=answer: serve(a))
            a = g.call("GET", "/a/x")
            equal((answer[:40], a.status, a.error), (answer[:40], 502, "upstream"))
            server.result()
        server = Later(lambda: serve(ok + b"Transfer-Encoding: chunked\r\n\r\n"
                                     b"5\r\nhello\r\nnonsense\r\n"))
        got = g.raw(b"GET /a/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        # 502, or broken off if its beginning has been passed on.
        check(statuses(got) == [502] or not got.endswith(b"0\r\n\r\n"), got)
        server.result()



@test
def upstream__that_is_down_is_502_and_a_raise_stays(t):
    (port,) = free_ports(1)
    with Gate(t, f"http://127.0.0.1:{port}") as g:
        for token, status in ((5, 502), (4, 409), (5, 502), (6, 502), (5, 409)):
            a = g.call("PUT", "/a/echo", token=token, body=b"x")
            equal((token, a.status), (token, status))
        equal((a := g.call("PUT", "/a/echo", token=6)).error, "upstream")
        contains(a.json["message"], "refused")
        equal(g.metric("picket_gate_upstream_errors_total"), 4)
        equal(t.picket("fence", "check", "gate/a", "--token", 6).returncode, 0)
        equal(g.metric("picket_gate_in_flight"), 0)


@test
def answers__that_break_off_are_seen_to(t):
    with Service() as s, Gate(t, s) as g:
        equal(g.call("PUT", "/a/vanish", token=1).error, "upstream")
        try:
            g.call("PUT", "/a/vanish?half", token=1)
            raise Failed("half an answer was taken for a whole one")
        except (http.client.IncompleteRead, ConnectionError):
            pass
        wait_until(lambda: g.metric("picket_gate_in_flight") == 0, what="their end")
        equal(g.call("PUT", "/a/echo", token=2).status, 200)


@test
def answers__that_come_early_are_passed_on(t):
    with Service() as s, Gate(t, s) as g:
        for length in (10, 100 * MB):
            with socket.create_connection(("127.0.0.1", g.port), 10) as c:
                c.sendall(b"PUT /a/refuse HTTP/1.1\r\nHost: h\r\nX-Picket-Token: 1\r\n"
                          b"Content-Length: %d\r\n\r\n" % length)
                got, sent = b"", 0
                with contextlib.suppress(ConnectionError):
                    while sent < length and length > MB:
                        sent += c.send(PIECE)
                while piece := c.recv(4096):
                    got += piece
            equal((length, statuses(got)), (length, [413]))
        wait_until(lambda: g.metric("picket_gate_in_flight") == 0, what="their end")


class OneShot:
    """A service that closes each connection after one answer, or on the second request,
    without having said so."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.heads = []

    def serve(self, reset, answer=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"):
        c, _ = self.listener.accept()
        with c:
            self.read(c)
            c.sendall(answer)
            if reset:
                self.read(c)  # the next one arrives, and nobody answers

    def read(self, c):
        """Reads a whole request. Of one whose body has not come yet, the gate could know
        that it was not done, and send it again."""
        got, wanted = b"", None
        while wanted is None or len(got) < wanted:
            piece = c.recv(4096)
            if not piece:
                return
            got += piece
            head = got.find(b"\r\n\r\n")
            if head >= 0:
                length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", got[:head])
                wanted = head + 4 + (int(length[1]) if length else 0)
        self.heads.append(got.split(b" ", 1)[0].decode())


@test
def idle__connections_that_the_service_closes_are_replaced_where_that_is_safe(t):
    s = OneShot()
    with Gate(t, s, *PASS) as g:
        def both(method, **more):
            wait_until(lambda: g.metric("picket_gate_upstream_connections") == 0)
            s.heads.clear()
            first = g.later("GET", "/a/x")
            server = Later(lambda: s.serve(True))
            equal(first.result().status, 200)
            second = g.later(method, "/a/x", **more)
            server.result()
            if method == "GET":
                s.serve(False)
            return second.result().status
        equal((both("GET"), s.heads), (200, ["GET", "GET", "GET"]))
        equal(g.metric("picket_gate_upstream_retries_total"), 1)
        for method, more in (("POST", {}), ("POST", {"body": b"x"}),
                             ("PUT", {"body": b"x"}),
                             ("DELETE", {"Idempotency_Key": "k"})):
            # It may have been done.
            equal((method, both(method, **more), s.heads), (method, 502, ["GET", method]))
        equal(g.call("DELETE", "/a/x", Idempotency_Key="k").error, "outcome-unknown")


@test
def interim__answers_go_to_clients_that_know_them(t):
    s = OneShot()
    answer = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" \
             b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    with Gate(t, s, *PASS) as g:
        for version, wanted in ((b"1.1", [103, 200]), (b"1.0", [200])):
            server = Later(lambda: s.serve(False, answer))
            got = g.raw(b"GET /a/x HTTP/%s\r\nHost: h\r\nConnection: close\r\n\r\n"
                        % version)
            server.result()
            equal((version, statuses(got)), (version, wanted))
            check(got.endswith(b"ok"), got)


@test
def answers__that_break_off_are_reset_where_nothing_else_shows_it(t):
    """To HTTP/1.0, an answer of unknown length ends with its connection."""
    s = OneShot()
    answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    with Gate(t, s, *PASS) as g:
        for end, whole in ((b"0\r\n\r\n", True), (b"", False)):
            server = Later(lambda e=end: s.serve(False, answer + e))
            with socket.create_connection(("127.0.0.1", g.port), 20) as c:
                c.sendall(b"GET /a/x HTTP/1.0\r\n\r\n")
                got, reset = b"", False
                try:
                    while piece := c.recv(4096):
                        got += piece
                except ConnectionResetError:
                    reset = True
            server.result()
            equal((got.endswith(b"hello"), reset), (True, not whole))


# ---- everything at once ----

PATHS = ["echo", "flow?300000", "flow-chunked?100000", "until-end?x", "vanish", "strict",
         "vanish?half", "status?204", "status?503", "refuse", "count", "sink", "hold?h"]


def be_a_nuisance(g, seed, until):
    """A client that does anything, in pieces, and often goes in the middle."""
    dice = random.Random(seed)
    while time.monotonic() < until:
        data = b""
        for _ in range(dice.randint(1, 4)):
            method = dice.choice(("GET", "PUT", "POST", "HEAD", "DELETE"))
            path = dice.choice(PATHS)
            body = bytes(dice.choice((0, 5, 3000, 200000)))
            key = f"Idempotency-Key: {method} {path} {len(body)}"
            fields = [f"X-Picket-Token: {dice.randint(1, 30)}"] * dice.choice((0, 1, 1))
            fields += [key] * dice.choice((0, 0, 1))
            fields += ["Expect: 100-continue"] * dice.choice((0, 0, 0, 1))
            fields += ["Connection: close"] * dice.choice((0, 0, 0, 1))
            chunked = dice.random() < 0.3
            fields.append("Transfer-Encoding: chunked" if chunked
                          else f"Content-Length: {len(body) + dice.choice((0, 0, 0, 9))}")
            lines = [f"{method} /{dice.choice('ab')}/{path} HTTP/1.1", "Host: h"]
            data += "\r\n".join(lines + fields).encode() + b"\r\n\r\n"
            data += b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) \
                if chunked and body else b"0\r\n\r\n" if chunked else body
        with contextlib.suppress(OSError), \
                socket.create_connection(("127.0.0.1", g.port), 1) as c:
            c.settimeout(0.3)
            if dice.random() < 0.3:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            cut = dice.choice((len(data), len(data), dice.randrange(len(data))))
            c.sendall(data[:cut])
            for _ in range(dice.randint(0, 40)):
                if not c.recv(65536):
                    break


@test
def anything__goes_and_nothing_is_left_behind(t):
    flags = ("--missing", "pass", "--cut-off", "100ms", "--drain", "300ms",
             "--upstream-timeout", "200ms", "--body-timeout", "200ms")
    t.write("counter", "0")
    with Service(t.path("counter")) as s, Gate(t, s, *flags) as g:
        until = time.monotonic() + 4
        rough = [Later(lambda k=k: be_a_nuisance(g, k, until)) for k in range(12)]
        for r in rough:
            r.result()
        s.release("h")
        for name in ("exchanges", "in_flight", "waiting", "connections"):
            wait_until(lambda n=name: g.metric("picket_gate_" + n) == 0, what="its end")
        for name in ("forwarded", "stale", "replayed", "upstream"):
            check(g.outcome(name) > 0, f"nothing was {name}")
        equal(g.call("PUT", "/a/echo", token=1000, body=b"x").body, b"x")
        equal(g.terminate(), 0)


# ---- a service of another make ----

@test
def nginx__serves_through_the_gate(t):
    if shutil.which("nginx") is None:
        skip("nginx is not installed")
    (port,) = free_ports(1)
    body = os.urandom(3 * MB)
    os.makedirs(t.path("www/r"))
    with open(t.path("www/r/file"), "wb") as f:
        f.write(body)
    t.write("nginx.conf", NGINX % {"dir": t.dir, "port": port})
    os.chmod(t.dir, 0o755)
    with subprocess.Popen(["nginx", "-p", t.dir, "-c", t.path("nginx.conf")],
                          stderr=subprocess.DEVNULL) as nginx:
        try:
            wait_until(lambda: answers(port), what="nginx")
            with Gate(t, f"http://127.0.0.1:{port}") as g:
                c = g.connect()
                for _ in range(3):
                    equal(g.call("GET", "/r/file", token=2, connection=c).body, body)
                equal(g.call("GET", "/r/file", token=1).status, 409)
                part = g.call("GET", "/r/file", token=2, Range="bytes=5-9")
                equal((part.status, part.body), (206, body[5:10]))
                equal(g.call("GET", "/r/none", token=2).status, 404)
                equal(g.call("PUT", "/r/put", token=2, body=b"hello").status, 201)
                equal(t.read("www/r/put"), "hello")
        finally:
            nginx.terminate()


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


NGINX = """daemon off;
master_process off;
pid %(dir)s/nginx.pid;
error_log %(dir)s/nginx.log;
events { worker_connections 64; }
http {
    access_log off;
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;
    server {
        listen 127.0.0.1:%(port)d;
        root %(dir)s/www;
        location / { dav_methods PUT; }
    }
}
"""


main()

# SPDX-License-Identifier: MIT
"""A real gate and a real service behind it, for tests.

    with Service() as s, Gate(t, s) as g:
        g.call("PUT", "/a/echo", token=5, body=b"x").status

`Service` is a threaded HTTP/1.1 server of this process; what it does is the last segment
of the path (see Handler). It notes every call in .calls, with when it began and ended.
`Gate` is a `picket gate` process on a free port; .metric("name") reads its /metrics.
"""
import contextlib
import http.client
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
import zlib

from tap import Failed, wait_until

READY_S = 120
PIECE = b"0123456789abcdef" * 4096


class Answer:
    """What came back: status, headers (lower case), body."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {k.lower(): v for k, v in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self):
        """The gate's own word for why it refused; "" for answers of the service."""
        kind = self.headers.get("content-type", "")
        return self.json.get("error", "") if kind == "application/json" else ""


class Handler(http.server.BaseHTTPRequestHandler):
    """The service: what to do is the last segment of the path."""
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def line(self):
        line = self.rfile.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("the body ended early")
        return line

    def pieces(self):
        """The request's body, in pieces, however it is framed."""
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.line().split(b";")[0], 16):
                yield self.rfile.read(size)
                self.line()
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            return
        left = int(self.headers.get("Content-Length") or 0)
        while left > 0:
            piece = self.rfile.read(min(left, 1 << 16))
            if not piece:
                raise ConnectionError("the body ended early")
            left -= len(piece)
            yield piece

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        bodyless = status in (204, 304)
        if not bodyless:
            self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD" and not bodyless:
            self.wfile.write(body)

    def skip_body(self):
        for _ in self.pieces():
            pass

    def handle_any(self):
        path, _, query = self.path.partition("?")
        words = path.strip("/").split("/")
        token = self.headers.get("X-Picket-Token") or "0"
        call = {"token": int(token) if token.isdigit() else None, "path": self.path,
                "method": self.command, "headers": self.headers, "ended": None}
        with self.server.lock:
            call["began"] = time.monotonic()
            self.server.calls.append(call)
        try:
            getattr(self, "do_" + words[-1].replace("-", "_"), self.do_echo)(query)
        except (ConnectionError, OSError) as e:
            call["error"] = repr(e)
            self.close_connection = True
        finally:
            call["ended"] = time.monotonic()

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

    def do_echo(self, _query):
        body = b"".join(self.pieces())
        self.answer(200, body, X_Path=self.path, X_Seen=json.dumps(dict(self.headers)))

    def do_status(self, query):
        body = b"".join(self.pieces())
        self.answer(int(query), b"status %s, call %d\n" % (query.encode(),
                                                           len(self.server.calls)),
                    X_Body=str(len(body)))

    def do_count(self, query):
        """A slow read-modify-write of a file, as a service without a lock does it."""
        self.skip_body()
        with open(self.server.file, encoding="ascii") as f:
            value = int(f.read() or 0)
        time.sleep(float(query or 0.002))
        with open(self.server.file, "w", encoding="ascii") as f:
            f.write(str(value + 1))
        self.answer(200, b"%d" % (value + 1))

    def do_hold(self, query):
        """Answers when the test says so; also ends a broken body only then."""
        try:
            self.skip_body()
        finally:
            self.server.hold(query).wait(READY_S)
        self.answer(200, b"held\n")

    def do_sink(self, query):
        """Counts what it gets, after the test says so if it is to wait for that."""
        if query:
            self.server.hold(query).wait(READY_S)
        n = crc = 0
        for piece in self.pieces():
            n += len(piece)
            crc = zlib.crc32(piece, crc)
        self.answer(200, b"%d %d" % (n, crc))

    def do_flow(self, query):
        """So many bytes, with their length; flow-chunked without."""
        self.skip_body()
        self.send_response(200)
        self.send_header("Content-Length", query)
        self.end_headers()
        left = int(query) if self.command != "HEAD" else 0
        while left > 0:
            left -= self.wfile.write(PIECE[:left])

    def do_flow_chunked(self, query):
        self.skip_body()
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        left = int(query)
        while left > 0:
            piece = PIECE[:left]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            left -= len(piece)
        self.wfile.write(b"0\r\n\r\n")

    def do_until_end(self, query):
        self.skip_body()
        self.close_connection = True
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Kind: until-end\r\n\r\n" + query.encode())

    def do_strict(self, _query):
        """Has a word even for who breaks off."""
        try:
            self.skip_body()
            self.answer(200, b"fine\n")
        except ConnectionError:
            self.close_connection = True
            self.answer(400, b"broken\n", Connection="close")

    def do_lenient(self, _query):
        """Takes what there is of a body, and is content with it."""
        try:
            self.skip_body()
        except ConnectionError:
            self.close_connection = True
        self.answer(200, b"taken\n", Connection="close")

    def do_refuse(self, _query):
        """Answers before it has read the body, and never reads it."""
        self.close_connection = True
        self.answer(413, b"too much\n", Connection="close")

    def do_vanish(self, query):
        """Closes without an answer; `half` in the middle of one, `half503` of one that
        says no."""
        self.skip_body()
        if query.startswith("half"):
            status = query.removeprefix("half").encode() or b"200"
            self.wfile.write(b"HTTP/1.1 %s X\r\nContent-Length: 100\r\n\r\nhalf" % status)
            self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True


class Service(http.server.ThreadingHTTPServer):
    """See above."""
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, file=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.calls = []
        self.holds = {}
        self.file = file
        self.url = f"http://127.0.0.1:{self.server_port}"

    def hold(self, name):
        with self.lock:
            return self.holds.setdefault(name, threading.Event())

    def release(self, name):
        self.hold(name).set()

    def handle_error(self, *_):
        pass

    def seen(self, **wanted):
        """The calls with these values."""
        with self.lock:
            return [c for c in self.calls if all(c[k] == v for k, v in wanted.items())]

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        for event in self.holds.values():
            event.set()
        self.shutdown()
        self.server_close()


class Gate:
    """A `picket gate` process; `flags` are its further options."""
    number = 0

    def __init__(self, t, service, *flags, source="path-prefix"):
        Gate.number += 1
        self.t = t
        self.log = t.path(f"gate-{Gate.number}.log")
        self.port = self.admin = None
        upstream = service if isinstance(service, str) else service.url
        self.words = ["gate", "--listen", "127.0.0.1:0", "--upstream", upstream,
                      "--resource-from", source, "--admin", "127.0.0.1:0", *flags]
        self.process = None

    def start(self):
        with open(self.log, "wb") as f:
            self.process = self.t.start(*self.words, stdout=f, stderr=f)
        line = wait_until(self._started, what="the first words of the gate")
        self.port, self.admin = int(line[1]), int(line[2])
        return self

    def _started(self):
        line = r"event=started.* listen=127.0.0.1:(\d+) .*admin=127.0.0.1:(\d+)"
        found = re.search(line, self.said())
        if found is None and self.process.poll() is not None:
            raise Failed(f"the gate has ended: {self.said()}")
        return found

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def connect(self, timeout=READY_S):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def call(self, method, path, token=None, body=None, connection=None, **headers):
        """One request, on a connection of its own unless one is given."""
        named = {k.replace("_", "-"): v for k, v in headers.items()}
        if token is not None:
            named["X-Picket-Token"] = str(token)
        c = connection or self.connect()
        try:
            c.request(method, path, body=body, headers=named)
            return Answer(c.getresponse())
        finally:
            if connection is None:
                c.close()

    def later(self, *args, **kwargs):
        """The same in a thread; .result() waits for it."""
        return Later(lambda: self.call(*args, **kwargs))

    def raw(self, data, timeout=READY_S, half=False):
        """Sends bytes and reads until the gate closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout) as s:
            s.sendall(data)
            if half:
                s.shutdown(socket.SHUT_WR)
            got = b""
            with contextlib.suppress(ConnectionError):
                while piece := s.recv(65536):
                    got += piece
            return got

    def look(self, path):
        c = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=READY_S)
        try:
            c.request("GET", path)
            return Answer(c.getresponse())
        finally:
            c.close()

    def metric(self, name):
        for line in self.look("/metrics").body.decode().splitlines():
            if line.startswith(name + " "):
                return int(line.split()[-1])
        raise Failed(f"there is no metric {name}")

    def outcome(self, name):
        return self.metric(f'picket_gate_requests_total{{outcome="{name}"}}')

    def memory(self):
        """The most bytes that it ever had in use."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(w.split()[1]) * 1024 for w in f if w.startswith("VmHWM"))

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGCONT)
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def terminate(self):
        self.process.terminate()
        try:
            return self.process.wait(READY_S)
        except subprocess.TimeoutExpired as e:
            raise Failed(f"it does not end: {self.said()}") from e

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()


class Later:
    """A call in a thread of its own."""

    def __init__(self, function):
        self.value = self.error = None
        self.thread = threading.Thread(target=self._run, args=(function,), daemon=True)
        self.thread.start()

    def _run(self, function):
        try:
            self.value = function()
        except Exception as e:  # pylint: disable=broad-except
            self.error = e

    def done(self):
        return not self.thread.is_alive()

    def result(self):
        self.thread.join(READY_S)
        if self.thread.is_alive():
            raise Failed("the call does not end")
        if self.error is not None:
            raise self.error
        return self.value

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prepares dash.mjs: a cluster of three, and an operator that it can ask to kill and
start nodes and to use locks: POST http://127.0.0.1:PORT/ with JSON.

    PICKET=build/picket test/web/dash.py [TEXT]
"""
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

from browser import PROGRAM, prepare
from cluster import Cluster


class Operator:
    """What a test may ask for; each method is one word of it."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.jobs = []

    def nodes(self):
        leader = self.cluster.leader()
        return [{"name": n.name, "url": f"http://127.0.0.1:{n.http_port}/",
                 "leader": n is leader} for n in self.cluster.nodes]

    def node(self, name, what):
        """kill, start, stop (freeze) or cont (go on)."""
        getattr(self.cluster.node(name), what)()

    def ask(self, *words):
        with self.cluster.leader().connect() as c:
            return c.ask(*words)

    def acquire(self, lease, *names):
        with self.cluster.leader().connect() as c:
            for name in names:
                c.send("LOCK", "ACQUIRE", lease, name, "WAIT", "forever")
            return [c.reply().get("token", 0) for _ in names]

    def run(self, lock):
        """A real holder, as users have it, until the end of the tests."""
        self.jobs.append(subprocess.Popen(
            [self.cluster.program, "run", "--on", self.cluster.url, "--ttl", "5s", lock,
             "--", "sleep", "3600"]))

    def close(self):
        for job in self.jobs:
            job.terminate()
        for job in self.jobs:
            job.wait()


def serve(operator):
    """The operator's port."""
    class Door(http.server.BaseHTTPRequestHandler):
        """One request, one word."""

        def do_POST(self):  # pylint: disable=invalid-name
            length = int(self.headers["Content-Length"])
            word, *more = json.loads(self.rfile.read(length))
            try:
                status, answer = 200, getattr(operator, word)(*more)
            except Exception as e:  # pylint: disable=broad-exception-caught
                status, answer = 500, repr(e)
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):  # pylint: disable=arguments-differ
            pass
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Door)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def main():
    browser = prepare("dash.mjs")
    if browser is None:
        return 0
    with tempfile.TemporaryDirectory(prefix="picket-dash-") as state, \
            Cluster(PROGRAM, os.path.join(state, "c"), 3) as cluster:
        operator = Operator(cluster)
        try:
            return browser.run(str(serve(operator)))
        finally:
            operator.close()


sys.exit(main())

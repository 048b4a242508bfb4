# SPDX-License-Identifier: MIT
"""Clients that use a cluster under faults, and keep a record of what they saw
(history.py): for chaos.py and versions.py."""
import contextlib
import random
import threading
import time

from cluster import ServerError

LOCKS = ("red", "green", "blue")
TTL_MS = 3000
MARGIN_S = 0.02 * TTL_MS / 1000 + 0.05  # as the client library has it
TRY_S = 1.5


class GaveUp(Exception):
    """No node answered for too long."""


class Client(threading.Thread):
    """Takes a lock, raises the lock's counter behind its fence, lets go; again and again.
    Repeats what was not answered, with the same request id, on whatever node leads."""

    def __init__(self, cluster, record, number, stop):
        super().__init__(daemon=True)
        self.cluster = cluster
        self.record = record
        self.number = number
        self.stop = stop
        self.random = random.Random(number)
        self.connection = None
        self.lease = 0
        self.request = 0
        self.renewed = 0
        self.failure = None
        self.lost_leases = 0

    # -- asking --

    def connect(self):
        self.disconnect()
        node = self.random.choice(self.cluster.nodes)
        self.connection = node.connect(timeout=TRY_S)

    def disconnect(self):
        if self.connection is not None:
            with contextlib.suppress(OSError):
                self.connection.close()
        self.connection = None

    def ask(self, words, operation=None, seconds=30):
        """Repeats until there is an answer that is one. Returns the reply, or the
        ServerError of a refusal."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.connection is None:
                    self.connect()
                reply = self.connection.ask(*words)
                if operation is not None:
                    operation.answers.append((reply["status"], reply.get("token")))
                return reply
            except ServerError as e:
                if e.code in ("NOTLEADER", "NOLEADER", "UNKNOWN", "OVERLOAD"):
                    self.disconnect()
                    time.sleep(0.02 * self.random.random())
                    continue
                return e
            except (OSError, ValueError):
                self.disconnect()
                time.sleep(0.02 * self.random.random())
        raise GaveUp(" ".join(map(str, words)))

    def begin(self, kind, lock, **fields):
        self.request += 1
        return self.record.begin(kind=kind, client=self.number, lock=lock,
                                 lease=self.lease, request=self.request,
                                 sent=time.monotonic(), **fields)

    # -- a client's life --

    def open(self):
        nonce = self.random.getrandbits(62) + 1
        reply = self.ask(("LEASE", "OPEN", TTL_MS, "REQUEST", nonce))
        self.lease = reply["lease"]
        self.request = 0
        self.renew()

    def renew(self):
        o = self.begin("renew", "")
        reply = self.ask(("LEASE", "RENEW", self.lease))
        o.done = time.monotonic()
        if isinstance(reply, ServerError):
            o.status = reply.code
            return False
        o.status = "OK"
        self.renewed = o.sent
        return True

    def wait_for_grant(self, o):
        """The push that ends the wait; asks again after a reconnect."""
        while True:
            with contextlib.suppress(OSError, ValueError):
                if self.connection is not None:
                    _, kind, event = self.connection.push()
                    if event.get("lease") == o.lease and kind == "lease-ended":
                        return "LOST", None
                    if event.get("request") == o.request and kind == "granted":
                        return "OK", event["token"]
                    if event.get("request") == o.request and kind == "left":
                        return "TIMEOUT", None
                    continue
            self.disconnect()
            if not self.renew():
                return "LOST", None
            reply = self.ask(self.acquire_words(o))
            if isinstance(reply, ServerError):
                return reply.code, None
            if reply["status"] == "OK":
                return "OK", reply["token"]

    def acquire_words(self, o):
        return ("LOCK", "ACQUIRE", o.lease, o.lock, "WAIT", TTL_MS, "REQUEST", o.request)

    def acquire(self, lock):
        o = self.begin("acquire", lock)
        reply = self.ask(self.acquire_words(o))
        if isinstance(reply, ServerError):
            o.status = reply.code
        elif reply["status"] == "OK":
            o.status, o.token = "OK", reply["token"]
        else:
            o.queued = time.monotonic()
            o.status, o.token = self.wait_for_grant(o)
        o.done = time.monotonic()
        return o

    def add(self, lock, token):
        """The read-modify-write that locks are for; the fence decides."""
        seen = self.ask(("FENCE", "CLAIM", lock, token))
        if isinstance(seen, ServerError):
            return
        seen = self.ask(("FENCE", "GET", lock, "TOKEN", token))
        if isinstance(seen, ServerError):
            return
        o = self.begin("add", lock, token=token)
        o.value = int(seen.get("value") or 0) + 1
        reply = self.ask(("FENCE", "SET", lock, token, o.value, "REQUEST", o.request))
        o.done = time.monotonic()
        o.status = reply.code if isinstance(reply, ServerError) else "OK"

    def release(self, grant):
        o = self.begin("release", grant.lock, token=grant.token)
        reply = self.ask(("LOCK", "RELEASE", self.lease, grant.lock, grant.token,
                          "REQUEST", o.request), o)
        o.done = time.monotonic()
        o.status = reply.code if isinstance(reply, ServerError) else "OK"

    def round(self):
        if not self.renew():
            self.lost_leases += 1
            self.open()
        grant = self.acquire(self.random.choice(LOCKS))
        if grant.status != "OK":
            return
        if self.random.random() < 0.04:
            time.sleep(TTL_MS / 1000 * 1.3)  # a holder that is paused for too long
        self.add(grant.lock, grant.token)
        self.release(grant)

    def run(self):
        try:
            self.open()
            while not self.stop.is_set():
                self.round()
            self.ask(("LEASE", "CLOSE", self.lease))
        except Exception as e:  # pylint: disable=broad-except
            self.failure = e
        self.disconnect()


def counter(node, lock):
    try:
        return int(node.ask("FENCE", "GET", lock).get("value") or 0)
    except ServerError:
        return 0

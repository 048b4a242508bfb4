# SPDX-License-Identifier: MIT
"""Nodes that only pretend: they count what they are asked, and answer as a test says.

    with FakeNode(lambda words: "+OK\\r\\n") as node:
        node.status = says("n1", [member("n1", node)], leader="n1")
        t.picket("cluster", "promote", "n2", "--on", f"picket://127.0.0.1:{node.port}")
        equal(node.asked, [["CLUSTER", "PROMOTE", "n2"]])
"""
import contextlib
import socket
import threading


def encode(value):
    """A value in RESP2."""
    if isinstance(value, str):
        return b"$%d\r\n%s\r\n" % (len(value.encode()), value.encode())
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, dict):
        value = [x for pair in value.items() for x in pair]
    return b"*%d\r\n" % len(value) + b"".join(encode(x) for x in value)


class FakeNode:
    """A server that answers CLUSTER STATUS with .status (None: never) and every other
    request as .answer(words) says: a reply, None (never), or "" (closes)."""

    def __init__(self, answer=lambda words: None):
        self.status = None
        self.answer = answer
        self.asked = []  # all requests but STATUS
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                s, _ = self.listener.accept()
                self.open.append(s)
                threading.Thread(target=self._serve, args=(s,), daemon=True).start()

    @staticmethod
    def _request(f):
        n = f.readline()
        return n and [f.read(int(f.readline()[1:]) + 2)[:-2].decode("latin-1")
                      for _ in range(int(n[1:]))]

    def _serve(self, s):
        f = s.makefile("rb")
        with contextlib.suppress(OSError, ValueError):
            while words := self._request(f):
                if words == ["CLUSTER", "STATUS"]:
                    reply = self.status and encode(self.status)
                else:
                    self.asked.append(words[:3])
                    reply = self.answer(words)
                if reply == "":
                    s.shutdown(socket.SHUT_RDWR)
                    return
                if reply:
                    s.sendall(reply if isinstance(reply, bytes) else reply.encode())

    def close(self):
        self.listener.close()
        for s in self.open:
            s.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def member(name, node, **more):
    return {"name": name, "role": "voter", "leader": 0, "raft": "127.0.0.1:1",
            "client": f"127.0.0.1:{node.port}", "http": "", "match": 10, "heard_ms": 0,
            "refused": ""} | more


def says(name, members, leader="", term=1, **more):
    """What that node says to CLUSTER STATUS."""
    leads = name == leader
    return {"cluster": "00000000000000aa", "node": name, "version": "0",
            "standing": "leader" if leads else "follower", "serving": int(leads),
            "leader": leader, "term": term, "last_index": 10, "commit_index": 10,
            "applied_index": 10, "clock_ms": 1, "silent_after_ms": 900,
            "members": members} | more

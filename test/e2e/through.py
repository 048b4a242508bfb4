# SPDX-License-Identifier: MIT
"""A way to a store's servers that loses answers.

    with Through(store) as way:
        way.url         # of the same store, by that way
        way.mute()      # requests still arrive; no client hears an answer any more, nor
                        # that a server closes its connection
        way.unmute()    # what comes from now on is heard again

    Through(store, b"renew")    # muted, a connection is silent after a request with this
"""
import contextlib
import socket
import threading

HOST = "127.0.0.1"


class Through:
    def __init__(self, store, word=b""):
        self._word = word
        self._heard = threading.Event()
        self._heard.set()
        self._listeners = []
        self._open = []
        self.lost = 0  # answers
        self.url = store.url
        for server in store.servers:
            listener = socket.create_server((HOST, 0))
            self._listeners.append(listener)
            port = listener.getsockname()[1]
            self.url = self.url.replace(f"{HOST}:{server.port}", f"{HOST}:{port}")
            threading.Thread(target=self._serve, args=(listener, server.port),
                             daemon=True).start()

    def mute(self):
        self._heard.clear()

    def unmute(self):
        self._heard.set()

    def _serve(self, listener, port):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._open.append(client)
                try:
                    server = socket.create_connection((HOST, port))
                except OSError:
                    client.close()
                    continue
                self._open.append(server)
                asked = threading.Event()
                threading.Thread(target=self._requests, args=(client, server, asked),
                                 daemon=True).start()
                threading.Thread(target=self._answers, args=(server, client, asked),
                                 daemon=True).start()

    def _requests(self, client, server, asked):
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if self._word and self._word in data:
                    asked.set()
                server.sendall(data)
        _end(client, server)

    def _answers(self, server, client, asked):
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                if not self._heard.is_set() and (asked.is_set() or not self._word):
                    self.lost += 1
                else:
                    asked.clear()
                    client.sendall(data)
        self._heard.wait()
        _end(client, server)

    def close(self):
        self.unmute()
        for s in (*self._listeners, *self._open):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _end(*sockets):
    for s in sockets:
        with contextlib.suppress(OSError):
            s.shutdown(socket.SHUT_RDWR)

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The dashboard of a node, without a browser: the page at /, the events at /events."""
import base64
import contextlib
import hashlib
import http.client
import json
import os
import re
import socket
import threading
import urllib.parse

from cluster import READY_S, Cluster, ServerError, free_ports
from tap import Failed, check, contains, equal, main, test, wait_until

LONG_MS = 600000
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
ROWS_MAX = 200
VIEWERS_MAX = 16


def one(t):
    return Cluster(t.program, t.path("c"), 1)


def three(t):
    return Cluster(t.program, t.path("c"), 3)


def get(node, path, method="GET", headers=None):
    """Status, headers (by small names) and body."""
    c = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=READY_S)
    try:
        c.request(method, path, headers=headers or {})
        answer = c.getresponse()
        return (answer.status, {k.lower(): v for k, v in answer.getheaders()},
                answer.read().decode())
    finally:
        c.close()


class Viewer:
    """A page that is open, as far as the server can tell: it puts events together."""

    def __init__(self, node, **query):
        self.c = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=READY_S)
        self.c.request("GET", "/events?" + urllib.parse.urlencode(query))
        self.answer = self.c.getresponse()
        self.raw, self.kind, self.id = "", None, 0
        self.told, self.last, self.rows, self.events = {}, {}, [], 0
        if self.answer.status == 200:
            equal(self.line(), "retry: 1000")
            equal(self.line(), "")

    def line(self):
        text = self.answer.readline().decode()
        if not text.endswith("\n"):
            raise ConnectionError("the events have ended")
        return text[:-1]

    def next(self):
        """Waits for the next event, takes it in, and returns its data."""
        lines = {}
        while (text := self.line()) != "":
            key, _, value = text.partition(": ")
            lines[key] = value
        equal(sorted(lines), ["data", "event", "id"])
        self.raw, self.kind = lines["data"], lines["event"]
        equal(self.kind, "delta" if self.events > 0 else "snapshot")
        check(int(lines["id"]) >= self.id, f"id {lines['id']} after {self.id}")
        self.id = int(lines["id"])
        self.last = json.loads(self.raw)
        if "rows" in self.last:
            before = self.rows
            self.rows = [before[r] if isinstance(r, int) else r
                         for r in self.last["rows"]]
        self.told |= self.last
        self.events += 1
        return self.last

    def until(self, condition, events=200):
        """Takes events until condition(self) is true, and returns its value."""
        for _ in range(events):
            self.next()
            value = condition(self)
            if value:
                return value
        raise Failed(f"not within {events} events; the last: {self.raw[:2000]}")

    def row(self, name):
        return next((r for r in self.rows if r["name"] == name), None)

    def names(self):
        return [r["name"] for r in self.rows]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.c.close()
        self.answer.close()


def open_lease(c, label="", ttl_ms=LONG_MS):
    return c.ask("LEASE", "OPEN", ttl_ms, "LABEL", label)["lease"]


def acquire(c, lease, name, *more):
    return c.ask("LOCK", "ACQUIRE", lease, name, *more).get("token")


def acquire_many(c, lease, names, *more):
    for name in names:
        c.send("LOCK", "ACQUIRE", lease, name, *more)
    for _ in names:
        c.reply()


def descriptors(node):
    return len(os.listdir(f"/proc/{node.pid}/fd"))


# ---- the page ----

@test
def page__is_for_browsers_and_text_for_others(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        status, headers, page = get(n1, "/", headers=HTML)
        equal((status, headers["content-type"]), (200, "text/html; charset=utf-8"))
        contains(page, "<!doctype html>")
        check(len(page) < 60000, f"{len(page)} bytes")
        for accept in ({}, {"Accept": "*/*"}, {"Accept": "text/plain"}):
            status, headers, text = get(n1, "/", headers=accept)
            equal((status, headers["content-type"]), (200, "text/plain; charset=utf-8"))
            contains(text, "node n1")
        status, head, body = get(n1, "/", "HEAD", HTML)
        equal((status, head["content-length"], body), (200, str(len(page.encode())), ""))
        status, _, body = get(n1, "/", headers=HTML | {"If-None-Match": head["etag"]})
        equal((status, body), (304, ""))


@test
def page__allows_itself_nothing_but_what_is_in_it(t):
    with one(t) as cluster:
        _, headers, page = get(cluster.nodes[0], "/", headers=HTML)
        policy = dict(p.strip().split(" ", 1)
                      for p in headers["content-security-policy"].split(";"))
        for key, value in (("default-src", "'none'"), ("connect-src", "'self'"),
                           ("frame-ancestors", "'none'"), ("base-uri", "'none'"),
                           ("form-action", "'none'")):
            equal((key, policy[key]), (key, value))
        for tag in ("script", "style"):
            inside = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.S)
            equal(len(inside), 1)
            digest = hashlib.sha256(inside[0].encode()).digest()
            equal(policy[f"{tag}-src"], f"'sha256-{base64.b64encode(digest).decode()}'")
        check(not re.search(r"\son[a-z]+=|\sstyle=|innerHTML|insertAdjacentHTML", page),
              "the page makes markup or script of text")
        equal([h for h in headers if h.startswith("access-control")], [])
        equal(headers["x-content-type-options"], "nosniff")


@test
def strangers__are_refused_at_every_door(t):
    with one(t) as cluster:
        n1 = cluster.nodes[0]
        for path in ("/", "/events"):
            equal(get(n1, path, headers={"Host": "evil.example"})[0], 421)
            equal(get(n1, path, headers={"Origin": "http://evil.example"})[0], 403)
            equal(get(n1, path, "POST")[0], 405)
        equal(get(n1, "/", headers={"Host": "localhost"})[0], 200)
        before = descriptors(n1)
        status, headers, body = get(n1, "/events", "HEAD")
        equal((status, headers["content-type"], body), (200, "text/event-stream", ""))
        wait_until(lambda: descriptors(n1) <= before)


@test
def host__may_be_what_other_nodes_know_it_by(t):
    client, web, raft = free_ports(3)
    t.start("serve", "--data", t.path("d"), "--listen", f"127.0.0.1:{client}",
            "--http", f"127.0.0.1:{web}", "--raft", f"127.0.0.1:{raft}",
            "--cluster", f"n1=node-1.example:{raft}", "--advertise", "picket.example")

    def status(host):
        c = http.client.HTTPConnection("127.0.0.1", web, timeout=READY_S)
        with contextlib.closing(c), contextlib.suppress(ConnectionError):
            c.request("GET", "/healthz", headers={"Host": host})
            return c.getresponse().status
    wait_until(lambda: status("localhost"))
    equal([status(f"{name}:{web}") for name in
           ("node-1.example", "PICKET.example", "127.0.0.1", "[::1]", "node-2.example",
            "node-1.example.evil")], [200, 200, 200, 200, 421, 421])


# ---- events ----

@test
def events__begin_with_everything_and_go_on_with_changes(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        n1 = cluster.nodes[0]
        a, b = open_lease(c, "ann"), open_lease(c, "bob")
        token = acquire(c, a, "db")
        acquire(c, a, "disk")
        with Viewer(n1) as v:
            v.next()
            equal((v.kind, v.answer.getheader("content-type")),
                  ("snapshot", "text/event-stream"))
            equal(v.names(), ["db", "disk"])
            row = v.row("db")
            equal((row["token"], row["label"], row["mode"], row["waiters"],
                   row["ttl_ms"]), (token, "ann", "exclusive", 0, LONG_MS))
            check(LONG_MS - 60000 < row["left_ms"] <= LONG_MS, str(row))
            equal((v.told["totals"]["locks"], v.told["totals"]["holds"],
                   v.told["totals"]["leases"]), (2, 2, 2))
            equal((v.told["cluster"]["node"], v.told["cluster"]["serving"],
                   v.told["age_ms"], v.told["ticking"]), ("n1", True, 0, True))
            equal(c.ask("LOCK", "ACQUIRE", b, "db", "WAIT", "forever")["status"],
                  "QUEUED")
            v.until(lambda v: v.row("db")["waiters"] == 1)
            equal(v.row("db")["first"], ["bob"])
            # What did not change is not sent again.
            equal((len(v.last["rows"]), v.last["rows"][1]), (2, 1))
            c.ask("LOCK", "RELEASE", a, "db", token)
            v.until(lambda v: v.row("db")["label"] == "bob")
            check(v.row("db")["token"] > token, "the token did not grow")
            c.ask("LEASE", "CLOSE", a)
            v.until(lambda v: v.names() == ["db"])
            clock = v.told["clock_ms"]
            v.next()
            check(v.told["clock_ms"] > clock, "cluster time stands still")


@test
def events__are_few_and_never_stop(t):
    """At most four a second while much happens; one a second while nothing does. Counted
    by cluster time in the events, so that a slow machine changes nothing."""
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        stop = threading.Event()

        def churn():
            lease = open_lease(c)
            while not stop.is_set():
                c.ask("LOCK", "RELEASE", lease, "db", acquire(c, lease, "db"))
        with Viewer(cluster.nodes[0]) as v:
            v.next()
            thread = threading.Thread(target=churn)
            thread.start()
            try:
                v.next()
                first = v.told["clock_ms"]
                for _ in range(8):
                    v.next()
                took = v.told["clock_ms"] - first
            finally:
                stop.set()
                thread.join()
            check(took >= 8 * 230, f"8 events within {took} ms")
            for _ in range(3):
                v.next()
            clocks = [v.next()["clock_ms"] for _ in range(3)]
            check(all(b > a for a, b in zip(clocks, clocks[1:])), str(clocks))
            check("rows" not in v.last, "rows again, and nothing has changed")


@test
def filter_sort_and_show__are_the_servers_work(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        n1 = cluster.nodes[0]
        ann, bob = open_lease(c, "user=ann"), open_lease(c, "user=bob", LONG_MS // 2)
        acquire(c, ann, "orders/export")
        acquire(c, bob, "orders/import")
        acquire(c, bob, "reorders/x")
        c.ask("LOCK", "ACQUIRE", ann, "reorders/x", "WAIT", "forever")
        c.ask("LOCK", "ACQUIRE", open_lease(c, "short", 300), "brief", "DELAY", LONG_MS)
        for query, names in (
                ({"sort": "name"}, ["brief", "orders/export", "orders/import",
                                    "reorders/x"]),
                ({}, ["reorders/x", "brief", "orders/export", "orders/import"]),
                ({"q": "orders/*", "sort": "name"}, ["orders/export", "orders/import"]),
                ({"q": "orders/", "sort": "name"},
                 ["orders/export", "orders/import", "reorders/x"]),
                ({"q": "bob", "sort": "name"}, ["orders/import", "reorders/x"]),
                ({"sort": "age"}, ["orders/export", "orders/import", "reorders/x",
                                   "brief"]),
                ({"sort": "left", "q": "orders/*"}, ["orders/import", "orders/export"]),
                ({"show": "waiting"}, ["reorders/x"]),
                ({"show": "closed"}, ["brief"]),
                ({"show": "held", "sort": "name"},
                 ["orders/export", "orders/import", "reorders/x"]),
                ({"q": "none"}, [])):
            with Viewer(n1, **query) as v:
                if query.get("show") in ("closed", "held") or query.get("sort") == "age":
                    v.next()
                    if v.names() != names:  # "brief" has not expired yet
                        v.until(lambda v, n=names: v.names() == n)
                else:
                    v.next()
                equal((query, v.names()), (query, names))
                equal(v.told["matched"], len(names))


@test
def expiring__comes_and_goes_with_time_alone(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        lease = open_lease(c, "", 2500)
        acquire(c, lease, "db")
        with Viewer(cluster.nodes[0], show="expiring") as v:
            v.until(lambda v: v.names() == ["db"])
            check(v.row("db")["left_ms"] <= 1000, str(v.row("db")))
            v.until(lambda v: v.names() == [])
            v.until(lambda v: len(v.told["losses"]) == 1)


@test
def ten_thousand_locks__are_two_hundred_rows(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        lease = open_lease(c, "user=many\nhost=h")
        names = [f"job/{i:05d}" for i in range(10000)]
        acquire_many(c, lease, names)
        with Viewer(cluster.nodes[0], sort="name") as v:
            v.next()
            equal((v.names(), v.told["matched"]), (names[:ROWS_MAX], 10000))
            check(len(v.raw) < 120000, f"{len(v.raw)} bytes")
            other = open_lease(c)
            c.ask("LOCK", "ACQUIRE", other, "job/00007", "WAIT", "forever")
            v.until(lambda v: v.row("job/00007")["waiters"] == 1)
            new = [r for r in v.last["rows"] if not isinstance(r, int)]
            equal(([r["name"] for r in new], len(v.last["rows"])),
                  (["job/00007"], ROWS_MAX))
            check(len(v.raw) < 5000, f"{len(v.raw)} bytes for one change")
        with Viewer(cluster.nodes[0], q="job/0999*", sort="name") as v:
            v.next()
            equal((v.names(), v.told["matched"]), (names[9990:], 10))


@test
def names__are_other_peoples_text(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        evil = '<img src=x onerror=alert(1)>"\\\'&\u2028'
        lease = open_lease(c, "</script><script>alert(2)</script>\nuser=x")
        acquire(c, lease, evil)
        with Viewer(cluster.nodes[0], lock=evil) as v:
            v.next()
            check("<" not in v.raw, "an angle bracket came through")
            equal((v.names(), v.told["lock"]["name"]), ([evil], evil))
            equal(v.told["lock"]["holds"][0]["label"],
                  "</script><script>alert(2)</script>\nuser=x")


# ---- what has happened ----

@test
def losses_and_refusals__come_with_their_reason(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        n1 = cluster.nodes[0]
        with Viewer(n1) as v:
            v.next()
            equal((v.told["losses"], v.told["refusals"]), ([], []))
            lease = open_lease(c, "careless", 300)
            first = acquire(c, lease, "db")
            v.until(lambda v: len(v.told["losses"]) == 1)
            second = acquire(c, open_lease(c, "slow"), "db")
            c.ask("LOCK", "BREAK", "db", second, "REASON", "it hangs", "BY", "ann")
            c.ask("FENCE", "CLAIM", "disk", 7)
            with contextlib.suppress(ServerError):
                c.ask("FENCE", "SET", "disk", 3, "late")
            v.until(lambda v: len(v.told["losses"]) == 2 and v.told["refusals"])
            broken, expired = v.told["losses"]
            equal((expired["name"], expired["end"], expired["token"], expired["label"]),
                  ("db", "expired", first, "careless"))
            equal((broken["end"], broken["token"], broken["by"], broken["why"]),
                  ("broken", second, "ann", "it hangs"))
            refusal = v.told["refusals"][0]
            equal((refusal["name"], refusal["token"], refusal["highest"],
                   refusal["why"]), ("disk", 3, 7, "STALE"))
            equal((v.told["times"]["lost"], v.told["times"]["rejected"],
                   sum(v.told["times"]["hold"])), (2, 1, 2))
        n1.restart()  # what the log has is known again
        cluster.leader()
        with Viewer(n1) as v:
            v.next()
            equal([(x["end"], x["token"]) for x in v.told["losses"]],
                  [("broken", second), ("expired", first)])
            equal(v.told["times"]["lost"], 0)  # since this start


@test
def restore__leaves_nothing_of_the_past(t):
    """What was seen is not what happened in the restored state, nor at its times."""
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        n1 = cluster.nodes[0]
        equal(t.picket("cluster", "backup", t.path("b"), "--on", n1.url).returncode, 0)
        token = acquire(c, open_lease(c), "db")
        c.ask("LOCK", "BREAK", "db", token)
        with Viewer(n1, lock="db") as v:
            v.next()
            equal((len(v.told["losses"]), len(v.told["lock"]["past"])), (1, 1))
            done = t.picket("cluster", "restore", t.path("b"), "--yes", "--on", n1.url)
            equal(done.returncode, 0)
            with n1.connect() as again:  # owners of leases are disconnected
                token = acquire(again, open_lease(again), "db")
                v.until(lambda v: v.row("db") and v.row("db")["token"] == token)
            equal([h["token"] for h in v.told["lock"]["past"]], [token])
            equal(v.told["losses"], [])


def has_waited(shown):
    """Cluster time has moved on since the last one came."""
    return shown["since_ms"] > max(row["since_ms"] for row in shown["rows"])


@test
def one_lock__shows_its_queue_and_its_past(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        leases = [open_lease(c, f"worker-{i}") for i in range(3)]
        for lease in leases[:2]:
            c.ask("LOCK", "RELEASE", lease, "db", acquire(c, lease, "db"))
        token = acquire(c, leases[0], "db", "VALUE", "10.0.0.1:80")
        for lease in leases[1:]:
            c.ask("LOCK", "ACQUIRE", lease, "db", "WAIT", "forever")
        with Viewer(cluster.nodes[0], lock="db") as v:
            lock = v.next()["lock"]
            equal((lock["holders"], lock["waiters"]), (1, 2))
            equal([(h["token"], h["label"], h["value"]) for h in lock["holds"]],
                  [(token, "worker-0", "10.0.0.1:80")])
            equal([w["label"] for w in lock["queue"]], ["worker-1", "worker-2"])
            equal([(p["label"], p.get("end")) for p in lock["past"]],
                  [("worker-0", None), ("worker-1", "released"),
                   ("worker-0", "released")])
            wait_until(lambda: has_waited(c.ask("LOCK", "SHOW", "db")))
            c.ask("LOCK", "RELEASE", leases[0], "db", token)
            v.until(lambda v: v.told["lock"]["waiters"] == 1)
            latest = v.told["lock"]["past"][0]
            equal((latest["label"], latest.get("end")), ("worker-1", None))
            check(latest["waited_ms"] > 0, str(latest))
        with Viewer(cluster.nodes[0], lock="no such lock") as v:
            lock = v.next()["lock"]
            equal((lock["name"], lock["holders"], lock["past"]), ("no such lock", 0, []))


# ---- a cluster ----

@test
def follower__shows_the_same_and_how_old_it_is(t):
    with three(t) as cluster:
        leader, follower = cluster.leader(), cluster.followers()[0]
        with leader.connect() as c, Viewer(follower) as v, Viewer(leader) as w:
            acquire(c, open_lease(c, "ann"), "db")
            v.until(lambda v: v.row("db"))
            w.until(lambda w: w.row("db"))
            equal(v.row("db")["token"], w.row("db")["token"])
            gap = abs(v.row("db")["left_ms"] - w.row("db")["left_ms"])
            check(gap < 60000, f"{gap} ms apart")
            mine = v.told["cluster"]
            equal((mine["node"], mine["standing"], mine["serving"]),
                  (follower.name, "follower", False))
            equal([m["name"] for m in mine["members"] if m["leader"]], [leader.name])
            check(isinstance(v.told["age_ms"], int), "a follower without an age")
            w.until(lambda w: all(m["lag"] == 0 and m["silent_ms"] == 0
                                  for m in w.told["cluster"]["members"]))
            check(all(m["http"] for m in w.told["cluster"]["members"]), w.raw)
            # A follower that stands still is silent, and one that is gone is away.
            other = next(n for n in cluster.nodes if n not in (leader, follower))
            other.stop()

            def silence(w):
                return next(m["silent_ms"] for m in w.told["cluster"]["members"]
                            if m["name"] == other.name)
            w.until(lambda w: silence(w) == "away" or silence(w) >= 1000)
            other.cont()
            w.until(lambda w: silence(w) == 0)
            other.kill()
            w.until(lambda w: silence(w) == "away")


@test
def leaderless__time_stands_still_and_nobody_pretends(t):
    with three(t) as cluster:
        leader, (one_left, other) = cluster.leader(), cluster.followers()
        with leader.connect() as c:
            acquire(c, open_lease(c), "db")
        with Viewer(one_left) as v:
            v.until(lambda v: v.row("db"))
            other.kill()
            leader.kill()
            v.until(lambda v: v.told["age_ms"] is None)
            equal(v.told["ticking"], False)
            clocks = {v.next()["clock_ms"] for _ in range(3)}
            equal(len(clocks), 1)
            equal(v.names(), ["db"])
            leader.start()
            v.until(lambda v: v.told["age_ms"] is not None and v.told["ticking"])
            check(v.row("db") is not None, "the lock is gone")


@test
def sigterm__ends_the_events_and_the_node(t):
    with one(t) as cluster, Viewer(cluster.nodes[0]) as v:
        v.next()
        equal(cluster.nodes[0].terminate(), 0)
        try:
            v.until(lambda v: False)
        except OSError:  # also what line() raises
            return
        raise Failed("the events go on")


# ---- bounds ----

@test
def viewers__are_bounded_and_make_room_when_they_go(t):
    with one(t) as cluster, contextlib.ExitStack() as all_of_them:
        n1 = cluster.nodes[0]
        viewers = [all_of_them.enter_context(Viewer(n1)) for _ in range(VIEWERS_MAX)]
        for v in viewers:
            v.next()
        status, _, text = get(n1, "/events")
        equal(status, 503)
        contains(text, "too many dashboards")
        equal(get(n1, "/healthz")[0], 200)
        viewers[0].__exit__()

        def there_is_room():
            with Viewer(n1) as v:
                return v.answer.status == 200 and v.next()
        wait_until(there_is_room)


@test
def viewer_that_does_not_read__is_dropped_and_costs_little(t):
    with one(t) as cluster, cluster.nodes[0].connect() as c:
        n1 = cluster.nodes[0]
        names = [f"{i:03d}/{'long' * 50}" for i in range(ROWS_MAX)]
        lease = open_lease(c, "x" * 400, 60000)
        acquire_many(c, lease, names)
        before = descriptors(n1)
        with socket.socket() as s, Viewer(n1) as v:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", n1.http_port))
            s.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            v.next()
            wait_until(lambda: descriptors(n1) == before + 2)
            base = n1.memory()
            end = []

            def is_dropped(v):
                c.ask("LEASE", "RENEW", lease)  # all rows are new
                end.append(n1.memory())
                return descriptors(n1) == before + 1
            v.until(is_dropped)
            check(max(end) - base < 3 << 19, f"{max(end) - base} bytes more")
            v.next()  # the other goes on


main()

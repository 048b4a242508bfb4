#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ZooKeeper as a store, against the real server: faults, bad words, and those who lock
there without us. What every store must do is in test/conform."""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from cluster import free_ports
from databases import Cutter
from holding import hold, let_go, line_with, parsed, waiting
from lan import Lan
from stores import Absent, ZooKeeperServer, program
from tap import (Skipped, alive, check, contains, equal, main, skip, stopped, test,
                 wait_until)

sys.path.append("/usr/lib/python3/dist-packages")  # where Debian's kazoo is
try:
    from kazoo.client import KazooClient
except ImportError:
    KazooClient = None

SOON_S = 120


@contextlib.contextmanager
def running(servers):
    try:
        for s in servers:
            s.start()
        for s in servers:
            s.wait()
        yield
    finally:
        for s in servers:
            s.kill()


def driver(t):
    done = t.picket("ls", "--on", "zk://127.0.0.1:1/.")
    if "no driver for" in done.stderr:
        skip("built without ZooKeeper")


@contextlib.contextmanager
def zookeeper(t):
    """One server; the program uses it from now on."""
    driver(t)
    try:
        server = ZooKeeperServer(t.path("zk"))
    except Absent as e:
        skip(str(e))
    with running([server]):
        t.env["PICKET_URL"] = f"zk://127.0.0.1:{server.port}"
        yield server


@contextlib.contextmanager
def kazoo(server):
    if KazooClient is None:
        skip("kazoo is not installed")
    client = KazooClient(f"127.0.0.1:{server.port}", timeout=10)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def claims(client, lock):
    """The nodes of a lock."""
    return client.get_children("/picket/" + lock)


# ---- answers that get lost ----

@test
def lost_answer__a_claim_is_found_again(t):
    with zookeeper(t) as server, kazoo(server) as client:
        client.ensure_path("/picket/db")  # or the first attempt would be for nothing
        cutter = Cutter(server.port, b"-lock-")
        t.env["PICKET_URL"] = f"zk://127.0.0.1:{cutter.port}"
        holder = hold(t, "db")
        equal(cutter.cuts, 1)
        equal(len(claims(client, "db")), 1)  # and no second one, that nobody would leave
        let_go(holder)
        equal(claims(client, "db"), [])


@test
def lost_answer__twice_in_a_row(t):
    """To the claim itself, and then to the question after its token."""
    with zookeeper(t) as server, kazoo(server) as client:
        client.ensure_path("/picket/db")
        second = Cutter(server.port, b"-lock-0000000000\x00")
        first = Cutter(second.port, b"-lock-")
        t.env["PICKET_URL"] = f"zk://127.0.0.1:{first.port}"
        done = t.picket("run", "db", "--", "printenv", "PICKET_TOKEN")
        equal((done.returncode, first.cuts, second.cuts), (0, 1, 1))
        check(int(done.stdout) > 0, "a hold without a token")


@test
def lost_answer__a_waiter_keeps_one_place(t):
    with zookeeper(t) as server, kazoo(server) as client:
        holder = hold(t, "db")
        cutter = Cutter(server.port, b"-lock-")
        url = f"zk://127.0.0.1:{cutter.port}"
        waiter = waiting(t, "--on", url, "db")
        equal((cutter.cuts, len(claims(client, "db"))), (1, 2))
        let_go(holder)
        equal(waiter.wait(SOON_S), 0)
        equal(claims(client, "db"), [])


@test
def lost_answer__a_release_is_done(t):
    with zookeeper(t) as server, kazoo(server) as client:
        cutter = Cutter(server.port, b"-lock-0000000000\xff\xff\xff\xff")  # a delete
        t.env["PICKET_URL"] = f"zk://127.0.0.1:{cutter.port}"
        let_go(hold(t, "db"))
        equal((cutter.cuts, claims(client, "db")), (1, []))


@test
def lost_answer__a_break_is_done_once(t):
    with zookeeper(t) as server:
        holder = hold(t, "db")
        token = parsed(t.picket("show", "-o", "json", "db"))["holds"][0]["token"]
        cutter = Cutter(server.port, b"picket-break=1")
        words = ("break", "db", "--token", token, "--reason", "in the way", "--on",
                 f"zk://127.0.0.1:{cutter.port}")
        equal(t.picket(*words).returncode, 0)
        equal(cutter.cuts, 1)
        contains(line_with(holder.stderr, "lost"), "in the way")
        equal(holder.wait(SOON_S), 123)


# ---- sessions that end ----

@test
def sleeper__a_stopped_waiter_holds_up_nobody(t):
    with zookeeper(t) as server, kazoo(server) as client:
        holder = hold(t, "db")
        sleeper = waiting(t, "--ttl", "1s", "db", command=("echo", "mine"))
        os.kill(sleeper.pid, signal.SIGSTOP)
        wait_until(lambda: stopped(sleeper.pid), what="the pause")
        last = waiting(t, "db")
        wait_until(lambda: len(claims(client, "db")) == 2, SOON_S, "the sleeper's end")
        let_go(holder)
        equal(last.wait(SOON_S), 0)
        equal(sleeper.poll(), None)
        os.kill(sleeper.pid, signal.SIGCONT)
        contains(line_with(sleeper.stderr, "lost"), "queueing again")
        equal(sleeper.wait(SOON_S), 0)
        equal(sleeper.stdout.read(), "mine\n")


@test
def deleted__a_holder_is_told_when_its_node_goes(t):
    with zookeeper(t) as server, kazoo(server) as client:
        holder = hold(t, "db")
        node, = claims(client, "db")
        client.delete(f"/picket/db/{node}")
        contains(line_with(holder.stderr, "lost"), "its node was deleted")
        equal(holder.wait(SOON_S), 123)


@test
def deleted__a_waiter_is_told_when_its_node_goes(t):
    with zookeeper(t) as server, kazoo(server) as client:
        holder = hold(t, "db")
        waiter = waiting(t, "db")
        place = max(claims(client, "db"), key=lambda n: n[-10:])
        client.delete(f"/picket/db/{place}")
        contains(line_with(waiter.stderr, "lost"), "queueing again")
        wait_until(lambda: len(claims(client, "db")) == 2, what="another place")
        check(place not in claims(client, "db"), "the same place again")
        let_go(holder)
        equal(waiter.wait(SOON_S), 0)


# ---- others who lock there ----

def excludes(t, server, lock, url):
    """A lock of kazoo's and the program keep each other out."""
    t.env["PICKET_URL"] = url
    check(lock.acquire(timeout=SOON_S), "kazoo does not get a free lock")
    equal(t.picket("run", "-n", "db", "--", "true").returncode, 124)
    waiter = waiting(t, "db", command=("cat",))
    lock.release()
    line_with(waiter.stderr, "running cat")
    equal(waiter.wait(SOON_S), 0)
    holder = hold(t, "db")
    check(not lock.acquire(blocking=False), "kazoo gets what we hold")
    got = threading.Event()
    threading.Thread(target=lambda: lock.acquire() and got.set(), daemon=True).start()
    wait_until(lambda: len(lock.contenders()) == 2, what="kazoo in the queue")
    check(not got.is_set(), "kazoo gets what we hold")
    let_go(holder)
    check(got.wait(SOON_S), "kazoo does not get what we have left")
    lock.release()
    equal(server.alive(), True)


@test
def kazoo__with_our_names_told_to_it(t):
    with zookeeper(t) as server, kazoo(server) as client:
        lock = client.Lock("/picket/db", "other", extra_lock_patterns=["-lock-"])
        excludes(t, server, lock, t.env["PICKET_URL"])


@test
def kazoo__with_its_own_names(t):
    with zookeeper(t) as server, kazoo(server) as client:
        lock = client.Lock("/picket/db", "other")
        excludes(t, server, lock, t.env["PICKET_URL"] + "?names=kazoo")


@test
def kazoo__its_readers_and_ours_share(t):
    with zookeeper(t) as server, kazoo(server) as client:
        t.env["PICKET_URL"] += "?names=kazoo"
        with client.ReadLock("/picket/db", "other"):
            equal(t.picket("run", "-n", "-s", "db", "--", "true").returncode, 0)
            equal(t.picket("run", "-n", "db", "--", "true").returncode, 124)
        holder = hold(t, "-s", "db")
        reader = client.ReadLock("/picket/db", "other")
        check(reader.acquire(blocking=False), "readers keep each other out")
        reader.release()
        writer = client.WriteLock("/picket/db", "other")
        check(not writer.acquire(blocking=False), "a writer beside our reader")
        let_go(holder)


@test
def kazoo__is_seen_by_who_looks(t):
    with zookeeper(t) as server, kazoo(server) as client:
        with client.Lock("/picket/db", "the other one"):
            row, = parsed(t.picket("show", "-o", "json", "db"))["holds"]
            equal((row["token"] > 0, "the other one" in str(row)), (True, True))


CURATOR = """
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.locks.*;
import org.apache.curator.retry.*;
import java.util.concurrent.*;

public class Mutex {
    public static void main(String[] a) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(a[0],
            new ExponentialBackoffRetry(100, 3));
        client.start();
        InterProcessMutex mutex = new InterProcessMutex(client, a[1]);
        java.io.BufferedReader in =
            new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null;) {
            if (line.equals("try")) {
                System.out.println(mutex.acquire(0, TimeUnit.SECONDS));
            } else if (line.equals("acquire")) {
                System.out.println(mutex.acquire(60, TimeUnit.SECONDS));
            } else {
                mutex.release();
                System.out.println("released");
            }
        }
        client.close();
    }
}
"""
JARS = ("curator-recipes", "curator-framework", "curator-client", "zookeeper",
        "zookeeper-jute", "guava", "failureaccess", "slf4j-api")


class Curator:
    """InterProcessMutex of the Java library, which most people use."""

    def __init__(self, t, server, path):
        jars = [f"/usr/share/java/{jar}.jar" for jar in JARS]
        if not os.path.exists(jars[0]) or not shutil.which("javac"):
            skip("Curator or a Java compiler is not installed")
        source = t.write("Mutex.java", CURATOR)
        self.process = subprocess.Popen(
            [program("java"), "-XX:TieredStopAtLevel=1", "-cp", ":".join(jars), source,
             f"127.0.0.1:{server.port}", path], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def say(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def ask(self, word):
        self.say(word)
        return self.process.stdout.readline().strip()


@test
def curator__its_mutex_and_ours_keep_each_other_out(t):
    with zookeeper(t) as server, kazoo(server) as client:
        curator = Curator(t, server, "/picket/db")
        equal(curator.ask("acquire"), "true")
        equal(t.picket("run", "-n", "db", "--", "true").returncode, 124)
        waiter = waiting(t, "db", command=("cat",))
        equal(curator.ask("release"), "released")
        line_with(waiter.stderr, "running cat")
        equal(waiter.wait(SOON_S), 0)
        holder = hold(t, "db")
        equal(curator.ask("try"), "false")
        curator.say("acquire")
        wait_until(lambda: len(claims(client, "db")) == 2, what="Curator in the queue")
        check(alive(curator.process.pid), "Curator has ended")
        let_go(holder)
        equal(curator.process.stdout.readline().strip(), "true")
        reader = t.picket("run", "-n", "-s", "db", "--", "true")
        equal(reader.returncode, 124)
        equal(curator.ask("release"), "released")


# ---- what a child gets ----

PARENT = """
import ctypes, os, subprocess, sys
lib = ctypes.CDLL(sys.argv[1])
lib.picket_last_error.restype = ctypes.c_char_p
client, lock = ctypes.c_void_p(), ctypes.c_void_p()
if lib.picket_open(sys.argv[2].encode(), None, ctypes.byref(client)) or \\
        lib.picket_acquire(client, b"db", None, ctypes.byref(lock)):
    sys.exit(lib.picket_last_error())
def opened(pid="self"):
    kinds = []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            kinds.append(os.readlink(f"/proc/{pid}/fd/{fd}").partition(":")[0])
        except OSError:
            pass
    return f"{kinds.count('socket')} {kinds.count('pipe')}"
print(opened(), flush=True)
other = subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL)
print(opened(other.pid), flush=True)
other.kill()
if os.fork() == 0:
    print(opened(), flush=True)
    os._exit(0)
os.wait()
lib.picket_close(client)
"""


@test
def child__has_none_of_the_librarys_descriptors(t):
    with zookeeper(t):
        done = subprocess.run([sys.executable, "-c", PARENT, t.library,
                               t.env["PICKET_URL"]], text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, check=False)
        if "__asan" in done.stderr or "sanitizer" in done.stderr:
            skip("the library needs its sanitizer")
        equal(done.stderr, "")
        # Sockets and pipes; two pipes are the program's own.
        parent, executed, forked = done.stdout.splitlines()
        equal((parent, executed, forked), ("1 4", "0 1", "0 2"))


# ---- bad words, wrong servers ----

def refused(t, url, code, part, *words):
    done = t.picket("run", "-q", "-n", *words, "--on", url, "db", "--", "true")
    equal((done.returncode, done.stdout), (code, ""))
    equal(done.stderr.count("\n"), 1)
    contains(done.stderr, part)
    check("secret" not in done.stderr, "the password is shown")


@test
def url__what_is_wrong_is_said(t):
    driver(t)
    refused(t, "zk://", 125, "zk://")
    refused(t, "zk:127.0.0.1", 125, "zk://")
    refused(t, "zk://u:secret@127.0.0.1:x", 125, "zk://")
    refused(t, "zk://127.0.0.1?sort=no", 125, "zk://")
    refused(t, "zk://127.0.0.1?names=no", 125, "names can be curator or kazoo")
    refused(t, "zk://u:secret@127.0.0.1/a//b", 125, "ROOT has an empty part")
    refused(t, "zk://127.0.0.1/a/..", 125, "one of dots")


@contextlib.contextmanager
def listener(answer):
    """Something that listens, and has one answer to everything; "" is silence."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connections.append(connection)
                    threading.Thread(target=reply, args=(connection,),
                                     daemon=True).start()

        def reply(connection):
            with contextlib.suppress(OSError):
                while data := connection.recv(1024):
                    if b"\n" in data:
                        break
                connection.sendall(answer)
                connection.shutdown(socket.SHUT_WR)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@test
def server__nobody_listens(t):
    driver(t)
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    refused(t, f"zk://u:secret@127.0.0.1:{port}", 125, "nobody listens", "--ttl", "1s")


@test
def server__is_something_else(t):
    driver(t)
    with listener(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        refused(t, f"zk://u:secret@127.0.0.1:{port}", 125, "no ZooKeeper")


@test
def server__says_nothing(t):
    driver(t)
    with listener(b"") as port:
        refused(t, f"zk://127.0.0.1:{port}", 125, "does not answer", "--ttl", "1s")


@test
def password__is_asked_for(t):
    with zookeeper(t) as server:
        place = f"127.0.0.1:{server.port}/mine"
        t.env["PICKET_URL"] = f"zk://u:right@{place}"
        equal(t.picket("run", "db", "--", "true").returncode, 0)
        refused(t, f"zk://u:secret@{place}", 122, f"zk://u@{place}")
        refused(t, f"zk://{place}", 122, "the user and the password")
        equal(t.picket("run", "-n", "db", "--", "true").returncode, 0)


# ---- the doctor ----

def findings(t, *words):
    """Code and grade of what the doctor finds."""
    done = t.picket("doctor", "-o", "json", *words)
    if "there is no verb" in done.stderr:
        skip("there is no doctor in this program")
    return {f["code"]: f["grade"] for f in json.loads(done.stdout)["findings"]}


@test
def doctor__sees_a_server_alone(t):
    with zookeeper(t) as server:
        found = findings(t)
        equal({code: found.get(code) for code in ("version", "single-node", "no-auth")},
              {"version": "fine", "single-node": "note", "no-auth": "note"})
        equal(found.get("longest-ttl"), "fine")
        place = f"127.0.0.1:{server.port}"
        found = findings(t, f"zk://u:secret@{place},127.0.0.1:1")
        equal((found.get("auth"), found.get("nodes-away")), ("fine", "note"))


# ---- networks that fail ----

JOB = r"""
echo $$ >"$1/pid"; echo "$PICKET_TOKEN" >"$1/token"
trap '' TERM
while :; do echo >"$1/beat"; sleep 0.02; done
"""


class Elsewhere(ZooKeeperServer):
    """On a host of a network of our own."""

    def __init__(self, folder, host):
        super().__init__(folder)
        self.host = host
        with open(self.settings, encoding="ascii") as f:
            text = f.read().replace("clientPortAddress=127.0.0.1",
                                    f"clientPortAddress={host.address}")
        with open(self.settings, "w", encoding="ascii") as f:
            f.write(text)

    def command(self):
        return [*self.host.enter, *super().command()]

    def srvr(self):
        with socket.create_connection((self.host.address, self.port), 1) as s:
            s.sendall(b"srvr")
            return s.makefile("rb").read().decode()


@contextlib.contextmanager
def job_elsewhere(t, ttl):
    """A job under lock `db` on a host of its own, with the server on another one."""
    driver(t)
    with Lan(2) as lan:
        there, away = lan.hosts
        try:
            server = Elsewhere(t.path("zk"), there)
        except Absent as e:
            skip(str(e))
        with running([server]):
            t.env["PICKET_URL"] = f"zk://{there.address}:{server.port}"
            picket = t.program
            words = " ".join(away.enter)
            t.program = t.write("picket-away", f'#!/bin/sh\nexec {words} {picket} "$@"\n',
                                0o755)
            run = t.start("run", "--ttl", ttl, "--kill-after", "300ms", "db",
                          "--", "sh", t.write("job.sh", JOB), t.dir)
            t.program = picket
            wait_until(lambda: t.read("token") and t.read("beat"), what="the job")
            yield lan, away, run


@test
def network__a_job_is_dead_before_the_lock_moves_on(t):
    with job_elsewhere(t, "10s") as (lan, away, run):
        pid = int(t.read("pid"))
        last = waiting(t, "db", command=("sh", "-c",
                       f"date +%s%N; test -e /proc/{pid} && echo runs; "
                       "echo $PICKET_TOKEN"))
        cut_ns = time.time_ns()
        lan.isolate(away)
        equal(last.wait(SOON_S), 0)
        granted_ns, token = map(int, last.stdout.read().split())
        check(cut_ns < os.stat(t.path("beat")).st_mtime_ns < granted_ns,
              "the job's last sign of life is later")
        check(token > int(t.read("token")), "tokens went back")
        lan.heal()
        equal(run.wait(SOON_S), 123)


@test
def network__a_job_survives_a_short_cut(t):
    # What was lost in the cut is sent again after twice its length, on top of the third
    # of the TTL since the last renewal.
    with job_elsewhere(t, "12s") as (lan, away, run):
        pid, token = int(t.read("pid")), int(t.read("token"))
        lan.isolate(away)
        time.sleep(0.7)
        lan.heal()
        time.sleep(12)  # more than the TTL since the cut: it must have been renewed
        equal((run.poll(), alive(pid)), (None, True))
        hold_now, = parsed(t.picket("show", "-o", "json", "db"))["holds"]
        equal(hold_now["token"], token)


# ---- three servers ----

class Member(ZooKeeperServer):
    """One of an ensemble."""

    def __init__(self, folder, number):
        self.number = number
        super().__init__(os.path.join(folder, str(number)))

    def join(self, members, ports):
        os.makedirs(os.path.join(self.folder, "data"), exist_ok=True)
        with open(os.path.join(self.folder, "data", "myid"), "w", encoding="ascii") as f:
            f.write(f"{self.number}\n")
        with open(self.settings, "a", encoding="ascii") as f:
            f.write("initLimit=20\nsyncLimit=10\n")
            for m in members:
                one, other = ports[2 * m.number - 2:2 * m.number]
                f.write(f"server.{m.number}=127.0.0.1:{one}:{other}\n")

    def leads(self):
        with contextlib.suppress(OSError):
            return "Mode: leader" in self.srvr()
        return False


@test
def ensemble__a_hold_survives_the_leader(t):
    driver(t)
    try:
        members = [Member(t.path("zk"), n) for n in (1, 2, 3)]
    except Absent as e:
        skip(str(e))
    ports = free_ports(6)
    for m in members:
        m.join(members, ports)
    with running(members):
        places = ",".join(f"127.0.0.1:{m.port}" for m in members)
        t.env["PICKET_URL"] = f"zk://{places}"
        with contextlib.suppress(Skipped):
            equal(findings(t).get("nodes"), "fine")
        holder = hold(t, "--ttl", "120s", "db")
        before = parsed(t.picket("show", "-o", "json", "db"))["holds"][0]["token"]
        leader, = [m for m in members if m.leads()]
        leader.kill()
        others = [m for m in members if m is not leader]
        wait_until(lambda: any(m.leads() for m in others), SOON_S, "a new leader")
        equal(t.picket("run", "-n", "db", "--", "true").returncode, 124)
        equal(holder.poll(), None)
        let_go(holder)
        after = t.picket("run", "db", "--", "printenv", "PICKET_TOKEN")
        check(int(after.stdout) > before, "tokens went back")
        others[0].kill()

        def leaderless():
            """A server that is slow to answer leaves it open what is wrong."""
            done = t.picket("run", "-n", "--ttl", "1s", "db", "--", "true")
            equal(done.returncode, 125)
            return "no leader" in done.stderr

        wait_until(leaderless, what="the words for a missing leader")


main()

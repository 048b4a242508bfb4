# SPDX-License-Identifier: MIT
"""The servers of other people's stores, as people run them, and Picket's own, under one
set of words; each in a folder and on ports of its own.

    from stores import STORES

    with STORES["redis"](folder) as store:      # answers once this returns
        store.url                               # for picket --on
        store.stop(); store.cont()              # freeze all of its processes; thaw them
        store.kill(); store.restart()           # kill -9; start again with what it had

Of several nodes that replicate one another, `kill` takes one, and the store is expected
to live on; of several that know nothing of each other, it takes all. Data outlive a
kill -9. A server that can't be had here raises Absent with the reason.
"""
import contextlib
import glob
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

import databases
from cluster import QUICK, Cluster, Connection, NotReady, ServerError, free_ports
from tap import World

READY_S = 120  # only a hang takes so long
HOST = "127.0.0.1"


class Absent(Exception):
    """There is no such server on this machine."""


def program(name, *folders):
    found = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *folders]))
    if not found:
        raise Absent(f"{name} is not installed")
    return found


def first_line(*argv):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    return done.stdout.partition("\n")[0]


def descendants(pid):
    """The process and all below it."""
    found = [pid]
    for at in found:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{at}/task"):
                path = f"/proc/{at}/task/{task}/children"
                with open(path, encoding="ascii") as f:
                    found += [int(child) for child in f.read().split()]
    return found


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def wait_for(condition, what):
    end = time.monotonic() + READY_S
    while not condition():
        if time.monotonic() > end:
            raise NotReady(f"{what} after {READY_S} s")
        time.sleep(0.02)


class Server:
    """One server process, with its children. Subclasses say how it is started
    (`command`) and when it answers (`answers`)."""

    name = ""
    options = {}

    def __init__(self, folder, ports=1):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.ports = free_ports(ports)
        self.port = self.ports[0]
        self.log = os.path.join(folder, "server.log")
        self.process = None

    def command(self):
        raise NotImplementedError

    def answers(self):
        raise NotImplementedError

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, **self.options)

    def wait(self):
        """Waits until it answers."""
        wait_for(self._ready, f"{self.name} does not answer")

    def _ready(self):
        if not self.alive():
            raise NotReady(f"{self.name} ended: {self.last_words()}")
        try:
            return self.answers()
        except (OSError, ValueError, ServerError, http.client.HTTPException):
            return False

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        """To the process and its children; returns them."""
        pids = descendants(self.process.pid)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return pids

    def stop(self):
        self.signal(signal.SIGSTOP)

    def cont(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        if self.alive():
            pids = self.signal(signal.SIGKILL)
            self.process.wait()
            wait_for(lambda: all(map(gone, pids)), f"{self.name} does not die")

    def last_words(self):
        with contextlib.suppress(OSError), open(self.log, "rb") as f:
            return f.read()[-2000:].decode("utf-8", "replace")
        return ""


class Store:
    """Servers that are one store. `replicated`: one of them may die; `redirects`: they
    send clients to addresses that are not in the URL."""

    replicated = False
    redirects = False
    scheme = ""

    def __init__(self):
        self.servers = []

    @property
    def url(self):
        return f"{self.scheme}://" + ",".join(f"{HOST}:{s.port}" for s in self.servers)

    def version(self):
        raise NotImplementedError

    def start(self):
        for server in self.servers:
            if not server.alive():
                server.start()
        for server in self.servers:
            server.wait()

    def stop(self):
        for server in self.servers:
            server.stop()

    def cont(self):
        for server in self.servers:
            server.cont()

    def kill(self):
        for server in self.servers[:1] if self.replicated else self.servers:
            server.kill()

    def restart(self):
        self.start()

    def close(self):
        for server in self.servers:
            server.kill()

    def dead(self):
        """Servers that should be alive and are not, with their last words."""
        return [f"{s.name} did not live to see the end\n{s.last_words()}"
                for s in self.servers if not s.alive()]

    def __enter__(self):
        try:
            self.start()
            return self
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_):
        self.close()


# ---- ours ----

class Local(Store):
    """No server: nothing that could be stopped."""

    scheme = "local"

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    @property
    def url(self):
        return f"local:{self.folder}/state"

    def version(self):
        return first_line(os.environ.get("PICKET", "build/picket"), "version")


class Picket(Store):
    """A cluster of our own."""

    scheme = "picket"

    def __init__(self, folder, n=1):
        super().__init__()
        picket = os.path.abspath(os.environ.get("PICKET", "build/picket"))
        self.cluster = Cluster(picket, folder, n, QUICK)  # as it ships
        self.servers = self.cluster.nodes
        self.redirects = n > 1

    def version(self):
        return first_line(self.cluster.program, "version")

    def start(self):
        for node in self.servers:
            if not node.alive():
                node.start()
        self.cluster.leader()

    def kill(self):
        self.cluster.leader().kill()


# ---- Redis ----

class RedisServer(Server):
    """Syncs before it answers: a lock that a crash takes away is none."""

    name = "redis-server"

    def command(self):
        return [program("redis-server"), "--port", str(self.port), "--bind", HOST,
                "--dir", self.folder, "--save", "", "--appendonly", "yes",
                "--appendfsync", "always"]

    def answers(self):
        with Connection(self.port, timeout=1) as c:
            return c.ask("PING") == "PONG"


class Redis(Store):
    scheme = "redis"

    def __init__(self, folder, n=1):
        super().__init__()
        self.servers = [RedisServer(os.path.join(folder, f"redis{i}")) for i in range(n)]

    def version(self):
        return first_line(program("redis-server"), "--version").partition(" sha")[0]


class FiveRedis(Redis):
    """Five that know nothing of each other."""

    scheme = "redlock"

    def __init__(self, folder):
        super().__init__(folder, 5)


# ---- etcd ----

class EtcdMember(Server):
    name = "etcd"

    def __init__(self, folder):
        super().__init__(folder, 2)
        self.id = os.path.basename(folder)
        self.members = ""  # all of them, known once all have their ports

    @property
    def peer(self):
        return f"http://{HOST}:{self.ports[1]}"

    def command(self):
        client = f"http://{HOST}:{self.port}"
        return [program("etcd"), "--name", self.id,
                "--data-dir", os.path.join(self.folder, "data"), "--listen-client-urls",
                client, "--advertise-client-urls", client, "--listen-peer-urls",
                self.peer, "--initial-advertise-peer-urls", self.peer,
                "--initial-cluster", self.members, "--log-level", "error",
                # Quicker than the defaults, so that a restart is over sooner.
                "--heartbeat-interval", "50", "--election-timeout", "500"]

    def answers(self):
        c = http.client.HTTPConnection(HOST, self.port, timeout=1)
        with contextlib.closing(c):
            c.request("GET", "/health")
            return json.load(c.getresponse()).get("health") == "true"


class Etcd(Store):
    scheme = "etcd"

    def __init__(self, folder, n=1):
        super().__init__()
        self.replicated = n > 1
        self.servers = [EtcdMember(os.path.join(folder, f"e{i}")) for i in range(n)]
        for server in self.servers:
            server.members = ",".join(f"{s.id}={s.peer}" for s in self.servers)

    def version(self):
        return first_line(program("etcd"), "--version")


# ---- ZooKeeper ----

class ZooKeeperServer(Server):
    """In the smallest JVM; what it is asked to do here needs no more."""

    name = "zookeeper"
    JAR = "/usr/share/java/zookeeper.jar"

    def __init__(self, folder):
        super().__init__(folder)
        if not os.path.exists(self.JAR):
            raise Absent("zookeeper is not installed")
        self.settings = os.path.join(folder, "zoo.cfg")
        with open(self.settings, "w", encoding="ascii") as f:
            # Sessions end in steps of a tick; the longest is longer than any TTL of
            # the tests, with the half that the driver asks for on top.
            f.write(f"tickTime=200\ndataDir={folder}/data\nclientPort={self.port}\n"
                    f"clientPortAddress={HOST}\nmaxClientCnxns=0\n"
                    "minSessionTimeout=400\nmaxSessionTimeout=900000\n"
                    "admin.enableServer=false\n4lw.commands.whitelist=srvr\n")

    def command(self):
        return [program("java"), "-Xshare:auto", "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC", "-Xms32m", "-Xmx128m", "-XX:-UsePerfData",
                "-Dzookeeper.preAllocSize=1024", "-Dzookeeper.jmx.log4j.disable=true",
                "-cp", self.JAR, "org.apache.zookeeper.server.quorum.QuorumPeerMain",
                self.settings]

    def srvr(self):
        with socket.create_connection((HOST, self.port), 1) as s:
            s.sendall(b"srvr")
            return s.makefile("rb").read().decode()

    def answers(self):
        return "Zookeeper version" in self.srvr()


class ZooKeeper(Store):
    scheme = "zk"

    def __init__(self, folder):
        super().__init__()
        self.servers = [ZooKeeperServer(os.path.join(folder, "zk"))]

    def version(self):
        told = self.servers[0].srvr().partition("\n")[0]
        return "ZooKeeper " + told.partition(": ")[2].partition("-")[0]


# ---- PostgreSQL ----

class PostgresServer(Server):
    """As databases.py prepares it."""

    name = "postgres"

    def __init__(self, folder, sync):
        super().__init__(folder)
        self.database = databases.Postgres(World(folder), sync)
        self.port = self.database.port

    def start(self):
        self.database.start()  # waits too
        self.process = self.database.process

    def answers(self):
        return True


class Postgres(Store):
    scheme = "postgres"

    def __init__(self, folder, query="", sync=False):
        super().__init__()
        # Straight in the folder: the server's user must get into it.
        self.servers = [PostgresServer(folder, sync)]
        self._query = query

    @property
    def url(self):
        return self.servers[0].database.url + self._query

    def version(self):
        folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1:]
        return first_line(program("postgres", *folders), "--version")


# ---- Consul ----

class ConsulServer(Server):
    """`token`: it lets in nobody but who has this one."""

    name = "consul"
    host = HOST

    def __init__(self, folder, token=None):
        super().__init__(folder, 3)
        self.token = token
        self.program = os.environ.get("CONSUL_BIN", "")
        if not self.program:
            raise Absent("CONSUL_BIN names no Consul server")

    def version(self):
        return first_line(self.program, "version")

    def settings(self):
        http_port, rpc, serf = self.ports
        ports = {"http": http_port, "server": rpc, "serf_lan": serf, "serf_wan": -1,
                 "dns": -1, "grpc": -1}
        # "Consul v1.14.0": from there on it has one more, which older ones refuse.
        if [int(n) for n in re.findall(r"\d+", self.version())[:2]] >= [1, 14]:
            ports["grpc_tls"] = -1
        settings = {"ports": ports, "performance": {"raft_multiplier": 1}}
        if self.token:
            settings["acl"] = {"enabled": True, "default_policy": "deny",
                               "tokens": {"master": self.token}}
        return settings

    def command(self):
        path = os.path.join(self.folder, "consul.json")
        with open(path, "w", encoding="ascii") as f:
            json.dump(self.settings(), f)
        return [self.program, "agent", "-server", "-bootstrap-expect=1",
                f"-data-dir={self.folder}/data", f"-config-file={path}",
                f"-bind={self.host}", f"-client={self.host}", "-log-level=warn"]

    def ask(self, method, path, body=None):
        """What its HTTP API answers: status and text."""
        c = http.client.HTTPConnection(self.host, self.port, timeout=READY_S)
        with contextlib.closing(c):
            headers = {"X-Consul-Token": self.token} if self.token else {}
            c.request(method, "/v1" + path, body, headers)
            answer = c.getresponse()
            return answer.status, answer.read().decode()

    def answers(self):
        return self.ask("PUT", "/kv/ready", b"1")[1].strip() == "true"


class Consul(Store):
    scheme = "consul"

    def __init__(self, folder):
        super().__init__()
        self.servers = [ConsulServer(os.path.join(folder, "consul"))]

    def version(self):
        return self.servers[0].version()


STORES = {
    "local": Local,
    "picket": Picket,
    "picket3": lambda folder: Picket(folder, 3),
    "redis": Redis,
    "redlock": FiveRedis,
    "etcd": Etcd,
    "etcd3": lambda folder: Etcd(folder, 3),
    "zk": ZooKeeper,
    "postgres": Postgres,
    "postgres-advisory": lambda folder: Postgres(folder, "?lock=advisory"),
    "consul": Consul,
}

# SPDX-License-Identifier: MIT
"""Real databases for tests, each in a folder and on a port of its own.

    from databases import MariaDB

    with MariaDB(t) as db:
        db.install()                        # the fence, through the library
        s = db.session()                    # the database's own command line, in a pipe
        s.ask("BEGIN", db.claim("ledger", 7))
        s.stop()                            # SIGSTOP; s.cont(), s.kill()

Servers are prepared once for each run and copied for each test. They don't sync to disk,
unless told so: what is tested here is who gets in, not what survives a power cut.
"""
import atexit
import contextlib
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

from cluster import free_ports
from sessions import MARK, Session
from tap import TIMEOUT_S, Failed, check, equal, test, wait_until

CALL = os.path.abspath(os.environ.get("RESOURCE_CALL", "build/test/resource_call"))

_templates = {}


def _template(kind, make):
    """A folder that `make` has filled, made once for each run."""
    if kind not in _templates:
        folder = tempfile.mkdtemp(prefix="picket-template-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        make(folder)
        _templates[kind] = folder
    return _templates[kind]


def run(*argv, **options):
    """Runs a program that has to succeed."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, **options)
    check(done.returncode == 0, f"{argv[0]}: {done.stdout[-2000:]}")


def find(program, *folders):
    found = shutil.which(program, path=os.pathsep.join([os.environ["PATH"], *folders]))
    check(found, f"{program} is not installed; tools/setup.sh test does it")
    return found


class Database:
    """What the databases have in common. The forms of statements take resource and
    token; `affected` does one and gives the number of rows that it has changed;
    `end_idle` has the server end this session when it is paused in a transaction."""

    begin = "BEGIN"
    claim_form = check_form = affected_form = ""
    quote = '"'
    serial = "INTEGER PRIMARY KEY"

    def __init__(self, t):
        self.t = t
        self.url = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        pass  # the test's end kills what it has started

    def start(self):
        raise NotImplementedError

    def claim(self, resource, token):
        return self.claim_form.format(resource, token)

    def checks(self, resource, token):
        return self.check_form.format(resource, token)

    def affected(self, statement):
        return self.affected_form.format(statement)

    def call(self, *args, url=None, value=b""):
        """The library's answer: its status, its fence, and what it printed below."""
        done = subprocess.run([CALL, url or self.url, *map(str, args)], input=value,
                              stdout=subprocess.PIPE, check=False)
        equal(done.returncode, 0)
        head, _, rest = done.stdout.partition(b"\n")
        status, fence = head.decode().split()
        return status, int(fence), rest.decode(errors="replace").rstrip("\n")

    def install(self, *table):
        status, _, why = self.call("install", *table)
        check(status == "OK", f"{status}: {why}")

    def shadow(self, resource, on):
        equal(self.call("mode", resource, int(on))[0], "OK")

    def shadowed(self, resource):
        status, _, state = self.call("show", resource)
        equal(status, "OK")
        return int(state.split()[1])


class SQLite(Database):
    name = "sqlite"
    claim_form = "INSERT INTO picket_claim (resource, token) VALUES ('{}', {})"
    check_form = "INSERT INTO picket_check (resource, token) VALUES ('{}', {})"
    affected_form = "{}; SELECT changes()"

    def __init__(self, t, name="test.db", journal="wal"):
        super().__init__(t)
        self.path = t.path(name)
        self.url = "sqlite:" + self.path
        self._journal = journal

    def start(self):
        self.session().done(f"PRAGMA journal_mode = {self._journal}",
                            "CREATE TABLE empty (x)")

    def session(self, timeout_ms=20000):
        # Without syncing: see above. Waiting is SQLite's own.
        s = Session([find("sqlite3"), "-batch", self.path], f".print {MARK}")
        s.send(f"PRAGMA synchronous = off; PRAGMA busy_timeout = {timeout_ms}")
        s.answer()
        return s


class Server(Database):
    """A database that is a process."""

    def launch(self, argv, ready, **options):
        self.log = self.t.path("server.log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, **options)
        wait_until(lambda: self._is_ready(ready), seconds=30, what=f"{self.name} server")

    def _is_ready(self, ready):
        if self.process.poll() is not None:
            raise Failed(f"the server ended: {self.t.read('server.log')[-2000:]}")
        return ready()

    def end(self):
        """As a crash does."""
        self.process.kill()
        self.process.wait()

    def listens(self):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        return False


class Postgres(Server):
    name = "postgres"
    claim_form = "SELECT picket_claim('{}', {})"
    check_form = "SELECT picket_check('{}', {})"
    affected_form = "WITH done AS ({} RETURNING 1) SELECT count(*) FROM done"
    serial = "BIGSERIAL PRIMARY KEY"
    end_idle = "SET idle_in_transaction_session_timeout = '1s'"
    listen = "127.0.0.1"

    def __init__(self, t, sync=False):
        super().__init__(t)
        self.port = free_ports(1)[0]
        self._sync = sync
        self.data = t.path("pg")
        self.url = self.url_of("app", "secret")
        folders = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1:]
        self._program = find("postgres", *folders)
        self._initdb = find("initdb", *folders)
        # PostgreSQL refuses to run as root, and leaves shared memory behind when it is
        # killed, unless that has a namespace of its own.
        self._options = {"cwd": "/"}
        self._enter = []
        self._user = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        if self._user:
            uid, gid = self._user.pw_uid, self._user.pw_gid
            self._options |= {"user": uid, "group": gid, "extra_groups": []}
            self._enter = ["unshare", "--ipc", "setpriv", f"--reuid={uid}",
                           f"--regid={gid}", "--clear-groups"]

    def end(self):
        """As a crash does, but with its children: those outlive a SIGKILL of it."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()

    @property
    def as_user(self):
        """For Popen: not as root."""
        return self._options

    def url_of(self, user, password, database="postgres"):
        return f"postgres://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def _own(self, folder):
        if self._user:
            os.chmod(os.path.dirname(folder), 0o711)
            run("chown", "-R", f"{self._user.pw_uid}:{self._user.pw_gid}", folder)

    def _make(self, folder):
        data, password = (os.path.join(folder, name) for name in ("data", "password"))
        os.mkdir(data, 0o700)
        with open(password, "w", encoding="ascii") as f:
            f.write("secret\n")
        self._own(data)
        run(self._initdb, "-D", data, "-U", "app", "-E", "UTF8", "--no-sync",
            "--locale=C.UTF-8", "-A", "scram-sha-256", f"--pwfile={password}",
            **self._options)

    def start(self):
        if not os.path.exists(self.data):
            run("cp", "-a", os.path.join(_template(self.name, self._make), "data"),
                self.data)
            self._own(self.data)
        self.launch([*self._enter, self._program, "-D", self.data, "-p", str(self.port),
                     "-k", "", "-c", "dynamic_shared_memory_type=mmap",
                     "-c", f"fsync={'on' if self._sync else 'off'}",
                     "-c", f"listen_addresses={self.listen}", "-c", "max_connections=60",
                     "-c", "deadlock_timeout=50ms"],
                    self._answers, cwd="/")

    def _answers(self):
        return self.listens() and self.session().ask("SELECT 1").word == "ok"

    def session(self, user="app", password="secret"):
        return Session([find("psql"), "-XqAt", "-v", "VERBOSITY=verbose",
                        self.url_of(user, password)], f"\\echo {MARK}")

    def waiting(self, watcher):
        """How many sessions wait for a lock."""
        return int(watcher.value("SELECT count(*) FROM pg_locks WHERE NOT granted"))

    def cut(self, watcher):
        """Ends all other sessions, as an operator would."""
        watcher.done("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                     "WHERE state = 'idle in transaction'")


class MariaDB(Server):
    name = "mariadb"
    claim_form = "CALL picket_claim('{}', {})"
    check_form = "CALL picket_check('{}', {})"
    affected_form = "{}; SELECT ROW_COUNT()"
    begin = "START TRANSACTION"
    quote = "`"
    serial = "BIGINT AUTO_INCREMENT PRIMARY KEY"
    end_idle = "SET idle_write_transaction_timeout = 1"

    def __init__(self, t):
        super().__init__(t)
        self.port = free_ports(1)[0]
        self.data = t.path("mysql")
        self.url = self.url_of("app", "secret")

    def url_of(self, user, password, database="test"):
        return f"mysql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    @staticmethod
    def _settings(data):
        # A folder for temporary files of its own: a server that starts deletes those of
        # others.
        temporary = data + ".tmp"
        os.makedirs(temporary, exist_ok=True)
        return ["--no-defaults", f"--datadir={data}", f"--tmpdir={temporary}",
                f"--user={pwd.getpwuid(os.getuid()).pw_name}",
                "--innodb-log-file-size=8M", "--innodb-buffer-pool-size=24M",
                "--innodb-flush-log-at-trx-commit=0",
                "--innodb-data-file-path=ibdata1:8M:autoextend", "--skip-name-resolve",
                "--innodb-buffer-pool-load-at-startup=OFF", "--aria-log-file-size=8M"]

    @classmethod
    def _make(cls, folder):
        run(find("mariadb-install-db"), *cls._settings(os.path.join(folder, "data")),
            "--skip-test-db", "--auth-root-authentication-method=normal")

    def start(self):
        if not os.path.exists(self.data):
            run("cp", "-a", os.path.join(_template(self.name, self._make), "data"),
                self.data)
        first = self.t.write("first.sql", "CREATE DATABASE IF NOT EXISTS test;\n"
                             "CREATE USER IF NOT EXISTS app IDENTIFIED BY 'secret';\n"
                             "GRANT ALL ON *.* TO app WITH GRANT OPTION;\n")
        self.launch([find("mariadbd", "/usr/sbin"), *self._settings(self.data),
                     f"--port={self.port}", "--bind-address=127.0.0.1",
                     f"--socket={self.t.path('mysql.sock')}", f"--init-file={first}"],
                    self._answers)

    def _answers(self):
        return self.listens() and self.session().ask("SELECT 1").word == "ok"

    def session(self, user="app", password="secret"):
        return Session([find("mariadb"), "--no-defaults", "-NB", "--unbuffered",
                        "--force", "--skip-reconnect", f"--port={self.port}",
                        "--host=127.0.0.1", f"--user={user}", f"--password={password}",
                        "test"], f"\\! echo {MARK}")

    def waiting(self, watcher):
        return int(watcher.value("SELECT variable_value FROM information_schema."
                                 "global_status WHERE variable_name = "
                                 "'INNODB_ROW_LOCK_CURRENT_WAITS'"))

    def cut(self, watcher):
        found = watcher.ask("SELECT trx_mysql_thread_id FROM information_schema."
                            "innodb_trx WHERE trx_state = 'RUNNING'")
        for thread in found.rows:
            watcher.ask(f"KILL {thread}")


class Redis(Server):
    name = "redis"

    def __init__(self, t):
        super().__init__(t)
        self.port = free_ports(1)[0]
        self.socket = t.path("redis.sock")
        self.url = f"redis://:secret@127.0.0.1:{self.port}/0"

    def start(self):
        self.launch([find("redis-server"), "--port", str(self.port),
                     "--bind", "127.0.0.1", "--unixsocket", self.socket,
                     "--requirepass", "secret", "--dir", self.t.dir, "--save", "",
                     "--appendonly", "yes", "--appendfsync", "no"], self._answers)

    def _answers(self):
        return self.listens() and self.session().ask("PING").rows == ["PONG"]

    def session(self):
        return Session([find("redis-cli"), "--no-raw", "--no-auth-warning",
                        "-a", "secret", "-p", str(self.port)], f"ECHO {MARK}", end="")


class Loop:
    """The library in a process of its own, with one connection: claims, or with a length
    writes a value, and does so again when asked."""

    def __init__(self, url, *args):
        self._process = subprocess.Popen([CALL, url, "loop", *map(str, args)], text=True,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def answer(self):
        """The status; and for all but OK the sentence about it."""
        status = self._process.stdout.readline().partition(" ")[0]
        return status, "" if status == "OK" else self._process.stdout.readline().rstrip()

    def again(self):
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self.answer()


class Cutter:
    """Stands between a client and a server, and breaks the first connection over which
    the client says `words`: after the server has heard them, before the client gets the
    answer."""

    def __init__(self, port, words):
        self._to = ("127.0.0.1", port)
        self._words = words
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(self._to)
            cut = threading.Event()
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, target, cut, client),
                                 daemon=True).start()

    def _pump(self, source, target, cut, client):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if source is client and self.cuts == 0 and self._words in data:
                    self.cuts = 1
                    cut.set()
                elif cut.is_set() and target is client:
                    break  # this was the answer
                target.sendall(data)
        for s in (source, target):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


def over(*kinds, timeout=TIMEOUT_S):
    """Makes one test for each of the databases out of a function of (t, db)."""
    def decorate(function):
        for kind in kinds:
            def run(t, kind=kind):
                with kind(t) as db:
                    function(t, db)
            run.__name__ = f"{function.__name__}__{kind.name}"
            test(run, timeout=timeout)
        return function
    return decorate

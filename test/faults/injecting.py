# SPDX-License-Identifier: MIT
"""Runs programs under inject.so, which makes the n-th call of one class fail.

    page = Page(folder)
    with Subject(page, "read:7:reset", program, url) as s: ...
    page.where()                     # which call got the fault

$PICKET_FAULTS_ALL=1 tries every n; otherwise a few of them, spread evenly.
"""
import concurrent.futures
import contextlib
import itertools
import os
import re
import select
import signal
import struct
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "e2e"))

# pylint: disable=wrong-import-position
from tap import HASTE, Failed  # noqa: E402

ALL = os.environ.get("PICKET_FAULTS_ALL") == "1"
SAMPLE = int(os.environ.get("PICKET_FAULTS_SAMPLE", "4"))
HANG_S = 150 / HASTE  # only a hang takes that long
AT_ONCE = 4           # runs mostly wait
INJECT = os.path.realpath(os.environ.get("INJECT", "build/test/inject.so"))
PICKET = os.path.realpath(os.environ.get("PICKET", "build/picket"))
FAULTS_CALL = os.path.realpath(os.environ.get("FAULTS_CALL", os.path.join(
    os.environ.get("FAULTS_DIR", "build/test"), "faults_call")))

CLASSES = ("alloc", "theirs", "read", "write", "connect", "fd", "wait", "sync",
           "dirsync", "datasync")
LAYOUT = struct.Struct(f"{len(CLASSES)}Q Q Q Q 8Q 256s 1024s")
OUT_OF_MEMORY = re.compile(r"^picket: .*out of memory", re.MULTILINE)
CRASHES = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT}

_numbers = itertools.count(1)


class Page:
    """What the injector counted and did: struct page of inject.c."""

    def __init__(self, folder):
        self.path = os.path.join(folder, f"page{next(_numbers)}")
        with open(self.path, "wb") as f:
            f.write(bytes(4096))

    def _fields(self):
        with open(self.path, "rb") as f:
            return LAYOUT.unpack(f.read(LAYOUT.size))

    def count(self, name):
        return self._fields()[CLASSES.index(name)]

    def injected(self):
        return self._fields()[len(CLASSES)]

    def live(self):
        """Blocks of our code that were never freed."""
        return self._fields()[len(CLASSES) + 2]

    def live_at(self):
        first = len(CLASSES) + 3
        return [hex(at) for at in self._fields()[first:first + 8] if at]

    def where(self):
        return self._fields()[-2].rstrip(b"\0").decode("utf-8", "replace")

    def crash(self):
        """Of any process of the program: the signal and where, or ''."""
        number = self._fields()[len(CLASSES) + 1]
        text = self._fields()[-1].rstrip(b"\0").decode("utf-8", "replace")
        return f"signal {number}: {text}" if number else ""

    def their_crash(self):
        """The library that was refused memory crashed itself."""
        module = re.search(r" by (\S+)\+0x", self.where())
        return module and f" by {module.group(1)}+0x" in self.crash() and (
            module.group(1).startswith("lib"))

    def environment(self, spec, program):
        return {"LD_PRELOAD": INJECT, "PICKET_INJECT": spec, "PICKET_INJECT_EXE": program,
                "PICKET_INJECT_PAGE": self.path}


class Ended(Exception):
    """The program ended where an answer was expected."""


class Call:
    """faults_call over a pipe; with a page, under the injector."""

    def __init__(self, url, ttl_ms, page=None, spec="", env=None):
        env = dict(env if env is not None else os.environ)
        if page is not None:
            env |= page.environment(spec, FAULTS_CALL)
        self.process = subprocess.Popen(
            [FAULTS_CALL, url, str(ttl_ms)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
        self._buffer = b""
        self.said = []

    def send(self, *words):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
            self.process.stdin.flush()

    def answered(self, seconds=0):
        """True once an answer or the end can be read."""
        return b"\n" in self._buffer or bool(
            select.select([self.process.stdout], [], [], seconds)[0])

    def answer(self):
        end = time.monotonic() + HANG_S
        while b"\n" not in self._buffer:
            if not self.answered(max(0, end - time.monotonic())):
                raise Failed(f"no answer within {HANG_S:.0f} s after {self.said}")
            more = os.read(self.process.stdout.fileno(), 65536)
            if not more:
                raise Ended()
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        text = line.decode("utf-8", "replace")
        self.said.append(text)
        return text

    def ask(self, *words):
        self.send(*words)
        self.said.append(" ".join(map(str, words)))
        return self.answer()

    def finish(self):
        """Closes its input and waits for the end: exit code and what it said."""
        try:
            _, said = self.process.communicate(timeout=HANG_S)
        except subprocess.TimeoutExpired:
            raise Failed(f"did not end within {HANG_S:.0f} s after {self.said}") from None
        return self.process.returncode, said.decode("utf-8", "replace")

    def kill(self):
        self.process.kill()
        self.process.communicate()


def numbers(count, most=None):
    """Which calls to let fail: all, or a few spread over 1..count."""
    most = SAMPLE if most is None else most
    if ALL or count <= most:
        return list(range(1, count + 1))
    return sorted({1 + round(i * (count - 1) / (most - 1)) for i in range(most)})


class Report:
    """Runs of one test; the lines go out as TAP remarks, and failures at the end."""

    def __init__(self):
        self.lock = threading.Lock()
        self.runs = 0
        self.failures = []
        self.outcomes = {}

    def note(self, outcome):
        with self.lock:
            self.runs += 1
            self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def failed(self, spec, page, why):
        with self.lock:
            self.runs += 1
            self.failures.append(f"{spec} ({page.where() or 'no fault'}): {why}")
            print("# FAILED", self.failures[-1].replace("\n", "\n# "), flush=True)

    def tell(self, what, count):
        """One line about the runs since the last one."""
        told = ", ".join(f"{n} {text}" for text, n in sorted(self.outcomes.items()))
        print(f"# {what}: {count} calls, {self.runs} runs: {told}", flush=True)
        self.runs, self.outcomes = 0, {}

    def end(self):
        if self.failures:
            raise Failed("\n".join([f"{len(self.failures)} runs failed"]
                                   + self.failures[:40]))


def each(report, specs, run):
    """Runs run(spec, page) for each of the pairs, several at a time."""
    def one(pair):
        spec, page = pair
        try:
            report.note(run(spec, page))
        except Failed as e:
            report.failed(spec, page, e)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(one, specs))


def judge_end(page, code, said, may_stop):
    """Fails unless the program ended in an allowed way. `may_stop`: memory was refused,
    so it may stop with the line that says so."""
    crash = page.crash()
    if may_stop and OUT_OF_MEMORY.search(said):
        return "stopped"
    if crash and page.their_crash() and "picket: " not in said:
        return "theirs"
    if crash or code < 0:
        raise Failed(f"ended by {crash or code}, said {said!r}")
    return "ended"

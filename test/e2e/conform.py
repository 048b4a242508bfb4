#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The conformance suite over a store of its own:

    PICKET=build/picket conform.py CONFORM STORE [TEXT]

Starts the servers of STORE (a name in stores.py) and runs each case of `CONFORM URL` over
them in a process of its own, a few at a time: mostly they wait for leases to end. Prints
TAP; a store that is not built in, or whose server can't be had here, is skipped.

Cases that are about the server itself (server__) come last, one by one. They ask for
what they want through a pair of pipes, whose numbers are in CONFORM_CONTROL: a line
"stop", "cont", "kill" or "restart", answered by "done" once that is so, else by a
sentence. "mute" and "unmute" concern clients of the URL in CONFORM_THROUGH alone: the
servers hear them, and they hear no answer.
"""
import concurrent.futures
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

import diagnose
from stores import STORES, Absent
from through import Through

# What a case may ask for, and what the runner does if it forgot to ask for that.
ACTIONS = {"stop": "cont", "cont": None, "kill": "restart", "restart": None,
           "mute": None, "unmute": None}
AT_ONCE = 4
SLOW = 0.1  # a case that takes more than this part of its limit says so
# For one case: only a hang reaches it, and fails that case alone (tap.py has HASTE).
CASE_S = 600 / float(os.environ.get("PICKET_TEST_HASTE", "1"))
POINT = re.compile(r"^(ok|not ok) 1 - (.*)$", re.MULTILINE)


def driver_missing(program, name):
    """Why the driver is not there, asked of the library; None: it is."""
    scheme = "postgres" if name.startswith("postgres") else name.rstrip("0123456789")
    done = subprocess.run([program, f"{scheme}://127.0.0.1:9", "--list"], text=True,
                          capture_output=True, check=False)
    return "not built in" if "no driver for" in done.stderr else None


def obey(store, way, requests, answers):
    """Does to the store, or to the way there, what the case asks for, until it has
    ended."""
    undo = None
    with open(requests, encoding="ascii") as lines:
        for line in lines:
            word = line.strip()
            said = "done"
            try:
                if word not in ACTIONS:
                    raise ValueError(f"there is no {word!r}")
                getattr(way if word.endswith("mute") else store, word)()
                undo = ACTIONS[word]
            except Exception as e:  # pylint: disable=broad-except
                said = f"{type(e).__name__}: {e}".replace("\n", " ")
            with contextlib.suppress(BrokenPipeError):
                os.write(answers, f"{said}\n".encode())
    if undo:  # it has failed half-way
        getattr(store, undo)()


class Case:
    """One case, run to its end: what it said, whether it is well, how long it took."""

    def __init__(self, program, store, name, controls=False):
        self.name = name
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            options = controlled(store, stack) if controls else {}
            process = subprocess.Popen([program, store.url, "=" + name], text=True,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       **options)
            for fd in options.get("pass_fds", ()):
                os.close(fd)
            try:
                said = process.communicate(timeout=CASE_S)[0]
            except subprocess.TimeoutExpired:
                doing = diagnose.processes(stacks=True)
                process.kill()
                said = "\n".join([process.communicate()[0],
                                  f"it took more than {CASE_S:.0f} s", *doing])
        self.seconds = time.monotonic() - began
        point = POINT.search(said)
        self.ok = process.returncode == 0 and point is not None and point[1] == "ok"
        self.title = point[2] if self.ok else name
        self.said = [line.removeprefix("# ") for line in said.splitlines()
                     if not re.match(r"(ok|not ok) 1 - |1\.\.1$", line)]

    def tell(self, number):
        if self.seconds > SLOW * CASE_S:
            print(f"# slow: {self.seconds:.1f} s of {CASE_S:.0f} s: {self.name}")
        for line in self.said:
            print(f"# {line}")
        print(f"{'ok' if self.ok else 'not ok'} {number} - {self.title}", flush=True)


def controlled(store, stack):
    """Popen's options for a case that may do something to the store."""
    if not store.servers:
        return {}
    to_us, to_it = os.pipe(), os.pipe()
    way = stack.enter_context(Through(store)) if not store.redirects else None
    helper = threading.Thread(target=obey, args=(store, way, to_us[0], to_it[1]))
    helper.start()
    stack.callback(os.close, to_it[1])
    stack.callback(helper.join)  # ends when the case has let go of its end
    env = dict(os.environ, CONFORM_CONTROL=f"{to_it[0]},{to_us[1]}")
    if way:
        env["CONFORM_THROUGH"] = way.url
    return {"env": env, "pass_fds": (to_it[0], to_us[1])}


def run_suite(program, store, text):
    """The cases whose name contains `text`, in their order, as they come."""
    listed = subprocess.run([program, store.url, "--list"], text=True, check=True,
                            stdout=subprocess.PIPE).stdout.split()
    names = [name for name in listed if text in name]
    last = [name for name in names if name.startswith("server__")]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(lambda name: Case(program, store, name),
                            [name for name in names if name not in last])
    for name in last:
        yield Case(program, store, name, controls=True)


@contextlib.contextmanager
def opened(program, name):
    """The store, running; or raises Absent."""
    missing = driver_missing(program, name)
    if missing:
        raise Absent(missing)
    with tempfile.TemporaryDirectory(prefix="picket-test-",
                                     ignore_cleanup_errors=True) as folder:
        with STORES[name](folder) as store:
            store.home = folder
            yield store


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[2] not in STORES:
        sys.exit(f"usage: conform.py CONFORM {'|'.join(STORES)} [TEXT]")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clean up, then end
    program, name = sys.argv[1], sys.argv[2]
    with contextlib.ExitStack() as stack:
        try:
            store = stack.enter_context(opened(program, name))
        except Absent as e:
            print(f"1..0 # SKIP {name}: {e}")
            return 0
        print(f"# {name}: {store.version()}", flush=True)
        count = failed = 0
        for case in run_suite(program, store, (sys.argv[3:] or [""])[0]):
            count += 1
            failed += not case.ok
            case.tell(count)
        print(f"1..{count}")
        if failed:
            for line in diagnose.logs(store.home):
                print(f"# {line}")
        for words in store.dead():
            print(words, file=sys.stderr)
            failed += 1
        return int(failed > 0 or count == 0)


if __name__ == "__main__":
    sys.exit(main())

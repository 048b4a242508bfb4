#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The conformance suite over a store of its own:

    PICKET=build/picket conform.py CONFORM STORE [TEXT]

Starts the servers of STORE (a name in stores.py) and runs `CONFORM URL` over them. Its
output is ours, and so is its end, unless a server died meanwhile. A store that is not
built in, or whose server can't be had here, is skipped.

Cases that are about the server itself ask for it through a pair of pipes, whose numbers
are in CONFORM_CONTROL: a line "stop", "cont", "kill" or "restart", answered by "done"
once that is so, else by a sentence.
"""
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading

from stores import STORES, Absent

ACTIONS = ("stop", "cont", "kill", "restart")


def driver_missing(program, name):
    """Why the driver is not there, asked of the library; None: it is."""
    scheme = "postgres" if name.startswith("postgres") else name.rstrip("0123456789")
    done = subprocess.run([program, f"{scheme}://127.0.0.1:9", "--list"], text=True,
                          capture_output=True, check=False)
    return "not built in" if "no driver for" in done.stderr else None


def obey(store, requests, answers):
    """Does to the store what the suite asks for, until it has ended."""
    with open(requests, encoding="ascii") as lines:
        for line in lines:
            word = line.strip()
            said = "done"
            try:
                if word not in ACTIONS:
                    raise ValueError(f"there is no {word!r}")
                getattr(store, word)()
            except Exception as e:  # pylint: disable=broad-except
                said = f"{type(e).__name__}: {e}".replace("\n", " ")
            with contextlib.suppress(BrokenPipeError):
                os.write(answers, f"{said}\n".encode())


def run_suite(program, store, words):
    """The suite's exit status. Its pipes end with it."""
    to_us, to_it = os.pipe(), os.pipe()
    env = dict(os.environ)
    if store.servers:
        env["CONFORM_CONTROL"] = f"{to_it[0]},{to_us[1]}"
    process = subprocess.Popen([program, store.url, *words], env=env,
                               pass_fds=(to_it[0], to_us[1]))
    os.close(to_it[0])
    os.close(to_us[1])
    helper = threading.Thread(target=obey, args=(store, to_us[0], to_it[1]), daemon=True)
    helper.start()
    status = process.wait()
    helper.join(5)
    return status


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[2] not in STORES:
        sys.exit(f"usage: conform.py CONFORM {'|'.join(STORES)} [TEXT]")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # clean up, then end
    program, name = sys.argv[1], sys.argv[2]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(
            prefix="picket-test-", ignore_cleanup_errors=True))
        try:
            missing = driver_missing(program, name)
            if missing:
                raise Absent(missing)
            store = stack.enter_context(STORES[name](folder))
        except Absent as e:
            print(f"1..0 # SKIP {name}: {e}")
            return 0
        print(f"# {name}: {store.version()}", flush=True)
        status = run_suite(program, store, sys.argv[3:])
        for words in store.dead():
            print(words, file=sys.stderr)
            status = status or 1
        return status


if __name__ == "__main__":
    sys.exit(main())

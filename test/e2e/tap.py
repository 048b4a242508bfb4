# SPDX-License-Identifier: MIT
"""Tests of the real program, as plain functions; TAP on stdout.

    from tap import check, equal, main, test

    @test
    def run__gives_the_child_a_token(t):
        done = t.picket("run", "db", "--", "printenv", "PICKET_TOKEN")
        equal(done.returncode, 0)
        equal(done.stdout, "1\\n")

    main()

Each test gets a fresh world: a folder of its own (t.dir), a state directory in it
(PICKET_URL), and a time limit. Whatever it started, however deep or detached, is dead
before the next test begins. The program under test is $PICKET, or build/picket. Run one
file by hand: `python3 test/e2e/test_run.py [TEXT]`, where TEXT picks tests by name.
"""
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import diagnose

# Whoever wants to hear of a failure soon, as the runner of planted mistakes does, divides
# the limits by this.
HASTE = float(os.environ.get("PICKET_TEST_HASTE", "1"))
TIMEOUT_S = 600  # for one test: only a hang reaches it
WAIT_S = 120     # for one condition
SHOWN = 4000     # characters of a text that a failure shows
SLOW = 0.1       # a test that takes more than this part of its limit says so
PR_SET_CHILD_SUBREAPER = 36
NOTICE = "picket: waiting for an answer from the store "

_tests = []


def without_notices(said):
    """What a program said on stderr, without what a slow machine makes it say."""
    return "".join(line for line in said.splitlines(True) if not line.startswith(NOTICE))


class Failed(Exception):
    """A check that did not hold."""


class Hung(Failed):
    """A limit was reached. Says what all processes were doing at that moment."""

    def __init__(self, message):
        super().__init__("\n".join([message] + diagnose.processes(stacks=True)))


class Skipped(Exception):
    """This can't be tested here."""


def skip(why):
    raise Skipped(why)


def check(condition, message="not true"):
    if not condition:
        raise Failed(message)


def equal(got, wanted):
    if got != wanted:
        raise Failed(f"got {got!r}, wanted {wanted!r}")


def contains(text, part):
    if part not in text:
        shown = text if len(text) < SHOWN else text[:SHOWN] + "..."
        raise Failed(f"{part!r} is not in {shown!r}")


def wait_until(condition, seconds=WAIT_S, what="condition"):
    """Polls until condition() is true and returns its value; fails after that time."""
    end = time.monotonic() + seconds / HASTE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Hung(f"{what} did not come true within {seconds} s")
        time.sleep(0.01)


def alive(pid):
    """True while the process exists and is not a zombie."""
    stat = diagnose.stat(pid)
    return stat is not None and stat[0] not in "ZX"


def stopped(pid):
    """True while the process is stopped by a signal."""
    stat = diagnose.stat(pid)
    return stat is not None and stat[0] in "Tt"


def test(function=None, *, timeout=TIMEOUT_S):
    """Makes a function of one argument (a World) a test: @test or @test(timeout=900)."""
    if function is None:
        return lambda f: test(f, timeout=timeout)
    _tests.append((function, timeout))
    return function


class World:
    """What one test has: a folder, an environment, and ways to start the program."""

    def __init__(self, folder):
        self.dir = folder
        self.program = os.path.abspath(os.environ.get("PICKET", "build/picket"))
        self.library = os.environ.get("LIBPICKET", os.path.join(
            os.path.dirname(self.program), "libpicket.so"))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("PICKET")}
        self.env |= {"PICKET_URL": "local:" + self.path("state"), "HOME": folder,
                     "TMPDIR": folder, "LC_ALL": "C.UTF-8"}

    def path(self, name):
        return os.path.join(self.dir, name)

    def picket(self, *args, timeout=None, notices=False, **options):
        """Runs the program to its end; the result has returncode, stdout and stderr. What
        it says because this machine is slow is left out, unless `notices`."""
        done = subprocess.run([self.program, *map(str, args)], timeout=timeout,
                              **self._options(options), check=False)
        if not notices and isinstance(done.stderr, str):
            done.stderr = without_notices(done.stderr)
        return done

    def start(self, *args, **options):
        """Starts the program and returns its Popen; stdout and stderr are text pipes."""
        return subprocess.Popen([self.program, *map(str, args)], **self._options(options))

    def write(self, name, text, mode=0o644):
        """Makes a file in the test's folder and returns its path."""
        path = self.path(name)
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(path, mode)
        return path

    def read(self, name):
        """The text of a file in the test's folder; empty when there is none."""
        try:
            with open(self.path(name), encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def _options(self, given):
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
                   "stderr": subprocess.PIPE, "text": True, "cwd": self.dir}
        options |= given
        options["env"] = self.env | given.get("env", {})
        if "input" in given:
            del options["stdin"]
        return options


def _kill_descendants():
    """Orphans come to us (we are their subreaper), so nothing gets away by detaching."""
    while True:
        pids = diagnose.descendants()
        if not pids:
            return
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        time.sleep(0.005)


def _on_alarm(_signal, _frame):
    raise Hung("the test took too long")


def _with_logs(why, folder):
    return "\n".join([why] + diagnose.logs(folder))


def _run(function, timeout, place):
    """None when the test passes, else why it did not."""
    folder = tempfile.mkdtemp(prefix="picket-test-", dir=place)
    try:
        signal.alarm(max(1, int(timeout / HASTE)))
        function(World(folder))
        return None
    except Skipped:
        raise
    except Failed as e:
        line = traceback.extract_tb(e.__traceback__)
        own = [f for f in line if f.filename != __file__]
        last = own[-1] if own else line[-1]
        return _with_logs(f"{os.path.basename(last.filename)}:{last.lineno}: {e}", folder)
    except Exception:  # pylint: disable=broad-except
        return _with_logs(traceback.format_exc(), folder)
    finally:
        signal.alarm(0)
        _kill_descendants()
        shutil.rmtree(folder, ignore_errors=True)


def main(on_disk=False):
    """Runs the tests in the order of the file and exits. `on_disk` is for those whose
    subject is the disk: temporary folders may be in memory (tools/test.sh)."""
    sys.stdout.reconfigure(line_buffering=True)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):  # as nohup does
        if signal.getsignal(ignored) == signal.SIG_IGN:
            signal.signal(ignored, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, _on_alarm)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up, then end
    text = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [(f, timeout) for f, timeout in _tests if text in f.__name__]
    place = os.environ.get("PICKET_TEST_DISK") if on_disk else None
    failed = 0
    print(f"1..{len(chosen)}")
    for number, (function, timeout) in enumerate(chosen, 1):
        why, reason, began = None, "", time.monotonic()
        try:
            why = _run(function, timeout, place)
        except Skipped as e:
            reason = f" # SKIP {e}"
        for line in (why or "").splitlines():
            print(f"# {line}")
        failed += why is not None
        took = time.monotonic() - began
        if took > SLOW * timeout / HASTE:
            print(f"# slow: {took:.1f} s of {timeout / HASTE:.0f} s: {function.__name__}")
        print(f"{'not ok' if why else 'ok'} {number} - {function.__name__}{reason}")
    sys.exit(1 if failed or not chosen else 0)

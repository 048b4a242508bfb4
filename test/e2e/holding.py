# SPDX-License-Identifier: MIT
"""What tests of the command line share: results, holders, waiters, their words."""
import json
import os
import signal
import subprocess

from tap import Failed, equal, stopped, wait_until


def ok(done, code=0):
    """The output of a program that ended with this code and, if 0, without a word."""
    equal((done.returncode, done.stderr if code == 0 else ""), (code, ""))
    return done.stdout


def parsed(done, code=0):
    return json.loads(ok(done, code))


def freeze(*pids):
    """Stops the processes, but none within its turn at the embedded store: that would
    keep everybody out."""
    def outside():
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: all(map(stopped, pids)), what="the pause")
        with open("/proc/locks", encoding="ascii") as f:
            locks = [line.split() for line in f]
        owners = {int(words[4]) for words in locks if words[1] == "FLOCK"}
        if owners.isdisjoint(pids):
            return True
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        return False
    wait_until(outside, what="a pause outside of a turn")


def line_with(stream, part):
    """Reads lines until one has this part in it, and returns that one."""
    for line in stream:
        if part in line:
            return line
    raise Failed(f"{part!r} was never said")


def hold(t, *words):
    """Starts a holder and returns once its command runs; let_go() ends it."""
    holder = t.start("run", "-v", *words, "--", "cat", stdin=subprocess.PIPE)
    line_with(holder.stderr, "running cat")
    return holder


def let_go(holder):
    """Ends a holder's command and waits for the lock to be released."""
    holder.stdin.close()
    equal(holder.wait(), 0)


def waiting(t, *words, command=("true",)):
    """Starts somebody who waits for a lock, and returns once in the queue."""
    waiter = t.start("run", "-v", *words, "--", *command)
    line_with(waiter.stderr, "waiting for")
    return waiter

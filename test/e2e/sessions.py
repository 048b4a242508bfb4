# SPDX-License-Identifier: MIT
"""The command line of a database in a pipe: a client as people have it, which can be
stopped and killed. databases.py makes them."""
import contextlib
import os
import signal
import subprocess

from tap import equal

MARK = "--picket-mark--"  # printed by the command line when it is done with a request


class Answer:
    """What a command line printed: rows as text, and the error if there was one."""

    WORDS = {"picket: stale": "stale", "picket: unclaimed": "unclaimed",
             "picket: no token": "no token", "picket: no name": "no name",
             "read before it claimed": "again", "could not serialize": "again",
             "Deadlock found": "again", "deadlock detected": "again",
             "database is locked": "again", "permission denied": "denied",
             "command denied": "denied", "(error) STALE": "stale",
             "(error) UNCLAIMED": "unclaimed", "(error) BADARG": "no token"}

    def __init__(self, lines):
        errors = [n for n, line in enumerate(lines)
                  if line.startswith(("ERROR", "Error", "Runtime error", "Parse error",
                                      "(error)"))]
        self.rows = lines[:errors[0]] if errors else lines
        self.error = "\n".join(lines[errors[0]:]) if errors else ""

    @property
    def word(self):
        """"ok", or in a word how it was refused."""
        if not self.error:
            return "ok"
        return next((word for text, word in self.WORDS.items() if text in self.error),
                    self.error)


class Session:
    """One connection: the database's command line, asked and answered through pipes."""

    def __init__(self, argv, mark, end=";"):
        self._mark = mark
        self._end = end
        self._process = subprocess.Popen(
            ["stdbuf", "-oL", *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, bufsize=1)

    @property
    def pid(self):
        return self._process.pid

    def send(self, *statements):
        """Sends without waiting for the answer."""
        with contextlib.suppress(BrokenPipeError):
            for statement in statements:
                self._process.stdin.write(statement.rstrip(";") + self._end + "\n")
            self._process.stdin.write(self._mark + "\n")
            self._process.stdin.flush()

    def answer(self):
        lines = []
        for line in self._process.stdout:
            if line.strip() in (MARK, f'"{MARK}"'):
                return Answer(lines)
            lines.append(line.rstrip("\n"))
        return Answer([*lines, "ERROR: the session has ended"])

    def ask(self, *statements):
        self.send(*statements)
        return self.answer()

    def value(self, statement):
        """The first row of a statement that has to succeed."""
        answer = self.ask(statement)
        equal(answer.word, "ok")
        return answer.rows[0] if answer.rows else None

    def done(self, *statements):
        """Statements that have to succeed."""
        equal(self.ask(*statements).word, "ok")

    def stop(self):
        os.kill(self._process.pid, signal.SIGSTOP)

    def cont(self):
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self):
        self._process.kill()
        self._process.wait()

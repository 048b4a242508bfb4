# SPDX-License-Identifier: MIT
"""A storm of zombies: holders of a lock that nobody tells when they have lost it.

    storm = Storm(attempt, writes=25)   # attempt(token, think) does one read, change and
    storm.words                         # write, and says in a word how that ended

Each holder has a token and a thread, and comes when the one before it has tried some
writes. That one goes on as before: from then on it is a zombie.
"""
import random
import threading
import time

ZOMBIES = 8
SETTLED = 3  # writes that a holder has tried when the next one comes
PAUSE_S = 0.005  # at most, between reading and writing, and between writes


class Storm:
    def __init__(self, attempts, writes):
        """`attempts`: one for each holder, the token being its place from 1 on."""
        self.words = []
        self._writes = writes
        self._failure = None
        threads = []
        for token, attempt in enumerate(attempts, 1):
            settled = threading.Event()
            threads.append(threading.Thread(target=self._hold, daemon=True,
                                            args=(token, attempt, settled)))
            threads[-1].start()
            settled.wait()
        for thread in threads:
            thread.join()
        if self._failure:
            raise self._failure

    def _hold(self, token, attempt, settled):
        rng = random.Random(token)

        def think():
            time.sleep(rng.random() * PAUSE_S)
        try:
            for i in range(1, self._writes + 1):
                self.words.append(attempt(token, think))
                if i == SETTLED:
                    settled.set()
                think()
        except Exception as e:  # pylint: disable=broad-except
            self._failure = e
        finally:
            settled.set()


def stale_among(tokens):
    """How many of the tokens, in the order in which their writes were accepted, came
    after a higher one."""
    highest = stale = 0
    for token in tokens:
        stale += token < highest
        highest = max(highest, token)
    return stale


def report(name, storm, writes, stale, lost):
    """One line of TAP comment about what came of it."""
    print(f"# {name}: {ZOMBIES} zombies x {writes} writes tried, "
          f"{storm.words.count('ok')} accepted, {storm.words.count('stale')} refused, "
          f"stale accepted {stale}, updates lost {lost}")

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The demonstration of what a failover does: it must show what it promises to."""
import os
import subprocess
import sys

from tap import check, contains, equal, main, test

DEMO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools",
                    "demo-redis-failover.py")


@test
def demo__shows_two_holders_on_redis_and_one_on_picket(t):
    done = subprocess.run([sys.executable, DEMO], text=True, capture_output=True,
                          env=t.env | {"PICKET": t.program}, check=False)
    check(done.returncode == 0, done.stdout + done.stderr)
    equal(done.stderr, "")
    contains(done.stdout, "TWO HOLDERS at once: A with token 2, B with token 2")
    contains(done.stdout, "ONE HOLDER at a time, and tokens grow")


main()

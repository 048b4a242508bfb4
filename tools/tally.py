#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts the tests of finished `meson test` runs: tools/tally.py FOLDER:EXIT-STATUS...

Shows the output of each test program that failed. A program that speaks TAP counts as
its test points, any other as one. A run that ended badly without saying why is one more
failure. The last line is `N passed, N failed`; exits 1 if any failed.
"""
import json
import os
import re
import sys

POINT = re.compile(r"^(ok|not ok)\b(.*)$", re.MULTILINE)
SKIP = re.compile(r"#\s*skip", re.IGNORECASE)


def count(run):
    """Passed, failed and skipped points of one test program's run."""
    if run["result"] == "SKIP":
        return 0, 0, 1
    good = run["result"] == "OK"
    points = POINT.findall(run.get("stdout", ""))
    if not points:
        return int(good), int(not good), 0
    skipped = sum(bool(SKIP.search(rest)) for _, rest in points)
    failed = sum(word == "not ok" and not SKIP.search(rest) for word, rest in points)
    passed = len(points) - skipped - failed
    # A crash or a missing plan is a failure too, though no line says so.
    return passed, max(failed, int(not good)), skipped


def show(folder, run):
    print(f"\n--- {folder}: {run['name']}: {run['result']} (exit {run['returncode']})")
    print("    " + " ".join(run["command"]))
    for stream in ("stdout", "stderr"):
        if run.get(stream):
            print(run[stream].rstrip())


def count_folder(folder, status):
    """The points of all that ran in a build folder; shows what failed."""
    total = (0, 0, 0)
    log = os.path.join(folder, "meson-logs", "testlog.json")
    if os.path.exists(log):
        with open(log, encoding="utf-8") as f:
            for run in map(json.loads, f):
                points = count(run)
                total = tuple(map(sum, zip(total, points)))
                if points[1]:
                    show(folder, run)
    if total[1] == 0 and (status != "0" or total[0] == 0):
        print(f"\n--- {folder}: did not build or did not finish (exit {status})")
        return total[0], 1, total[2]
    return total


def main():
    counts = [count_folder(*argument.rsplit(":", 1)) for argument in sys.argv[1:]]
    passed, failed, skipped = map(sum, zip(*counts))
    if skipped:
        print(f"{skipped} skipped")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

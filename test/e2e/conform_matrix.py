#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""All stores beside each other: the conformance suite as a table, store x case.

    conform_matrix.py [--conform build/test/conform] [--only TEXT] [STORE...]

Prints a Markdown table: "yes" where a case passed; "-" where the store does not declare
what it is about, which a case refused__... has seen it refuse; nothing where there is
nothing to refuse or no server to kill; FAIL, with what was said below. Then the seconds
and the servers. Exits 1 if anything failed.
"""
import argparse
import collections
import concurrent.futures
import os
import signal
import sys
import time

from conform import opened, run_suite
from stores import STORES, Absent

Column = collections.namedtuple("Column", "name version cases seconds problem")
BUILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")


def word_of(case):
    if not case.ok:
        return "FAIL"
    why = case.title.partition("# SKIP ")[2]
    return "yes" if not why else "-" if why.startswith("not declared") else ""


def run(program, name, text):
    """One store's column."""
    began = time.monotonic()
    try:
        with opened(program, name) as store:
            version = store.version()
            cases = {}
            for case in run_suite(program, store, text):
                cases[case.name] = case
            problem = "; ".join(store.dead())
    except Absent as e:
        return Column(name, f"not run: {e}", {}, 0, "")
    except Exception as e:  # pylint: disable=broad-except
        return Column(name, "?", {}, 0, f"{type(e).__name__}: {e}")
    seconds = time.monotonic() - began
    well = sum(case.ok for case in cases.values())
    print(f"{name}: {well} of {len(cases)} in {seconds:.0f} s", file=sys.stderr)
    return Column(name, version, cases, seconds, problem)


def print_table(columns):
    shown = [c for c in columns if c.cases]
    names = list(dict.fromkeys(name for c in shown for name in c.cases))
    wide = max(map(len, names), default=4)

    def row(head, words):
        cells = (f"{word:^{max(4, len(c.name))}}" for word, c in zip(words, shown))
        print(f"| {head:{wide}} | " + " | ".join(cells) + " |")

    row("case", [c.name for c in shown])
    row("---", ["---"] * len(shown))
    for name in names:
        row(name, [word_of(c.cases[name]) if name in c.cases else "" for c in shown])
    counts = [collections.Counter(map(word_of, c.cases.values())) for c in shown]
    row("passed", [n["yes"] for n in counts])
    row("not declared", [n["-"] for n in counts])
    row("failed", [n["FAIL"] for n in counts])
    row("seconds", [f"{c.seconds:.0f}" for c in shown])


def print_rest(columns):
    """Servers, and what went wrong; returns how much that was."""
    print()
    for c in columns:
        print(f"- {c.name}: {c.version}")
    wrong = [(c.name, case) for c in columns for case in c.cases.values() if not case.ok]
    for name, case in wrong:
        print(f"\n{name}: {case.name}")
        for line in case.said:
            print(f"    {line}")
    problems = [c for c in columns if c.problem]
    for c in problems:
        print(f"\n{c.name}: {c.problem}")
    return len(wrong) + len(problems)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conform", default=os.path.join(BUILD, "test", "conform"))
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("stores", nargs="*", metavar="STORE")
    args = parser.parse_args()
    unknown = [name for name in args.stores if name not in STORES]
    if unknown:
        parser.error(f"no store {unknown[0]}; there are {', '.join(STORES)}")
    os.environ.setdefault("PICKET", os.path.join(BUILD, "picket"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        columns = list(pool.map(lambda name: run(args.conform, name, args.only),
                                args.stores or STORES))
    print_table(columns)
    wrong = print_rest(columns)
    print(f"\n{time.monotonic() - began:.0f} s together, "
          f"{os.cpu_count()} stores at a time")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

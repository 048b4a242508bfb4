#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prepares page.mjs: a server that shows the page, and a trace of what it did.

    SIMULATOR=build/web/simulator.html PICKET=build/picket test/web/page.py [TEXT]
"""
import os
import subprocess
import sys
import tempfile

from browser import PROGRAM, prepare
from cluster import Cluster


def work(program, url):
    """Something for the trace to tell of: two locks, and processes that wait."""
    jobs = [subprocess.Popen([program, "run", "--on", url, lock, "--", "true"])
            for lock in ("orders", "orders", "<b>bills", "orders")]
    for job in jobs:
        if job.wait() != 0:
            raise RuntimeError("picket run failed")


def main():
    page = os.path.abspath(os.environ["SIMULATOR"])
    browser = prepare("page.mjs")
    if browser is None:
        return 0
    with tempfile.TemporaryDirectory(prefix="picket-page-") as state:
        trace = os.path.join(state, "n1.trace")
        cluster = Cluster(PROGRAM, os.path.join(state, "c"), 1)
        cluster.nodes[0].place += ["--trace", trace]
        with cluster:
            work(PROGRAM, cluster.url)
            url = f"http://127.0.0.1:{cluster.nodes[0].http_port}/"
            return browser.run(page, url, PROGRAM, trace)


sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prepares page.mjs: its packages, a server that shows the page, a place for pictures.

    SIMULATOR=build/web/simulator.html PICKET=build/picket test/web/page.py [TEXT]
"""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from cluster import Cluster  # pylint: disable=wrong-import-position
from npm import install  # pylint: disable=wrong-import-position


def work(program, url):
    """Something for the trace to tell of: two locks, and processes that wait."""
    jobs = [subprocess.Popen([program, "run", "--on", url, lock, "--", "true"])
            for lock in ("orders", "orders", "<b>bills", "orders")]
    for job in jobs:
        if job.wait() != 0:
            raise RuntimeError("picket run failed")


def main():
    program = os.path.abspath(os.environ.get("PICKET", "build/picket"))
    page = os.path.abspath(os.environ["SIMULATOR"])
    beside = os.path.dirname(program)
    folder = os.path.join(beside, "page_node")
    shots = os.path.join(beside, "screenshots")
    chromium = shutil.which("chromium")
    reason = "Chromium is not installed" if chromium is None else install(
        os.path.join(HERE, "node"), folder)
    if reason is not None:
        print(f"1..0 # SKIP {reason}")
        return 0
    os.makedirs(shots, exist_ok=True)
    for name in ("browser.mjs", "page.mjs"):
        shutil.copy(os.path.join(HERE, name), folder)
    with tempfile.TemporaryDirectory(prefix="picket-page-") as state:
        trace = os.path.join(state, "n1.trace")
        cluster = Cluster(program, os.path.join(state, "c"), 1)
        cluster.nodes[0].place += ["--trace", trace]
        with cluster:
            work(program, cluster.url)
            url = f"http://127.0.0.1:{cluster.nodes[0].http_port}/"
            return subprocess.run(
                ["node", "page.mjs", chromium, page, url, shots, program, trace],
                cwd=folder, check=False,
                env=os.environ | {"ONLY": sys.argv[1] if len(sys.argv) > 1 else ""}
            ).returncode


sys.exit(main())

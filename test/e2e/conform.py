#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The conformance suite over a store of its own:

    PICKET=build/picket conform.py CONFORM NODES [TEXT]

Starts that many servers and runs `CONFORM picket://...` over them, or with 0 over the
embedded store. Its output is ours, and so is its end, unless a server died meanwhile.
"""
import contextlib
import os
import subprocess
import sys
import tempfile

from cluster import Cluster


def main():
    program, nodes = sys.argv[1], int(sys.argv[2])
    picket = os.path.abspath(os.environ.get("PICKET", "build/picket"))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="picket-test-"))
        url, servers = f"local:{folder}/state", []
        if nodes > 0:
            cluster = stack.enter_context(Cluster(picket, folder, nodes))
            url, servers = cluster.url, cluster.nodes
        done = subprocess.run([program, url, *sys.argv[3:]], check=False)
        for node in servers:
            if not node.alive():
                print(f"{node.name} did not live to see the end\n{node.last_words()}",
                      file=sys.stderr)
                return 1
        return done.returncode


if __name__ == "__main__":
    sys.exit(main())

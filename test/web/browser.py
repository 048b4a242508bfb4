# SPDX-License-Identifier: MIT
"""What the tests in a browser need: packages, Chromium, a place for pictures.

    browser = prepare("page.mjs")       # None: it has said why it can't be done here
    sys.exit(browser.run(url, ...))     # node page.mjs CHROMIUM SHOTS url ...
"""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from npm import install  # pylint: disable=wrong-import-position

PROGRAM = os.path.abspath(os.environ.get("PICKET", "build/picket"))


class Browser:
    """One script of tests, in a folder beside the program with all that it imports."""

    def __init__(self, script, folder, chromium):
        self._script, self._folder, self._chromium = script, folder, chromium
        self._shots = os.path.join(os.path.dirname(PROGRAM), "screenshots")
        os.makedirs(self._shots, exist_ok=True)
        for name in ("browser.mjs", script):
            shutil.copy(os.path.join(HERE, name), folder)

    def run(self, *words):
        """Runs the tests, or those with the text of the command line in their names."""
        only = {"ONLY": sys.argv[1] if len(sys.argv) > 1 else ""}
        return subprocess.run(
            ["node", self._script, self._chromium, self._shots, *words],
            cwd=self._folder, check=False, env=os.environ | only).returncode


def prepare(script):
    folder = os.path.join(os.path.dirname(PROGRAM), script.replace(".mjs", "_node"))
    chromium = shutil.which("chromium")
    reason = "Chromium is not installed" if chromium is None else install(
        os.path.join(HERE, "node"), folder)
    if reason is not None:
        print(f"1..0 # SKIP {reason}")
        return None
    return Browser(script, folder, chromium)

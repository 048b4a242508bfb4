# SPDX-License-Identifier: MIT
"""Packages of npm for tests: installed once for each state of a lock file, beside the
program under test, and done without where the registry can't be reached."""
import contextlib
import os
import shutil
import subprocess

from tap import check

NETWORK = ("ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT",
           "ENETUNREACH", "EHOSTUNREACH", "E403", "E503",
           "SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_GET_ISSUER_CERT")


def read(path):
    with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as f:
        return f.read()
    return ""


def install(source, folder):
    """Installs what source/package-lock.json names into folder, if it is not there.
    Returns why that can't be done, or None."""
    if shutil.which("npm") is None:
        return "npm is not installed"
    os.makedirs(folder, exist_ok=True)
    lock = os.path.join(folder, "package-lock.json")
    wanted = read(os.path.join(source, "package-lock.json"))
    done = os.path.join(folder, "installed")
    if read(lock) == wanted and os.path.exists(done):
        return None
    with contextlib.suppress(FileNotFoundError):
        os.remove(done)
    for file in ("package.json", "package-lock.json"):
        shutil.copy(os.path.join(source, file), folder)
    npm = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts",
                          "--fetch-retries=1", "--fetch-retry-mintimeout=1000",
                          "--fetch-timeout=20000"],
                         cwd=folder, capture_output=True, text=True, check=False)
    if npm.returncode != 0:
        network = [word for word in NETWORK if word in npm.stderr]
        check(network, npm.stderr)
        return f"the package registry can't be reached ({network[0]})"
    with open(done, "w", encoding="utf-8"):
        pass
    return None

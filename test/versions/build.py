#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Builds a program of the next version.

    test/versions/build.py BUILD PROGRAM

Copies the sources to PROGRAM.tree, makes the changes of next.txt there, and builds
`picket` with the settings of the build folder BUILD. A second call builds only what has
changed since. A change whose text is no longer in the sources is an error.
"""
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "test", "mutants"))

from mutants import Broken, parse, replaced  # pylint: disable=wrong-import-position

# What the program is made of; the tests are declared, but not built.
PARTS = ("include", "src", "scenarios", "test", "bench", "examples", "web", "docs",
         "packaging", "tools", "meson.build", "meson_options.txt", "LICENSE")
SETTINGS = ("buildtype", "optimization", "debug", "b_sanitize", "b_lundef")


def sources():
    for part in PARTS:
        path = os.path.join(ROOT, part)
        if os.path.isfile(path):
            yield part
        for folder, folders, names in os.walk(path):
            folders[:] = [f for f in folders if f not in ("__pycache__", "corpus")]
            for name in names:
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def put(path, text):
    """Writes a file only if it is another one by then, so that ninja sees no change."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if os.path.exists(path):
        with open(path, "rb") as f:
            if f.read() == text:
                return
    with open(path, "wb") as f:
        f.write(text)


def copy(tree):
    changed = {path: replaced(path, texts).encode()
               for m in parse(os.path.join(HERE, "next.txt")) for path, texts in m.files}
    for path in sources():
        if path in changed:
            put(os.path.join(tree, path), changed[path])
            continue
        with open(os.path.join(ROOT, path), "rb") as f:
            put(os.path.join(tree, path), f.read())
        shutil.copymode(os.path.join(ROOT, path), os.path.join(tree, path))


def settings(build):
    """Those of the build folder, as arguments of `meson setup`."""
    told = subprocess.run(["meson", "introspect", "--buildoptions", build], check=True,
                          stdout=subprocess.PIPE)
    for option in json.loads(told.stdout):
        if option["name"] in SETTINGS or option["section"] == "user":
            value = option["value"]
            value = str(value).lower() if isinstance(value, bool) else value
            yield f"-D{option['name']}={value}"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    build, program = map(os.path.abspath, sys.argv[1:])
    tree, made = program + ".tree", program + ".build"
    try:
        copy(tree)
    except Broken as e:
        sys.exit(f"next.txt: {e}")
    if not os.path.exists(os.path.join(made, "build.ninja")):
        shutil.rmtree(made, ignore_errors=True)
        subprocess.run(["meson", "setup", made, tree, *settings(build)], check=True,
                       stdout=subprocess.DEVNULL)
    done = subprocess.run(["ninja", "-C", made, "picket"], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(done.stdout)
    shutil.copy2(os.path.join(made, "picket"), program)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The page runs what the product runs: the same random worlds come to the same natively
and as WebAssembly (in Node), down to each sentence and each mark of the picture.

    WORLD_WASM=build/web/world.wasm PARITY=build/test/parity test/web/parity.py
"""
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "e2e"))
from tap import check, equal, main, skip, test  # pylint: disable=wrong-import-position

SEEDS = os.environ.get("PARITY_SEEDS", "1000")
WASM = os.environ["WORLD_WASM"]
MAGIC = b"\0asm\1\0\0\0"
IMPORTS = 2  # the section's number


def lines_of(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def leb(data, at):
    """An unsigned number in the format's own encoding, and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7f) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at


def sections(data):
    equal(data[:8], MAGIC)
    at = 8
    while at < len(data):
        number = data[at]
        size, at = leb(data, at + 1)
        yield number, data[at:at + size]
        at += size


@test
def native_and_wasm_worlds_come_to_the_same(_t):
    if shutil.which("node") is None:
        skip("there is no Node.js")
    native = lines_of(os.environ["PARITY"], SEEDS)
    page = lines_of("node", os.path.join(HERE, "parity.mjs"), WASM, SEEDS)
    equal(len(native), 4 * int(SEEDS))
    equal(len({line.split()[3] for line in native}), len(native))
    different = [pair for pair in zip(native, page) if pair[0] != pair[1]]
    check(not different and len(native) == len(page),
          f"{len(different)} of {len(native)} differ, the first: {different[:1]}")


@test
def the_module_imports_nothing(_t):
    with open(WASM, "rb") as f:
        data = f.read()
    numbers = [number for number, _ in sections(data)]
    check(len(numbers) > 3 and IMPORTS not in numbers, f"sections {numbers}")


main()

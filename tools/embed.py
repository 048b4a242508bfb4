#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A text file as a C string, so that SQL and Lua can be read where they are written.

    tools/embed.py INPUT OUTPUT SYMBOL

Bytes and not a literal, because C promises no literals of more than 4095 characters.
"""
import sys

COLUMNS = 24


def main():
    source, target, symbol = sys.argv[1:]
    with open(source, "rb") as f:
        data = f.read() + b"\0"
    rows = [data[i:i + COLUMNS] for i in range(0, len(data), COLUMNS)]
    with open(target, "w", encoding="ascii") as f:
        f.write(f"extern const char {symbol}[];\n")
        f.write(f"const char {symbol}[] = {{\n" + "".join(
            ", ".join(map(str, row)) + ",\n" for row in rows) + "};\n")


main()

#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A packed page as C, for the server to show.

    web/embed.py page.html page.c SYMBOL

SYMBOL is a struct pk_page (server/page.h): the bytes, the same by gzip, a tag that
changes with them, and the page's own Content-Security-Policy.
"""
import gzip
import hashlib
import re
import sys

COLUMNS = 24
POLICY = re.compile(rb'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')


def array(name, data):
    rows = [data[i:i + COLUMNS] for i in range(0, len(data), COLUMNS)]
    return (f"static const unsigned char {name}[] = {{\n"
            + "".join(", ".join(map(str, row)) + ",\n" for row in rows) + "};\n")


def main():
    source, target, symbol = sys.argv[1:]
    with open(source, "rb") as f:
        page = f.read()
    policy = POLICY.search(page).group(1).decode()
    tag = hashlib.sha256(page).hexdigest()[:16]
    with open(target, "w", encoding="ascii") as f:
        f.write('#include "server/page.h"\n')
        f.write(array("plain", page) + array("packed", gzip.compress(page, 9, mtime=0)))
        f.write(f"const struct pk_page {symbol} = {{plain, sizeof plain, packed,\n"
                f'sizeof packed, "\\"{tag}\\"",\n'
                f"\"{policy}; frame-ancestors 'none'\"}};\n")


main()

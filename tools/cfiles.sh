#!/bin/sh
# SPDX-License-Identifier: MIT
# Prints the C files of the tree, or of the folders given, each ended by a NUL byte.
set -eu
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- .
find "$@" \( -name .git -o -name 'build*' \) -prune -o \
    -name '*.[ch]' -type f -print0 | sort -z

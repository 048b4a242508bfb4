#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs clang-tidy over src/; 77, "skipped", where there is none.
#
#     tools/clang-tidy.sh BUILD [--deep]
#
# BUILD is a configured build folder. Without --deep the static analyzer works in its
# shallow mode, which takes a tenth of the time.
set -eu
command -v clang-tidy >/dev/null || exit 77
build=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
set -- "${2:-}" --quiet -p "$build"
if [ "$1" != --deep ]; then
    for word in -Xclang -analyzer-config -Xclang mode=shallow; do
        set -- "$@" "--extra-arg=$word"
    done
fi
shift
find src -name '*.c' -print0 |
    xargs -0 -n 1 -P "$(nproc)" clang-tidy "$@" 2>/dev/null

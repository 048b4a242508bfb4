#!/bin/sh
# SPDX-License-Identifier: MIT
# Names the C files that are not in the project's format; 77, "skipped", where there is no
# clang-format.
set -eu
command -v clang-format >/dev/null || exit 77
cd "$(dirname "$0")/.."
unformatted=$(tools/cfiles.sh | xargs -0 clang-format --dry-run 2>&1 |
    sed -n 's/^\(.*\):[0-9]*:[0-9]*: warning: .*/\1/p' | uniq)
[ -z "$unformatted" ] || {
    echo "$unformatted: run make format"
    exit 1
}

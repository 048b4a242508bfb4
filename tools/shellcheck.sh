#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs shellcheck over every shell script of the tree; 77, "skipped", where there is none.
set -eu
command -v shellcheck >/dev/null || exit 77
cd "$(dirname "$0")/.."
find . \( -name .git -o -name 'build*' \) -prune -o \
    \( -name '*.sh' -o -name '*.bash' -o -path ./.ci/run \) -type f \
    -exec shellcheck {} +

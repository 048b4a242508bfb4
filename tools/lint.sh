#!/bin/sh
# SPDX-License-Identifier: MIT
# Everything that judges the code without running it, as `make test` does, but with
# clang-tidy's analyzer at its full depth; needs a configured build/.
set -eu
cd "$(dirname "$0")/.."
failed=

step() {
    echo "lint: $1"
    shift
    "$@" || failed=1
}

step 'clang-format' tools/format.sh
step 'tidy.py' python3 tools/tidy.py
step 'shellcheck' tools/shellcheck.sh
step 'purity.sh' tools/purity.sh build/libpicket-core.a
step 'clang-tidy, which takes ten minutes' tools/clang-tidy.sh build --deep
[ -z "$failed" ] || {
    echo 'lint: findings above' >&2
    exit 1
}
echo 'lint: clean'

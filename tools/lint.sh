#!/bin/sh
# SPDX-License-Identifier: MIT
# Everything that judges the code without running it; needs a configured build/.
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh lint
failed=

step() {
    echo "lint: $1"
    shift
    "$@" || failed=1
}

# Names the files that are not formatted, without repeating each line of them.
check_format() {
    unformatted=$(tools/cfiles.sh | xargs -0 clang-format --dry-run 2>&1 |
        sed -n 's/^\(.*\):[0-9]*:[0-9]*: warning: .*/\1/p' | uniq)
    [ -z "$unformatted" ] || {
        echo "$unformatted: run make format"
        return 1
    }
}

check_tidy() {
    find src -name '*.c' -print0 |
        xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p build 2>/dev/null
}

step 'clang-format' check_format
step 'clang-tidy' check_tidy
step 'shellcheck' tools/shellcheck.sh
step 'tidy.py' python3 tools/tidy.py
step 'purity.sh' tools/purity.sh build/libpicket-core.a
[ -z "$failed" ] || {
    echo 'lint: findings above' >&2
    exit 1
}
echo 'lint: clean'

#!/bin/sh
# SPDX-License-Identifier: MIT
# The same worlds whoever compiles them: compilers.sh PROGRAM
# PROGRAM is world_digest as it was built; the sources are compiled anew by each compiler
# that is there, without optimisation and with much, and must print the same.
set -eu
program=$(realpath "${1:?usage: compilers.sh PROGRAM}")
cd "$(dirname "$0")/../.."
seeds=20
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
wanted=$("$program" $seeds)

n=0
fail=0
for compiler in "gcc -O0" "clang -O0" "clang -O3"; do
    n=$((n + 1))
    if ! command -v "${compiler%% *}" > "$folder/where"; then
        echo "ok $n - $compiler # SKIP it is not installed"
        continue
    fi
    # The list of words is meant: the compiler and its option.
    # shellcheck disable=SC2086
    $compiler -std=c11 -D_GNU_SOURCE -Isrc -Iinclude -o "$folder/digest" \
        test/world/digest.c src/sim/*.c src/core/*.c src/client/keeper.c \
        src/host/door.c src/host/memory.c
    if [ "$("$folder/digest" $seeds)" = "$wanted" ]; then
        echo "ok $n - $compiler"
    else
        echo "not ok $n - $compiler makes other worlds"
        fail=1
    fi
done
echo "1..$n"
exit $fail

#!/bin/sh
# SPDX-License-Identifier: MIT
# Runs every fuzz target for FUZZ_SECONDS under libFuzzer and the sanitizers. Starts from
# the corpus in the tree; new inputs go to build-fuzz/found/, crashes to build-fuzz/.
# Bring a finding home with: cp build-fuzz/crash-... test/fuzz/corpus/TARGET/
set -eu
cd "$(dirname "$0")/.."
seconds=${FUZZ_SECONDS:-60}
tools/setup.sh fuzz

[ -f build-fuzz/build.ninja ] ||
    CC=clang meson setup build-fuzz -Dfuzz=true \
        -Db_sanitize=address,undefined -Db_lundef=false
ninja -C build-fuzz fuzzers

for program in build-fuzz/test/fuzz_*; do
    [ -f "$program" ] || continue # not the folders beside them
    target=${program##*/fuzz_}
    mkdir -p "build-fuzz/found/$target"
    echo "fuzz: $target, $seconds s"
    "$program" -max_total_time="$seconds" -print_final_stats=1 -verbosity=0 \
        -artifact_prefix=build-fuzz/ "build-fuzz/found/$target" "test/fuzz/corpus/$target"
done

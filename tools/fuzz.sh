#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds every fuzz target under libFuzzer and the sanitizers; `make fuzz` runs them. They
# start from the corpus in the tree; new inputs go to build-fuzz/found/, crashes to
# build-fuzz/. Bring a finding home with: cp build-fuzz/crash-... test/fuzz/corpus/TARGET/
set -eu
cd "$(dirname "$0")/.."
[ -f build-fuzz/build.ninja ] ||
    CC=clang meson setup build-fuzz -Dfuzz=true \
        -Db_sanitize=address,undefined -Db_lundef=false
ninja -C build-fuzz fuzzers

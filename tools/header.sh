#!/bin/sh
# SPDX-License-Identifier: MIT
# Each public header stands alone: it compiles by itself, as C11 and as C++17.
set -eu
cd "$(dirname "$0")/.."
check() {
    for header in include/*.h; do
        "$@" -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only "$header"
    done
}
check "${CC:-clang}" -x c -std=c11
check "${CXX:-clang++}" -x c++ -std=c++17

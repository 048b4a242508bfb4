#!/bin/sh
# SPDX-License-Identifier: MIT
# The public header stands alone: it compiles by itself, as C11 and as C++17.
set -eu
cd "$(dirname "$0")/.."
check() {
    "$@" -Wall -Wextra -Wpedantic -Werror -fsyntax-only include/picket.h
}
check "${CC:-clang}" -x c -std=c11
check "${CXX:-clang++}" -x c++ -std=c++17

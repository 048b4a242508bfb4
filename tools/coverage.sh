#!/bin/sh
# SPDX-License-Identifier: MIT
# What the tests reach in src/core, by line and by branch; fails below the floor. The
# branch that a PK_ASSERT takes when we have a bug is not counted: no test may reach it.
set -eu
cd "$(dirname "$0")/.."
floor=95
tools/setup.sh coverage

[ -f build-coverage/build.ninja ] ||
    CC=gcc meson setup build-coverage -Db_coverage=true -Doptimization=0
find build-coverage -name '*.gcda' -delete
meson test -C build-coverage --print-errorlogs \
    --suite core --suite scenario --suite model --suite fuzz
gcovr --root . --filter src/core/ --branches --print-summary \
    --exclude-branches-by-pattern '.*\bPK_ASSERT\(.*' \
    --fail-under-branch "$floor" build-coverage

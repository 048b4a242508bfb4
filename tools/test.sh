#!/bin/sh
# SPDX-License-Identifier: MIT
# Builds as it ships, under the address and undefined-behaviour sanitizers, and, for what
# has threads, under the thread sanitizer; runs the tests in each and counts them. The
# last line is `N passed, N failed`. With --build-only it builds the first two and ends.
set -eu
cd "$(dirname "$0")/.."
tools/setup.sh test

# Most tests wait for real processes more than they work: two more of them at a time than
# there are cores.
MESON_TESTTHREADS=${MESON_TESTTHREADS:-$(($(nproc) + 2))}
export MESON_TESTTHREADS

# Configures folder $1 with the rest as meson's options, unless it is configured already.
configure() {
    rm -f "$1/meson-logs/testlog.json"
    [ -f "$1/build.ninja" ] || meson setup "$@"
}

configure_plain() {
    configure build
}

configure_sanitized() {
    CC=clang configure build-asan \
        -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1
}

if [ "${1:-}" = --build-only ]; then
    configure_plain && ninja -C build meson-test-prereq
    configure_sanitized && ninja -C build-asan meson-test-prereq
    exit
fi

# Temporary folders are in memory, if there is room: what tests wait for is processes, and
# a disk that stalls for a second, as that of a shared machine may, ends leases that are
# meant to live for half of it. Tests of what is on the disk get one (test/e2e/tap.py).
room_kb=$(df -kP /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
if [ "${room_kb:-0}" -gt 4000000 ]; then
    scratch=$(mktemp -d /dev/shm/picket.XXXXXX)
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 130' INT TERM
    chmod 1777 "$scratch" # as /tmp: servers run as users of their own
    cp /bin/true "$scratch"
    if "$scratch/true"; then # programs may be run there
        PICKET_TEST_DISK=${TMPDIR:-/tmp}
        TMPDIR=$scratch
        export PICKET_TEST_DISK TMPDIR
    fi
fi

echo '== as it ships (build)'
plain=0
{ configure_plain && meson test -C build; } || plain=$?

echo '== sanitized (build-asan)'
sanitized=0
{
    configure_sanitized &&
        meson test -C build-asan --no-suite lint --no-suite web
} || sanitized=$?

echo '== threads (build-tsan)'
threads=0
{
    CC=gcc configure build-tsan -Db_sanitize=thread -Doptimization=1 &&
        meson test -C build-tsan test_cas test_client test_client_callback \
            test_client_fork test_client_order test_remote test_remote_missed \
            test_remote_time test_remote_watch contend
} || threads=$?

python3 tools/tally.py "build:$plain" "build-asan:$sanitized" "build-tsan:$threads"

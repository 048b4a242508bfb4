#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs the Debian packages that a purpose needs:
#     tools/setup.sh build|test|lint|coverage|fuzz
# Silent when all of them are there. On a system without dpkg it leaves the choice to you.
set -eu

build='gcc libc6-dev meson ninja-build pkg-config'
case ${1:-} in
build) wanted=$build ;;
test) wanted="$build clang libclang-rt-14-dev python3 shellcheck" ;;
lint) wanted="$build clang-format clang-tidy python3 shellcheck" ;;
coverage) wanted="$build gcovr python3" ;;
fuzz) wanted="$build clang libclang-rt-14-dev" ;;
*)
    echo "usage: tools/setup.sh build|test|lint|coverage|fuzz" >&2
    exit 2
    ;;
esac

command -v dpkg-query >/dev/null || exit 0

missing=
for package in $wanted; do
    # shellcheck disable=SC2016 # the braces are dpkg-query's, not the shell's
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=none
    [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=
if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
        echo "picket: please install as root: apt-get install$missing" >&2
        exit 1
    fi
    as_root='sudo -n'
fi

echo "picket: installing$missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # lists of words
if ! { $as_root apt-get update -q &&
    $as_root apt-get install -y -q --no-install-recommends $missing; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "picket: could not install$missing" >&2
    exit 1
fi

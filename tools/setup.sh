#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs the Debian packages that a purpose needs:
#     tools/setup.sh build|test|lint|coverage|fuzz|bench|bench-gate
# Silent when all of them are there. On a system without dpkg it leaves the choice to you.
#
# The consensus library must be 0.22.1 or newer: older ones lose acknowledged writes.
# Debian 13 has it; on Debian 12 it comes from the backports suite of the very mirror that
# the machine is configured with. Only this library is taken from there.
set -eu

raft_least=0.22.1
build='gcc libc6-dev meson ninja-build pkg-config libuv1-dev libhttp-parser-dev libssl-dev
    libraft-dev libsqlite3-dev libpq-dev libmariadb-dev libhiredis-dev
    libcurl4-openssl-dev libjansson-dev libzookeeper-mt-dev
    clang lld-14 wasi-libc libclang-rt-14-dev-wasm32'
clang='clang libclang-rt-14-dev'
case ${1:-} in
build) wanted=$build ;;
test)
    wanted="$build $clang clang-format clang-tidy elfutils python3 shellcheck
        redis-server redis-tools python3-redis
        iproute2 iptables nodejs npm strace sqlite3 postgresql pgbouncer mariadb-server
        nginx-light etcd-server etcd-client zookeeper default-jre-headless python3-kazoo
        libcurator-recipes-java default-jdk-headless chromium"
    ;;
lint) wanted="$build clang-format clang-tidy python3 shellcheck" ;;
coverage) wanted="$build gcovr python3" ;;
fuzz) wanted="$build $clang" ;;
bench)
    wanted="$build python3 redis-server redis-tools etcd-server
        golang-go golang-etcd-server-dev zookeeper default-jre-headless
        libzookeeper-mt-dev postgresql"
    ;;
bench-gate) wanted="$build python3 nginx-light wrk" ;;
*)
    echo "usage: tools/setup.sh build|test|lint|coverage|fuzz|bench|bench-gate" >&2
    exit 2
    ;;
esac

command -v dpkg-query >/dev/null || exit 0

version_of() { # version_of PACKAGE: what is installed, or nothing
    # shellcheck disable=SC2016 # the braces are dpkg-query's, not the shell's
    dpkg-query -W -f '${db:Status-Status} ${Version}' "$1" 2>/dev/null |
        sed -n 's/^installed //p'
}

missing=
for package in $wanted; do
    if [ "$package" = libraft-dev ]; then
        have=$(version_of libraft-dev)
        dpkg --compare-versions "${have:-0}" ge "$raft_least" ||
            missing="$missing $package"
    elif [ "$package" = npm ]; then
        command -v npm >/dev/null || missing="$missing $package"
    else
        [ -n "$(version_of "$package")" ] || missing="$missing $package"
    fi
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

# shellcheck disable=SC1091 # where it is, it is the same everywhere
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")

# What apt would install of PACKAGE.
candidate_of() {
    LC_ALL=C apt-cache policy "$1" | sed -n 's/^  Candidate: //p'
}

# Prints the machine's own source entry for $codename, with the backports suite instead.
backports_entries() {
    sed -n "s/^\(deb .*\) $codename \(main.*\)$/\1 $codename-backports \2/p" \
        /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | head -n 1
}

backports_stanza() {
    cat /etc/apt/sources.list.d/*.sources 2>/dev/null | awk -v codename="$codename" '
        BEGIN { RS = ""; FS = "\n" }
        /(^|\n)Types:[^\n]*deb/ && $0 ~ "(^|\n)Suites:([^\n]* )?" codename "( |\n|$)" {
            for (i = 1; i <= NF; i++) {
                if ($i ~ /^Suites:/) print "Suites: " codename "-backports"
                else if ($i !~ /^#/) print $i
            }
            exit
        }'
}

# Lets apt see the backports suite, if that is where the library is.
enable_backports() {
    entry=$(backports_entries)
    file=/etc/apt/sources.list.d/picket-backports.list
    if [ -z "$entry" ]; then
        entry=$(backports_stanza)
        file=/etc/apt/sources.list.d/picket-backports.sources
    fi
    if [ -z "$entry" ]; then
        echo "picket: libraft $raft_least is needed; no source for $codename found" \
            "to take its backports from" >&2
        return 1
    fi
    echo "picket: adding $codename-backports for libraft"
    printf '%s\n' "$entry" | $as_root tee "$file" >/dev/null
    $as_root apt-get update -q
}

install() {
    $as_root apt-get install -y -q --no-install-recommends "$@"
}

install_raft() {
    if dpkg --compare-versions "$(candidate_of libraft-dev)" ge "$raft_least"; then
        install libraft-dev
        return
    fi
    { apt-cache madison libraft-dev | grep -q "$codename-backports" ||
        enable_backports; } &&
        install -t "$codename-backports" libraft-dev
}

install_all() {
    $as_root apt-get update -q || return
    # shellcheck disable=SC2086 # lists of words
    plain=$(printf '%s\n' $missing | grep -v '^libraft-dev$')
    # shellcheck disable=SC2086
    [ -z "$plain" ] || install $plain || return
    case $missing in
    *libraft-dev*) install_raft ;;
    esac
}

# Servers that tests start by themselves must not be started by their packages.
hold_services() {
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        printf '#!/bin/sh\nexit 101\n' | $as_root tee /usr/sbin/policy-rc.d >/dev/null
        $as_root chmod 755 /usr/sbin/policy-rc.d
        held=yes
    fi
}

echo "picket: installing$(echo "$missing" | tr -s ' \n' ' ')"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
held=
trap 'rm -f "$log"; [ -z "$held" ] || $as_root rm -f /usr/sbin/policy-rc.d' EXIT
hold_services
if ! install_all >"$log" 2>&1; then
    cat "$log" >&2
    echo "picket: could not install$missing" >&2
    exit 1
fi

#!/bin/sh
# SPDX-License-Identifier: MIT
# Proves on the object files that the core is pure: tools/purity.sh libpicket-core.a
# (several libraries: that they are, taken together)
#   - it imports nothing but a few memory functions and the two doors of src/core/door.h,
#     so it has no clock, no I/O, no random numbers, no threads, no allocator of its own;
#   - it defines no writable data, so it has no state outside the machine it is given.
set -eu

[ $# -gt 0 ] || { echo 'usage: tools/purity.sh LIBRARY.a...' >&2 && exit 2; }

# What the C library and the compiler may be asked for; _chk is the fortified form.
allowed='memcpy|memmove|memset|memcmp|memchr|strlen'
allowed="($allowed|__(memcpy|memmove|memset)_chk|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_)"
doors='(pk_door_resize|pk_door_stop)'

# "object symbol type section" of every symbol, from nm's portable columns.
symbols=$(nm --format=sysv "$@" | awk -F'|' '
    /^Symbols from / { object = $0; gsub(/.*\[|\]:.*/, "", object) }
    NF == 7 { gsub(/ /, ""); if ($3 != "Class") print object, $1, $3, $7 }')
if [ -z "$symbols" ]; then
    echo "$*: no symbols; is this the core library?" >&2
    exit 1
fi

findings=$(echo "$symbols" | awk -v allowed="^($allowed|$doors)\$" '
    { object[NR] = $1; name[NR] = $2; type[NR] = $3; section[NR] = $4 }
    $3 ~ /^[A-Z]$/ && $3 != "U" { defined[$2] = 1 }
    END {
        for (i = 1; i <= NR; i++) {
            if (type[i] ~ /^[Uwv]$/ && !(name[i] in defined) && name[i] !~ allowed)
                print object[i] ": imports " name[i]
            # Constants that hold addresses live in .data.rel.ro: read-only once loaded.
            if (type[i] ~ /^[BbCcDdGgSs]$/ && section[i] !~ /^\.data\.rel\.ro/)
                print object[i] ": writable data " name[i] " in " section[i]
        }
    }')
if [ -n "$findings" ]; then
    echo "$findings"
    exit 1
fi

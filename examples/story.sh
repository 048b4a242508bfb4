#!/bin/sh
# SPDX-License-Identifier: MIT
# The whole story of a lock, in about five minutes of reading and ten seconds of running:
#     examples/story.sh
# It needs the program picket and nothing else. Everything happens in a temporary
# directory; with PICKET_URL set, on that store, under names that begin with story/.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
command -v picket >/dev/null || PATH=$here/../build:$PATH
command -v picket >/dev/null || {
    echo 'story: no program picket; build it with make build' >&2
    exit 125
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
: "${PICKET_URL:=local:$folder/state}"
export PICKET_URL
cd "$folder"

say() { # say TEXT...: a paragraph
    printf '\n'
    printf '%s\n' "$@"
}

show() { # show COMMAND...: prints it, runs it, and says how it ended if not with 0
    printf '  $'
    for word in "$@"; do
        case $word in
        *[!A-Za-z0-9/_.:=-]* | '') printf " '%s'" "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    code=0
    "$@" >out 2>&1 || code=$?
    awk '{ print "    " $0 }' out
    [ "$code" -eq 0 ] || printf '    (exit code %s)\n' "$code"
}

expect() { # expect CODE: how the last command must have ended, or the story is wrong
    [ "$code" -eq "$1" ] || {
        echo "story: that should have ended with $1" >&2
        exit 1
    }
}

take() { # take TTL: acquires story/report for a script; sets PICKET_TOKEN
    # shellcheck disable=SC2016 # it is shown, not run
    printf '  $ eval "$(picket acquire story/report --ttl %s)"\n' "$1"
    eval "$(picket acquire story/report --ttl "$1")"
    echo "    PICKET_TOKEN=$PICKET_TOKEN"
}

say '1. One at a time. A command runs under a lock; every grant has a number, its' \
    '   token, and the numbers only grow.'
# shellcheck disable=SC2016 # the child's variables, not ours
job='echo "I hold $PICKET_LOCK with token $PICKET_TOKEN"'
show picket run story/report -- sh -c "$job"
expect 0
show picket run story/report -- sh -c "$job"
expect 0

say '2. Who comes second is told who is first. Waiting is the default; -n gives up.'
take 20s
show picket run -n story/report -- echo 'never printed'
expect 124
show picket release
expect 0

say '3. A lock across processes is a lease: it ends when its holder is silent.' \
    '   Here A takes it for one second and then does what a paused process does: nothing.'
take 1s
a=$PICKET_TOKEN
say '   B waits, and gets it when the second is over. A has not been asked, nor told.'
take 20s
b=$PICKET_TOKEN

say '4. B writes its report, with its token. The register remembers the highest seen.'
show picket fence put story/report 'by B' --token "$b"
expect 0

say '5. A wakes up. It believes that it holds the lock, and writes. No lock service can' \
    '   prevent that; what it writes to can, because the token is lower.'
show picket fence put story/report 'by A' --token "$a"
expect 1
show picket fence get story/report --token "$b"
expect 0
show picket release
expect 0

say '6. Often no lock is needed at all. This runs a command once, whoever asks, and' \
    '   gives everybody the same outcome.'
key=story/invoice-$b
show picket once "$key" -- sh -c 'echo "invoice 4711 sent by process $$"'
expect 0
show picket once "$key" -- sh -c 'echo "invoice 4711 sent by process $$"'
expect 0

say '7. Nobody should believe this without seeing it. The drill stops a real process' \
    '   in the middle of a write. First without the fence:'
show picket drill --ttl 500ms --pause 1s --no-fence
expect 1
say '   And with it:'
show picket drill --ttl 500ms --pause 1s
expect 0

say 'That is the story. Your own database or directory: picket drill --resource URL.' \
    'What can be fenced, and how: docs/fencing.md.' \
    'When not to lock: docs/without-locks.md.'

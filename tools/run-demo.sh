#!/bin/sh
# SPDX-License-Identifier: MIT
# A small job under a lock, twice, on the embedded default: no server, no settings.
set -eu
cd "$(dirname "$0")/.."
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
export PICKET_URL="local:$state"
picket=${PICKET:-build/picket}

# shellcheck disable=SC2016 # the child's variables, not ours
job='echo "  holding $PICKET_LOCK with token $PICKET_TOKEN (lease $PICKET_LEASE)"'
echo 'Two jobs under one lock; every grant has a higher token:'
"$picket" run demo -- sh -c "$job"
"$picket" run demo -- sh -c "$job"

cat <<'TEXT'

Four things to try (state goes to your own state directory):
  1. Hold a lock, then ask for it from a second terminal; exit code 124 says busy:
       build/picket run backup -- sleep 60
       build/picket run -n backup -- true; echo $?
  2. Wait in line instead, at most ten seconds:
       build/picket run -w 10s backup -- echo my turn
  3. See who holds it, since when, and who waits:
       build/picket show backup
  4. Pause a holder past its lease and see its late write refused, then without a fence:
       build/picket drill
       build/picket drill --no-fence
TEXT

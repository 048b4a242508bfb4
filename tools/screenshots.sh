#!/bin/sh
# SPDX-License-Identifier: MIT
# Pictures of the pages for the documents, by a real browser; the dashboard's from a
# cluster with some work on it:
#     tools/screenshots.sh [PAGE [FOLDER]]
set -eu
cd "$(dirname "$0")/.."
page=$(realpath "${1:-build/web/simulator.html}")
folder=${2:-docs/img}
profile=$(mktemp -d)
jobs=
# shellcheck disable=SC2086 # a list of words
trap 'kill $jobs 2>/dev/null || :; rm -rf "$profile"' EXIT

# shoot NAME HEIGHT URL [OPTION...]
shoot() {
    name=$1 height=$2 url=$3
    shift 3
    chromium --headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars \
        --user-data-dir="$profile" --window-size="1280,$height" \
        --screenshot="$folder/$name.png" "$@" "$url" 2>/dev/null
}

shoot simulator 1270 "file://$page#scenario=gc-pause" --virtual-time-budget=3000
shoot simulator-split 1060 "file://$page#scenario=gc-pause&split=fence" \
    --virtual-time-budget=3000 --blink-settings=preferredColorScheme=0

picket=${PICKET:-build/picket}
"$picket" dev --data "$profile/dev" >"$profile/said" &
jobs=$!
until grep -q 'export PICKET_URL=' "$profile/said"; do sleep 0.1; done
eval "$(grep -o 'export PICKET_URL=[^ ]*' "$profile/said")"
address=$(grep -o 'http://[^ ]*' "$profile/said" | head -n 1)
for lock in backup/nightly orders/export reports/daily search/reindex; do
    "$picket" run "$lock" -- sleep 60 &
    jobs="$jobs $!"
done
for lock in orders/export orders/export reports/daily; do
    "$picket" run "$lock" -- sleep 60 &
    jobs="$jobs $!"
done
i=0
while [ $i -lt 40 ]; do
    "$picket" run "mail/$i" -- sleep 0.1
    i=$((i + 1))
done
"$picket" break search/reindex --reason 'stuck since noon' >/dev/null 2>&1 || :
shoot dashboard 1010 "$address" --timeout=4000 # its events have no end

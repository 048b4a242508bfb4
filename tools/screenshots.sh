#!/bin/sh
# SPDX-License-Identifier: MIT
# Pictures of the simulator page for the documents, by a real browser:
#     tools/screenshots.sh [PAGE [FOLDER]]
set -eu
cd "$(dirname "$0")/.."
page=$(realpath "${1:-build/web/simulator.html}")
folder=${2:-docs/img}
profile=$(mktemp -d)
trap 'rm -rf "$profile"' EXIT

# shoot NAME HEIGHT FRAGMENT [OPTION...]
shoot() {
    name=$1 height=$2 fragment=$3
    shift 3
    chromium --headless --no-sandbox --disable-gpu --no-first-run --hide-scrollbars \
        --user-data-dir="$profile" --window-size="1280,$height" \
        --virtual-time-budget=3000 --screenshot="$folder/$name.png" "$@" \
        "file://$page$fragment" 2>/dev/null
}

shoot simulator 1270 '#scenario=gc-pause'
shoot simulator-split 1060 '#scenario=gc-pause&split=fence' \
    --blink-settings=preferredColorScheme=0

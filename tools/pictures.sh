#!/bin/sh
# SPDX-License-Identifier: MIT
# Draws the pictures of docs/simulator.md: tools/pictures.sh [PROGRAM [FOLDER]]
# A test draws them too and compares, so that they show what the program does.
set -eu
cd "$(dirname "$0")/.."
program=${1:-build/picket}
folder=${2:-docs/img}
for name in gc-pause gc-pause-fenced first-contact redlock-clock-jump; do
    "$program" sim run -q "scenarios/$name.sim" --svg "$folder/$name.svg"
done

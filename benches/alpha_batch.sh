#!/usr/bin/env bash
# alpha_batch against a loop that starts Python for each of its runs, on the same machine, one after the other; prints both
# times and their ratio as JSON. Usage: benches/alpha_batch.sh MEMLAB PYTHON [ROUNDS]   (PYTHON has torch 2.11)
set -euo pipefail
memlab=$(realpath "$1") python=$2 rounds=${3:-3}
here=$(dirname "$(realpath "$0")")
results=$(mktemp -d)
trap 'rm -rf "$results"' EXIT
seconds() { # COMMAND...: how long it takes
    local from=$EPOCHREALTIME
    "$@" >/dev/null 2>&1
    awk "BEGIN { print $EPOCHREALTIME - $from }"
}
loop() { for batch in 1 2 4; do "$python" "$here/python_run.py" "$batch"; done; }
sweep() { "$memlab" sweep "$here/../experiments/alpha_batch.toml" --device cpu --fresh --out "$results/out"; }
for ((round = 0; round < rounds; round++)); do
    ours=$(seconds sweep) theirs=$(seconds loop)
    awk "BEGIN { printf \"{\\\"memlab_seconds\\\": %.2f, \\\"python_seconds\\\": %.2f, \\\"ratio\\\": %.2f}\\n\", $ours, $theirs, $ours / $theirs }"
done

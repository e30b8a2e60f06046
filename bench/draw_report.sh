#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Makes the picture of docs/report.md anew: the page of a run of four stages, whose operations are emulated, in Chromium:
#   bench/draw_report.sh [ESPALIER [MPIEXEC]]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
find_programs "$@"
chromium=$(command -v chromium) || fail "Chromium is missing" "ci/deps all" 2
export OMP_NUM_THREADS=1
enter_scratch
for i in $(seq 3000); do echo "The tree number $i is trained along a wall, and the wall holds the tree."; done >text.txt
"$espalier" data pack --output train.bin --validation val.bin --validation-fraction 0.1 text.txt >/dev/null
cat >run.toml <<'TOML'
[model]
vocab_size = 256
max_sequence_length = 64
num_layers = 8
hidden_size = 32
num_heads = 4
ffn_hidden_size = 128
[data]
train = ["train.bin"]
validation = ["val.bin"]
[batch]
global_batch_size = 16
micro_batch_size = 2
[parallel]
pipeline = 4
schedule = "interleaved"
virtual_stages = 2
[optimizer]
learning_rate = 3e-3
warmup_steps = 20
[checkpoint]
interval = 50
[run]
directory = "pipeline"
steps = 120
eval_interval = 40
eval_samples = 32
trace_first_step = 60
trace_steps = 1
TOML
cat >emulate.toml <<'TOML'
[emulate]
forward = "4ms"
backward_input = "4ms"
backward_weight = "4ms"
TOML
logged train.txt "$mpiexec" -n 4 "$espalier" train run.toml --emulate emulate.toml
sed -i 's/{"name":"host","value":"[^"]*"}/{"name":"host","value":"node1"}/' pipeline/report.html
"$chromium" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$work/profile" --window-size=1200,2700 \
  --force-device-scale-factor=0.75 --virtual-time-budget=2000 --screenshot="$root/docs/pictures/report.png" \
  "file://$work/pipeline/report.html" 2>/dev/null
ls -l "$root/docs/pictures/report.png"

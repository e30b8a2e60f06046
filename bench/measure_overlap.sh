#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# How much of the gradients' reduction goes on behind backward: 100 MB that two ranks really send, over a link whose speed
# is emulated so that they take half of a backward, and all of it. And how much of a step waits for the layers that ZeRO-3
# gathers, over links that bring them while a block is computed, and over slower ones (a minute each):
#   bench/measure_overlap.sh [ESPALIER [MPIEXEC]]
# Prints the median over the steps. Operations are emulated: another CPU gives like shares, if it does nothing else.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
find_programs "$@"
export OMP_NUM_THREADS=1
enter_scratch
pack_numbers
cat >run.toml <<'TOML'
[model]
vocab_size = 256
max_sequence_length = 16
num_heads = 4
[data]
train = ["train.bin"]
[batch]
global_batch_size = 2
micro_batch_size = 1
[run]
steps = 5
TOML
cat >emulate.toml <<'TOML'
[emulate]
forward = "50ms"
backward_input = "300ms"
backward_weight = "300ms"
TOML

printf '%-28s%12s%16s%12s%10s\n' layers gradients "reduction takes" exposed hidden
# measure LAYERS CHANNELS BYTES_PER_SECOND
measure() {
  local name=$1x$2-$3
  logged "$name.txt" "$mpiexec" -n 2 "$espalier" train run.toml --emulate emulate.toml "run.directory=$name" "model.num_layers=$1" \
    "model.hidden_size=$2" "model.ffn_hidden_size=$((4 * $2))" --emulate "bandwidth=$3"
  python3 - "$name/metrics.jsonl" "$3" "$1 of $2 channels" <<'PYTHON'
import json, statistics, sys
steps = [step for step in map(json.loads, open(sys.argv[1])) if step["step"] > 1]
sent = steps[0]["bytes_sent"]["dp"]  # two ranks: as many bytes as the gradients have
takes = sent / float(sys.argv[2])
exposed = statistics.median(step["seconds"]["data_comm"] for step in steps)
print(f"{sys.argv[3]:<28}{sent * 1e-6:>9.0f} MB{takes:>14.2f} s{exposed:>10.3f} s{1 - exposed / takes:>10.2f}")
PYTHON
}
for shape in "8 512" "32 256"; do
  for bytes_per_second in 0.35e9 0.2e9; do
    measure $shape $bytes_per_second
  done
done

# ZeRO-3: eight layers of 256 channels, a block 50 ms forward and 100 ms backward. In forward the first layer has nothing to
# hide behind; backward gathers six layers and reduces eight, of which the last has nothing.
printf '\n%-28s%12s%16s%12s%10s\n' "ZeRO-3, ranks" "of a layer" "gather takes" exposed predicted
# measure_gathers RANKS BYTES_PER_SECOND
measure_gathers() {
  local name=zero3-$1-$2
  logged "$name.txt" "$mpiexec" -n "$1" "$espalier" train run.toml --emulate emulate.toml "run.directory=$name" parallel.zero_stage=3 \
    model.num_layers=8 model.hidden_size=256 model.ffn_hidden_size=1024 "batch.global_batch_size=$1" --emulate forward=400ms \
    --emulate backward_input=400ms --emulate backward_weight=400ms --emulate "bandwidth=$2"
  python3 - "$name/metrics.jsonl" "$1" "$2" <<'PYTHON'
import json, statistics, sys
steps = [step for step in map(json.loads, open(sys.argv[1])) if step["step"] > 1]
ranks, bandwidth = int(sys.argv[2]), float(sys.argv[3])
layer = 12 * 256 * 256 * 4
takes, forward, backward = layer * (ranks - 1) / ranks / bandwidth, 0.05, 0.1
waits = takes + 7 * max(0, takes - forward) + max(takes, 14 * takes - 8 * backward)
shares = [step["seconds"]["data_comm"] / sum(step["seconds"].values()) for step in steps]
print(f"{ranks:<28}{layer * 1e-6:>9.1f} MB{takes:>14.3f} s{statistics.median(shares):>12.2f}{waits / (waits + 8 * (forward + backward)):>10.2f}")
PYTHON
}
measure_gathers 2 60e6
measure_gathers 4 60e6
measure_gathers 2 15e6

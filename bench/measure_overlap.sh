#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# How much of the gradients' reduction goes on behind backward: 100 MB that two ranks really send, over a link whose speed
# is emulated so that they take half of a backward, and all of it (a minute):
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

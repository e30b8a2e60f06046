#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Makes the pictures of docs/parallelism.md anew, from traces of emulated runs (half a minute):
#   bench/draw_pictures.sh [ESPALIER [MPIEXEC]]
# The idle shares in the titles are measured: take them on a machine that does nothing else.
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
num_layers = 8
hidden_size = 16
num_heads = 2
ffn_hidden_size = 32
[data]
train = ["train.bin"]
[batch]
global_batch_size = 8
micro_batch_size = 1
[run]
steps = 2
trace_steps = 1
TOML
cat >emulate.toml <<'TOML'
[emulate]
forward = "20ms"
backward_input = "20ms"
backward_weight = "20ms"
TOML

# picture NAME TITLE RANKS [section.key=value...]
picture() {
  local name=$1 title=$2 ranks=$3; shift 3
  logged "$name.txt" "$mpiexec" -n "$ranks" "$espalier" train run.toml --emulate emulate.toml "run.directory=$name" "$@"
  "$root/bench/draw_trace.py" "$name/trace/trace.json" "$root/docs/pictures/$name.svg" --title "$title"
}
picture sequential "sequential, 4 stages, 4 micro-batches" 4 parallel.pipeline=4 parallel.schedule=sequential batch.global_batch_size=4
for schedule in gpipe 1f1b zero_bubble; do
  picture $schedule "$schedule, 4 stages, 8 micro-batches" 4 parallel.pipeline=4 parallel.schedule=$schedule
done
# A chunk is half a stage: half the time.
picture interleaved "interleaved, 4 stages of 2 chunks, 8 micro-batches" 4 parallel.pipeline=4 parallel.schedule=interleaved \
  parallel.virtual_stages=2 --emulate={forward,backward_input,backward_weight}=10ms
# 25 million parameters, 100 MB: four buckets of gradients, whose sum takes 0.3 s on this link, half of a backward.
picture data "2 replicas, 2 micro-batches each, gradients summed during the last backward" 2 batch.global_batch_size=4 \
  model.num_layers=32 model.hidden_size=256 model.ffn_hidden_size=1024 --emulate={forward,backward_input,backward_weight}=300ms \
  --emulate bandwidth=0.35e9
ls -l "$root/docs/pictures"

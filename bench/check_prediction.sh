#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# How well step times are predicted on this machine: calibrates the planner for one rank of two threads and for two ranks
# of one thread, trains models in layouts of both, and compares what each run was told with what it took (five to eight minutes):
#   bench/check_prediction.sh [ESPALIER [MPIEXEC]]
# Prints a row a run, and the median error as the last line. Take figures on a machine that does nothing else.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
find_programs "$@"
enter_scratch
pack_numbers
printf '[data]\ntrain = ["train.bin"]\n[run]\nsteps = 5\ndirectory = "run"\n' >run.toml
export OMP_NUM_THREADS=2
"$espalier" bench machine --output 1.toml >/dev/null
OMP_NUM_THREADS=1 "$mpiexec" -n 2 "$espalier" bench machine --output 2.toml >/dev/null

# measure RANKS NAME KEY=VALUE...: trains 5 steps; a row of the table
measure() {
  local ranks=$1 name=$2; shift 2
  OMP_NUM_THREADS=$((3 - ranks)) logged log "$mpiexec" -n "$ranks" "$espalier" train run.toml run.cluster="$ranks.toml" "$@"
  python3 - "$ranks" "$name" <<'PYTHON' | tee -a errors
import json, sys
time = json.load(open("run/run.json"))["details"]["time"]
measured, predicted = time["step_seconds"], time["predicted_step_seconds"]
print(f"{sys.argv[1]:>5}  {sys.argv[2]:<44}{predicted:>10.3f}{measured:>10.3f}{100 * (predicted / measured - 1):>+9.1f} %")
PYTHON
  rm -rf run
}

small=(model.vocab_size=256 model.max_sequence_length=512 model.num_layers=8 model.hidden_size=512 model.num_heads=8
       model.ffn_hidden_size=2048)
wide=(model.vocab_size=8192 model.max_sequence_length=256 model.num_layers=4 model.hidden_size=1024 model.num_heads=16
      model.ffn_hidden_size=4096)
grep -m 1 "model name" /proc/cpuinfo | cut -d : -f 2- || true
printf '%5s  %-44s%10s%10s%11s\n' ranks run predicted measured error
for ranks in 1 2; do
  measure "$ranks" "8 x 512, 4 x 2 x 512 tokens" "${small[@]}" batch.global_batch_size=8 batch.micro_batch_size=2
  measure "$ranks" "the same, micro-batches of 1" "${small[@]}" batch.global_batch_size=8 batch.micro_batch_size=1
  measure "$ranks" "the same, recompute full" "${small[@]}" batch.global_batch_size=8 batch.micro_batch_size=2 parallel.recompute=full
  measure "$ranks" "4 x 1024, 4 x 2 x 256 tokens" "${wide[@]}" batch.global_batch_size=8 batch.micro_batch_size=2
done
measure 1 "gpt2-124m, 4 x 256 tokens" model.preset=gpt2-124m batch.global_batch_size=4 batch.micro_batch_size=4 batch.sequence_length=256
measure 2 "8 x 512, ZeRO-1" "${small[@]}" batch.global_batch_size=8 batch.micro_batch_size=2 parallel.zero_stage=1
measure 2 "8 x 512, tensor 2" "${small[@]}" batch.global_batch_size=8 batch.micro_batch_size=2 parallel.tensor=2
measure 2 "8 x 512, tensor 2, sequence parallel" "${small[@]}" batch.global_batch_size=8 batch.micro_batch_size=2 parallel.tensor=2 \
  parallel.sequence_parallel=true
measure 2 "4 x 1024, tensor 2" "${wide[@]}" batch.global_batch_size=8 batch.micro_batch_size=2 parallel.tensor=2
measure 2 "8 x 512, pipeline 2" "${small[@]}" batch.global_batch_size=8 batch.micro_batch_size=2 parallel.pipeline=2
measure 2 "4 x 1024, pipeline 2, gpipe" "${wide[@]}" batch.global_batch_size=8 batch.micro_batch_size=2 parallel.pipeline=2 parallel.schedule=gpipe
measure 2 "8 x 512, pipeline 2, zero_bubble" "${small[@]}" batch.global_batch_size=8 batch.micro_batch_size=2 parallel.pipeline=2 \
  parallel.schedule=zero_bubble
awk '{ error = $(NF - 1); sub(/^[+-]/, "", error); print error }' errors | sort -n |
  awk '{ value[NR] = $1 } END { printf "%d runs: median %.1f %%, worst %.1f %%\n", NR, value[int((NR + 1) / 2)], value[NR] }'

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# What splitting costs: a model of 25 million parameters on four ranks of one thread, laid out in three ways, against one
# process of two threads with the same global batch, all on the same two cores (about ten minutes):
#   [CPUS=0,1] [STEPS=4] bench/compare_layouts.sh [ESPALIER [MPIEXEC]]
# Prints the median tokens per second without the first step. Take figures on a machine that does nothing else.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
find_programs "$@"
cpus=${CPUS:-0,1} steps=${STEPS:-4}
enter_scratch
pack_numbers
cat >model.toml <<TOML
[model]
vocab_size = 256
max_sequence_length = 512
num_layers = 8
hidden_size = 512
num_heads = 8
ffn_hidden_size = 2048
[data]
train = ["train.bin"]
[batch]
micro_batch_size = 2
[run]
steps = $steps
TOML

# rate NAME RANKS THREADS [section.key=value...]: trains; the median tokens per second
rate() {
  local name=$1 ranks=$2 threads=$3; shift 3
  OMP_NUM_THREADS=$threads logged "$name.txt" taskset -c "$cpus" "$mpiexec" -n "$ranks" "$espalier" train model.toml \
    "run.directory=$name" "$@" || return 1  # set -e does not hold inside $(...)
  python3 -c '
import json, statistics, sys
steps = [json.loads(line) for line in open(sys.argv[1])]
print(round(statistics.median(s["tokens_per_second"] for s in steps if s["step"] > 1)))' "$name/metrics.jsonl"
}

grep -m 1 "model name" /proc/cpuinfo | cut -d : -f 2- || true
printf '%-24s%12s%14s%16s%8s\n' layout sequences "4 ranks x 1" "1 process x 2" ratio
# compare SEQUENCES KEY=DEGREE...: 8 micro-batches of 2 x 512 tokens on each replica
compare() {
  local sequences=$1 layout split one; shift
  layout=$(IFS=,; echo "$*")
  split=$(rate "split-$layout" 4 1 "${@/#/parallel.}" batch.global_batch_size="$sequences")
  one=$(rate "one-$layout" 1 2 batch.global_batch_size="$sequences")
  awk -v layout="$layout" -v sequences="$sequences" -v split_rate="$split" -v one="$one" \
    'BEGIN { printf "%-24s%12d%14d%16d%8.2f\n", layout, sequences, split_rate, one, split_rate / one }'
}
compare 32 data=2 tensor=2
compare 32 data=2 pipeline=2
compare 16 tensor=2 pipeline=2

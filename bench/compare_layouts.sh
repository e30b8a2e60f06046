#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# What splitting costs: ranks of one thread against one process of two threads with the same global batch, all on the same two
# cores. A model of 25 million parameters on four ranks, laid out in three ways (about ten minutes), and gpt2-124m on two
# replicas with ZeRO-1, in fp32 and in bf16, 8192 tokens a rank and step (another ten):
#   [CPUS=0,1] [STEPS=4] bench/compare_layouts.sh [ESPALIER [MPIEXEC]]
# Prints the median tokens per second without the first step. Take figures on a machine that does nothing else.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
find_programs "$@"
cpus=${CPUS:-0,1} steps=${STEPS:-4}
enter_scratch
pack_numbers
cat >gpt2-124m.toml <<TOML
[model]
preset = "gpt2-124m"
[data]
train = ["train.bin"]
[batch]
global_batch_size = 64
micro_batch_size = 4
sequence_length = 256
[run]
steps = $steps
TOML
cat >small.toml <<TOML
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

# rate NAME CONFIG RANKS THREADS [section.key=value...]: trains; the median tokens per second
rate() {
  local name=$1 config=$2 ranks=$3 threads=$4; shift 4
  OMP_NUM_THREADS=$threads logged "$name.txt" taskset -c "$cpus" "$mpiexec" -n "$ranks" "$espalier" train "$config" \
    "run.directory=$name" "$@" || return 1  # set -e does not hold inside $(...)
  python3 -c '
import json, statistics, sys
steps = [json.loads(line) for line in open(sys.argv[1])]
print(round(statistics.median(s["tokens_per_second"] for s in steps if s["step"] > 1)))' "$name/metrics.jsonl"
}

grep -m 1 "model name" /proc/cpuinfo | cut -d : -f 2- || true
printf '%-24s%8s%14s%16s%8s\n' layout ranks "1 thread each" "1 process x 2" ratio
# compare NAME CONFIG RANKS KEYS [KEYS OF THE SPLIT RUN...]: KEYS, a word, are of both runs
compare() {
  local name=$1 config=$2 ranks=$3 keys split one
  read -ra keys <<<"$4"; shift 4
  split=$(rate "split-$name" "$config" "$ranks" 1 "${keys[@]}" "$@")
  one=$(rate "one-$name" "$config" 1 2 "${keys[@]}")
  rm -rf "split-$name" "one-$name"
  awk -v name="$name" -v ranks="$ranks" -v split_rate="$split" -v one="$one" \
    'BEGIN { printf "%-24s%8d%14d%16d%8.2f\n", name, ranks, split_rate, one, split_rate / one }'
}
# 8 micro-batches of 2 x 512 tokens on each replica
compare data=2,tensor=2 small.toml 4 batch.global_batch_size=32 parallel.tensor=2
compare data=2,pipeline=2 small.toml 4 batch.global_batch_size=32 parallel.pipeline=2
compare tensor=2,pipeline=2 small.toml 4 batch.global_batch_size=16 parallel.tensor=2 parallel.pipeline=2
# 8 micro-batches of 4 x 256
for compute in fp32 bf16; do
  compare "gpt2-124m,zero=1,$compute" gpt2-124m.toml 2 "precision.compute=$compute" parallel.zero_stage=1
done

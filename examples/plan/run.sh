#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Asks the planner the questions of a purchase and writes its memos beside this script: examples/plan/run.sh [ESPALIER]
set -euo pipefail
case ${1:-} in
  -h | --help) sed -n '4,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;;
  -*) echo "${0##*/}: error: unknown argument: $1" >&2; exit 2 ;;
esac
espalier=$(realpath "${1:-build/espalier}")
cd "$(dirname "$0")"

# 200 billion parameters, devices of 40 GB: data parallelism alone against a hybrid.
"$espalier" plan --model gpt-200b --cluster a100-40:64 --batch 1024 \
  --layout data=512 --layout data=4,tensor=8,pipeline=16,recompute=full,zero=1,sequence_parallel=1
"$espalier" plan --model gpt-200b --cluster a100-40:64 --batch 1024 --memo 200b_on_40_gb.md

# Too large for one device; 32 devices on 4 nodes must be almost four times as fast as 8.
"$espalier" plan --model gpt-22b --cluster a100-80:4 --batch 512 --scale 8,16,32 --memo 22b_from_8_to_32.md

# 30 billion parameters on 8 x 80 GB, where data parallelism ran out of memory, a 4-stage split idled and fp16 diverged.
"$espalier" plan --model gpt-30b --cluster a100-80 --batch 256 --memo 30b_on_8.md

# 64 A100 or 32 H100: days, cost and energy of 300 billion tokens.
"$espalier" plan --model gpt-22b --cluster a100_priced.toml --cluster h100_priced.toml --batch 512 --tokens 300B \
  --memo which_cluster.md

# A refresh: 64 H200 in the place of 64 A100, or both in one job.
"$espalier" plan --model gpt-22b --cluster a100_priced.toml --cluster h200:8 --batch 512 --tokens 300B --link "400 Gb/s" \
  --memo refresh.md

# 13 billion parameters on 32 devices of 24 GB.
"$espalier" plan --model gpt3-13b --cluster a30.toml --batch 256 --memo 13b_on_24_gb.md

# 64 devices train fewer tokens a device than 32: what is lost, and what to try.
"$espalier" plan --model gpt-30b --cluster a100_plain_network.toml --batch 512 --scale 16,32,64 --memo 30b_to_64.md

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Asks the planner three questions and writes its memos beside this script: examples/plan/run.sh [ESPALIER]
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

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# What a save costs, against the disk and the memory of this machine (two minutes, 4 GB of disk, 8 GB of memory):
#   bench/measure_checkpoint.sh [ESPALIER [DIRECTORY]]
# A model of 167 million parameters, 2 GB a checkpoint, trains in DIRECTORY (default: here) on one rank, once with saves in one go
# and once with saves behind the training. Prints GB/s of the saves and of `dd` with fsync on the same disk, in turns, and
# how long the longest stall of a step was, over the time to copy the state.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
find_programs "${1:-}"
enter_scratch "${2:-.}"
pack_numbers
cat >large.toml <<'TOML'
[model]
vocab_size = 256
max_sequence_length = 32
num_layers = 14
hidden_size = 1000
num_heads = 10
ffn_hidden_size = 4000
[data]
train = ["train.bin"]
[batch]
global_batch_size = 1
micro_batch_size = 1
[checkpoint]
check_loss = false
[run]
steps = 60
log_interval = 100
TOML

# What the disk takes: the same bytes by dd, synced.
disk() {
  local start end; start=$(date +%s%N)
  dd if=/dev/zero of=zeros bs=1M count=2000 conv=fsync status=none
  end=$(date +%s%N); rm zeros
  echo "$((end - start))"
}
train() {
  logged "$1.log" "$espalier" train large.toml "run.directory=$1" "${@:2}"
}
# In turns: the disks of virtual machines take the first gigabytes several times as fast as those that follow.
disk >disk.txt
for steps in 20 40 60; do
  train in_one_go checkpoint.interval=20 "run.steps=$steps"
  cat in_one_go.log >>saves.txt
  disk >>disk.txt
done
rm -rf in_one_go/checkpoints
train behind checkpoint.interval=20 checkpoint.async=true
bytes=$(du -sb behind/checkpoints/step-00000060 | cut -f1)

grep -m1 'model name' /proc/cpuinfo | sed 's/.*: //'
python3 - "$bytes" <<'PYTHON'
import json, re, statistics, sys
size = int(sys.argv[1])
disk = [2000 * 2**20 / int(nanoseconds) for nanoseconds in open("disk.txt")]  # bytes a nanosecond are GB a second
saves = [size / float(s) * 1e-9 for s in re.findall(r"saved \S+ in ([\d.]+) s", open("saves.txt").read())]
behind = re.findall(r"saved \S+ in ([\d.]+) s during training, which was delayed by ([\d.]+) s \(([\d.]+) s to copy", open("behind.log").read())
lines = [json.loads(line) for line in open("behind/metrics.jsonl")]
whole = [line["step_seconds"] + line["seconds"]["checkpoint"] for line in lines]
median = statistics.median(line["step_seconds"] for line in lines)
copy = max(float(c) for _, _, c in behind)
still = max(line["seconds"]["checkpoint"] for line in lines)
print(f"checkpoint {size * 1e-9:.2f} GB; disk by dd with fsync {', '.join(f'{d:.2f}' for d in disk)} GB/s")
print(f"saves in one go {', '.join(f'{s:.2f}' for s in saves)} GB/s: {statistics.median(saves) / statistics.median(disk):.2f} of dd, medians")
print(f"behind the training: written in {', '.join(w for w, _, _ in behind)} s; copies {', '.join(c for _, _, c in behind)} s")
print(f"training was delayed by {still:.2f} s at most: {still / copy:.2f} of the longest copy")
print(f"longest step with what followed it {max(whole):.2f} s, median {median:.2f} s: {(max(whole) - median) / copy:.2f} copies longer")
PYTHON

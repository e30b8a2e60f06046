#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Whether a new build trains as fast as an old one: gpt2-124m in bf16 on two ranks of one thread, split in three ways, and in one
# process of two threads, all on the same two cores. Both builds take turns, in five pairs (half an hour; MODEL=byte-1m:
# minutes):
#   [CPUS=0,1] [MODEL=gpt2-124m] [PAIRS=5] [STEPS=4] bench/compare_versions.sh OLD_ESPALIER NEW_ESPALIER [MPIEXEC]
# Prints tokens per second, new / old, as median, least and most of the pairs; and of the new build two ranks / one process.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
find_programs "$@"
old=$espalier
[[ -n ${2:-} ]] || fail "the second build is missing" "bench/compare_versions.sh --help" 2
find_programs "$2" "${3:-}"
new=$espalier
cpus=${CPUS:-0,1} model=${MODEL:-gpt2-124m} pairs=${PAIRS:-5} steps=${STEPS:-4}
enter_scratch
pack_numbers
cat >run.toml <<TOML
[model]
preset = "$model"
[data]
train = ["train.bin"]
[batch]
global_batch_size = 16
micro_batch_size = 4
sequence_length = 256
[precision]
compute = "bf16"
[run]
steps = $steps
TOML

# rate NAME ESPALIER RANKS THREADS [section.key=value...]: appends the median tokens per second without the first step to NAME
rate() {
  local name=$1 program=$2 ranks=$3 threads=$4; shift 4
  rm -rf run
  OMP_NUM_THREADS=$threads logged log.txt taskset -c "$cpus" "$mpiexec" -n "$ranks" "$program" train run.toml run.directory=run "$@"
  python3 -c '
import json, statistics
steps = [json.loads(line) for line in open("run/metrics.jsonl")]
print(statistics.median(s["tokens_per_second"] for s in steps if s["step"] > 1))' >>"$name"
}
for ((pair = 0; pair < pairs; ++pair)); do
  for layout in data=2 tensor=2 pipeline=2 ""; do
    threads=$((${#layout} > 0 ? 1 : 2))
    builds=(old new)
    ((pair % 2 == 0)) || builds=(new old)
    for build in "${builds[@]}"; do
      rate "$build-${layout:-one}" "${!build}" $((3 - threads)) $threads ${layout:+parallel.$layout}
    done
  done
done
grep -m 1 "model name" /proc/cpuinfo | cut -d : -f 2- || true
python3 - <<'PYTHON'
import statistics
def rates(name): return [float(line) for line in open(name)]
def row(name, above, below):
    ratios = [a / b for a, b in zip(above, below)]
    print(f"{name:<28}{statistics.median(above):>12.0f}{statistics.median(below):>12.0f}{statistics.median(ratios):>10.3f}{min(ratios):>8.3f}{max(ratios):>8.3f}")
print(f"{'new / old':<28}{'tokens/s':>12}{'tokens/s':>12}{'median':>10}{'least':>8}{'most':>8}")
for layout in "data=2", "tensor=2", "pipeline=2", "one":
    row(layout, rates("new-" + layout), rates("old-" + layout))
print("two ranks / one process")
for layout in "data=2", "tensor=2", "pipeline=2":
    row(layout, rates("new-" + layout), rates("new-one"))
PYTHON

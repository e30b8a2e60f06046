#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Does 16-bit training follow fp32? Steps of the model of ci/quickstart on real text, one thread each, two runs at a time:
#   test_numerics.sh ESPALIER SOURCE [FOLDER]      200 steps; with a FOLDER 500
# Three seeds of fp32 say how far two runs differ that differ in nothing that matters: their spread is the largest of any
# 20 steps' means. The means of bf16 and of fp16 must lie within the larger of 1 % and twice that. With a FOLDER the runs
# stay there for bench/draw_losses.py, one more of them. The text is that of the package fortunes, else SOURCE/docs.
espalier=$(realpath "$1") source=$(realpath "$2") folder=${3:+$(realpath -m "$3")} steps=200
[[ ! $folder ]] || steps=500
source "$(dirname "${BASH_SOURCE[0]}")/checks.sh"
if [[ $folder ]]; then mkdir -p "$folder"; else folder=$work; fi
cd "$folder" || exit 1
export OMP_NUM_THREADS=1

mapfile -t texts < <(find -L /usr/share/games/fortunes -type f ! -name '*.dat' ! -name '*.u8' 2>/dev/null | sort)
((${#texts[@]})) || texts=("$source"/README.md "$source"/docs/*.md)
expect 0 "train.bin" "$espalier" data pack --tokenizer byte --output train.bin --document-separator $'\n%\n' "${texts[@]}"

# run NAME [section.key=value...]
run() {
  local name=$1; shift
  "$espalier" train "$source/examples/quickstart.toml" 'data.train=["train.bin"]' 'data.validation=[]' run.directory="$name" \
    run.steps=$steps run.eval_interval=0 checkpoint.interval=0 optimizer.decay_steps=1400 batch.global_batch_size=8 \
    "$@" >"$name.txt" 2>&1 || echo "exit code $?" >>"$name.txt"
}
(run fp32_2 run.seed=2; run fp32_3 run.seed=3; run fp32_slow run.steps=60 optimizer.learning_rate=1e-3) &
(run fp32 run.seed=1; run bf16 precision.compute=bf16) &
run fp16 precision.compute=fp16
[[ -z ${3:-} ]] || run bf16_wide precision.compute=bf16 precision.residual=state
wait

losses() { sed -E 's/.*"loss":([^,]*),.*/\1/' "$1/metrics.jsonl"; }
# compare NAME STEPS: the largest distance of a window's means, over the allowed one.
compare() {
  paste <(losses fp32) <(losses fp32_2) <(losses fp32_3) <(losses "$1") | sed -n "1,$2p" | awk -v name="$1" -v steps="$2" '
    { for (i = 1; i <= 4; ++i) sum[i] += $i }
    NR % 20 == 0 {
      largest = smallest = sum[1]
      for (i = 2; i <= 3; ++i) { if (sum[i] > largest) largest = sum[i]; if (sum[i] < smallest) smallest = sum[i] }
      if ((largest - smallest) / sum[1] > spread) spread = (largest - smallest) / sum[1]
      distance = (sum[4] - sum[1]) / sum[1]; if (distance < 0) distance = -distance
      if (distance > worst) worst = distance
      last = sum[4] / 20
      for (i = 1; i <= 4; ++i) sum[i] = 0
    }
    END {
      allowed = 2 * spread > 0.01 ? 2 * spread : 0.01
      printf "%s: %d steps, mean loss of the last 20 %.4f; farthest from fp32 %.2f %%, allowed %.2f %%\n", name, NR, last, 100 * worst, 100 * allowed
      exit !(NR == steps && worst < allowed)
    }'
}
for name in bf16 fp16 ${3:+bf16_wide}; do
  compare "$name" $steps >out.txt || fail "$name does not follow fp32" out.txt
  cat out.txt
done
awk -v steps=$steps 'NR > steps - 20 { sum += $1 } END { exit !(sum / 20 < 2.8) }' <(losses fp32) || fail "fp32 has not learnt" fp32.txt
# The check can fail: a third of the learning rate is no rounding.
[[ $(losses fp32_slow | wc -l) == 60 ]] || fail "the run with another learning rate did not come to its end" fp32_slow.txt
if compare fp32_slow 60 >out.txt; then fail "a third of the learning rate passes for fp32"; fi
cat out.txt
summary

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# `espalier diagnose` on real runs with a fault injected into each: test_diagnose.sh ESPALIER MPIEXEC RANKS [PREFLAGS...]
# On 2 ranks the faulty operations are real ones where they can be; on 4 all are imitated.
espalier=$1 mpiexec=$2 ranks=$3; shift 3
preflags=("$@")
source=$(realpath "$(dirname "$0")/../..")
source "$(dirname "$0")/tiny_run.sh"

# run NAME KEY=VALUE...: trains eight steps in the directory NAME.
run() {
  local name=$1; shift
  exits 0 "$mpiexec" -n "$ranks" "${preflags[@]}" "$espalier" train tiny.toml "run.directory=$name" run.steps=8 \
    model.num_layers=8 batch.micro_batch_size=1 --emulate latency=1e-6 "$@"
}
# names RUN CAUSE SIZE: this cause first, with its size within 20 %; of a ratio what it is above 1.
names() {
  exits 0 "$espalier" diagnose "$1" --json
  python3 - "$2" "$3" <<'PY'
import json, sys
cause, size = sys.argv[1], float(sys.argv[2])
first = (json.load(open("out.txt"))["findings"] or [{"cause": "none", "title": "nothing", "size": 0, "unit": ""}])[0]
got = first["size"] - first["unit"].startswith("times")
print(f"{first['title']}: size {got:.4g}, injected {size:.4g}")
sys.exit(not (first["cause"] == cause and abs(got - size) <= 0.2 * size))
PY
}
finds() { names "$@" || fail "$1: not $2 of size $3 first"; }

# Imitated operations of a whole model, and of stages.
operations=(--emulate forward=0.01 --emulate backward_input=0.01 --emulate backward_weight=0.01)
staged=("parallel.pipeline=$ranks" --emulate per_layer=true --emulate forward=0.003 --emulate backward_input=0.003
        --emulate backward_weight=0.003)
last=$((ranks - 1))

run slow_rank "parallel.data=$ranks" "${operations[@]}" --emulate "slow_rank=$last" --emulate slow_factor=1.5
finds slow_rank slow_rank 0.5
run slow_stage "${staged[@]}" --emulate slow_rank=1 --emulate slow_factor=1.6
finds slow_stage slow_rank 0.6
run slow_link "${staged[@]}" --emulate 'delayed_link=[0,1]' --emulate delay=0.06
finds slow_link slow_link 0.06
run slow_replica_link "parallel.data=$ranks" "${operations[@]}" --emulate 'delayed_link=[0,1]' --emulate delay=0.06
finds slow_replica_link slow_link 0.06
run stalled_loader "parallel.data=$ranks" "${operations[@]}" --emulate data=0.1
finds stalled_loader data_stall 0.1
if ((ranks == 2)); then
  run uneven "${staged[@]}" 'parallel.layers_per_stage=[6,2]'
  finds uneven uneven_stages 0.5
  says "parallel.layers_per_stage = [4, 4]"
  run bubble "${staged[@]}" batch.global_batch_size=2
  finds bubble bubble 0.333
  # A rank that really computes: its own work takes twice as long. Other programs on the machine may disturb one attempt.
  for attempt in 1 2 3; do
    run "really_slow_$attempt" parallel.data=2 model.hidden_size=128 model.max_sequence_length=64 --emulate slow_rank=1 \
      --emulate slow_factor=2
    names "really_slow_$attempt" slow_rank 1 && break
    ((attempt < 3)) || fail "really_slow: not slow_rank of size 1 first"
  done
else
  run uneven "${staged[@]}" 'parallel.layers_per_stage=[4,2,1,1]'
  finds uneven uneven_stages 1
  says "parallel.layers_per_stage = [2, 2, 2, 2]"
  run bubble "${staged[@]}" batch.global_batch_size=4
  finds bubble bubble 0.4286
fi

# A slow run beside a good one, as people read it.
run good "parallel.data=$ranks" "${operations[@]}"
says "from the times of --emulate"
! grep -q "+-" out.txt || fail "an error bar of imitated times, which nobody knows"
expect 0 '"explained_by": "slow_rank"' "$espalier" diagnose slow_rank --against good --json
expect 0 "against good" "$espalier" diagnose slow_rank --against good
says "emulate.slow_factor: 1.5 (was absent)" "where the time goes" " % longer than "
(($(awk '{ if (length($0) > most) most = length($0) } END { print most }' out.txt) <= 120)) || fail "a line is too long"

if ((ranks == 2)); then
  # A training that went astray ends in order all the same: diagnosis and page say so, with what explains it.
  for rate in 1 3; do
    exits 0 "$espalier" train tiny.toml "run.directory=rate_$rate" run.steps=120 "optimizer.learning_rate=$rate"
    expect 0 "completed, diverged" "$espalier" diagnose "rate_$rate"
    says "above ln(256) = 5.545, the loss of guessing" "a learning rate of $rate is" "there is no warm-up"
    grep -qF '"verdict":"diverged"' "rate_$rate/report.html" || fail "the page does not say diverged"
  done
  # Restarts and what they changed.
  exits 75 "$espalier" train tiny.toml run.directory=restarted --stop-after 2
  exits 0 "$espalier" train tiny.toml run.directory=restarted optimizer.learning_rate=1e-4
  grep -qF '"restarts":[{"first_step":3,"changes":["optimizer.learning_rate: 0.0001 (was 0.0003)"' restarted/report.html ||
    fail "the page does not say what a start has changed"
  # Choices that make all ranks slow.
  exits 0 "$espalier" train tiny.toml run.directory=fp64 precision.compute=fp64
  expect 0 "the run computes in fp64" "$espalier" diagnose fp64
  cores=$(env -u OMP_NUM_THREADS nproc)
  threads=$((4 * cores))
  exits 0 env OMP_NUM_THREADS=$threads "$espalier" train tiny.toml run.directory=crowded run.steps=3
  expect 0 "$threads threads share $cores core" "$espalier" diagnose crowded

  # The page's own commands, where it was told to begin: with the text that ci/quickstart packs.
  mkdir -p bin runs/quickstart/data
  ln -s "$espalier" bin/espalier
  printf '#!/bin/sh\nexec "%s" "$@"\n' "$mpiexec" >bin/mpiexec && chmod +x bin/mpiexec
  ln -s "$source/examples" examples
  cp train.bin runs/quickstart/data/train.bin
  cp train.bin runs/quickstart/data/val.bin
  sed -n '/^## Trying it/,$ { /^```/,/^```/ { /^```/d; p } }' "$source/docs/diagnose.md" >commands.sh
  (($(wc -l <commands.sh) >= 2)) || fail "no commands on docs/diagnose.md" commands.sh
  expect 0 "rank 1 (" env "PATH=$PWD/bin:$PATH" bash -e commands.sh
  says "computes" "where the time goes"

  # Bad input.
  expect 2 "this is not a run directory" "$espalier" diagnose .
  says "did you mean"  # the runs in there
  expect 2 "no such directory" "$espalier" diagnose no_such_run
  expect 2 "an empty path" "$espalier" diagnose ""
  expect 2 "did you mean $PWD/good?" "$espalier" diagnose good/metrics.jsonl
  expect 2 "did you mean $PWD/good?" "$espalier" report good/checkpoints
  expect 2 "--against" "$espalier" diagnose --help --against
  cp -r good torn; printf '{"step":9,"lo' >>torn/metrics.jsonl
  expect 0 "a step takes" "$espalier" diagnose torn
  cp -r good foreign; echo '{"step":9}' >>foreign/metrics.jsonl
  expect 3 "a line does not have the fields of a step" "$espalier" diagnose foreign
  cp -r good damaged; echo '{' >damaged/run.json
  expect 3 "run.json cannot be read" "$espalier" diagnose damaged
  says "where:  damaged/run.json:2:1"
  ! grep -q "json.exception" out.txt || fail "an exception of the JSON library"
  cp -r good without; rm without/config.toml
  expect 3 "config.toml of this run cannot be read" "$espalier" diagnose without
  cp -r good unknown; sed -i 's/^\[parallel\]/&\nstages = 4/' unknown/config.toml
  expect 3 "parallel.stages: unknown key" "$espalier" diagnose unknown
  expect 3 "parallel.stages: unknown key" "$espalier" report unknown
  cp -r good lost; rm lost/metrics.jsonl
  expect 3 "its record is missing" "$espalier" diagnose lost
  expect 3 "its record is missing" "$espalier" report lost
  cp -r good one_rank; rm one_rank/ranks/rank-00001.jsonl
  expect 0 "no times of rank 1" "$espalier" diagnose one_rank
  says "no problem was found in the existing records"
  expect 0 "wrote" "$espalier" report one_rank
  expect 0 "no times of rank 1" cat one_rank/report.html

  # A rank that is killed: who, where, who waited.
  "$mpiexec" -n 2 "${preflags[@]}" "$espalier" train tiny.toml run.directory=killed run.steps=1000 parallel.pipeline=2 \
    --emulate forward=0.05 --emulate latency=1e-6 >killed.txt 2>&1 &
  launcher=$!
  wait_for killed/metrics.jsonl
  victim=$(python3 -c 'import json; print(json.load(open("killed/run.json"))["pid"])')
  kill -9 "$victim"
  wait "$launcher"
  expect 0 "why it ended" "$espalier" diagnose killed
  says "rank 0"
fi
summary

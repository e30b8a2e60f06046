#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Signals to one rank of four and to the launcher: all ranks save together, the job asks to be started again, and then gives
# the losses of a run that was never stopped. test_signals.sh ESPALIER MPIEXEC [PREFLAGS...]
espalier=$1; shift
four_ranks=("$@" -n 4)
source "$(dirname "$(realpath "$0")")/tiny_run.sh"

layout=(run.steps=30 parallel.pipeline=2 'parallel.layers_per_stage=[1,1]' checkpoint.interval=2)
slow=(--emulate forward=0.02)  # in the first start only: time for a signal
is_open_mpi() { "$1" --version 2>/dev/null | grep -q "Open MPI\|OpenRTE"; }

expect 0 "completed" "${four_ranks[@]}" "$espalier" train tiny.toml run.directory=whole "${layout[@]}"
losses whole >wanted.txt
[[ $(wc -l <wanted.txt) == 30 ]] || fail "the run that is not stopped has not 30 losses" wanted.txt

# ---- A rank that waits in MPI_Init for one that never comes ends as any process does ----
"$@" -n 1 "$espalier" train tiny.toml run.directory=alone "${layout[@]}" : -n 1 sleep 100 >out.txt 2>&1 &
job=$!
for ((i = 0; i < 100; i++)); do [[ -n $(processes alone) ]] && break; sleep 0.1; done
sleep 1
kill -s TERM "$(processes alone | head -n 1)" || fail "nothing to send SIGTERM to"
nobody_left alone "SIGTERM does not end a rank that waits for another"
pkill -f '^sleep 100$' || true
wait "$job" || true
[[ ! -e alone ]] || fail "a start that never came to be made a run directory"

# ---- Before the first step: 75, or what mpiexec gives for a rank that it kills as another has ended; nothing was begun ----
"${four_ranks[@]}" "$espalier" train tiny.toml run.directory=early "${layout[@]}" >out.txt 2>&1 &
job=$!
for ((i = 0; i < 100; i++)); do [[ $(processes early | wc -l) -ge 4 ]] && break; sleep 0.02; done
for rank in $(processes early); do holds_sigterm "$rank" || fail "rank $rank did not come so far as to hold SIGTERM"; done
kill -TERM $(processes early)
got=0; wait "$job" || got=$?
[[ $got == 75 || $got == 9 ]] || is_open_mpi "${four_ranks[0]}" || fail "exit code $got after SIGTERM before the first step, wanted 75"
says "before the first step"
expect 0 "completed" "${four_ranks[@]}" "$espalier" train tiny.toml run.directory=early "${layout[@]}"

# stop SIGNAL rank|launcher: what comes of it; the exit code is in $got, the run in $run.
stop() {
  run=$2-$1-$$ got=0
  "${four_ranks[@]}" "$espalier" train tiny.toml "run.directory=$run" "${layout[@]}" "${slow[@]}" >out.txt 2>&1 &
  local job=$! target=$!
  for ((i = 0; i < 600; i++)); do [[ -e $run/checkpoints/step-00000002/manifest.json ]] && break; sleep 0.1; done
  [[ $2 == launcher ]] || target=$(processes "$run" | sort -n | sed -n 3p)
  kill -s "$1" "$target" || fail "nothing to send $1 to"
  wait "$job" || got=$?
  nobody_left "$run" "$1 to the $2"
}
saved() {
  state_is "$run" preempted
  says "stopped after a saved checkpoint"
  local last; last=$(tail -n 1 "$run/metrics.jsonl" | sed -E 's/^\{"step":([0-9]+),.*/\1/')
  [[ -e $run/checkpoints/$(printf 'step-%08d' "$last")/manifest.json ]] || fail "no checkpoint of the last step, $last"
}
goes_on() {
  expect 0 "resumed from $run/checkpoints/step-" "${four_ranks[@]}" "$espalier" train tiny.toml "run.directory=$run" "${layout[@]}"
  losses "$run" >got.txt
  diff wanted.txt got.txt >difference.txt || fail "other losses after $1 (< wanted, > got)" difference.txt
}

for signal in TERM USR1 INT HUP; do
  stop "$signal" rank
  [[ $got == 75 ]] || fail "exit code $got after $signal to a rank, wanted 75"
  saved
  grep -qE "\"cause\": \"rank [0-3] was asked to stop by SIG$signal\"" "$run/run.json" || fail "the cause is not told" "$run/run.json"
  goes_on "$signal to a rank"
done
# mpiexec may give 0 instead of 75 after a signal to itself (MPICH), or leave the ranks no time (Open MPI); SIGHUP kills it
# and its ranks. What counts is run.json, and that the next start goes on.
for signal in TERM USR1 INT HUP; do
  stop "$signal" launcher
  if [[ $signal != HUP ]] && ! is_open_mpi "${four_ranks[0]}"; then
    [[ $got == 75 || $got == 0 ]] || fail "exit code $got after $signal to the launcher, wanted 75"
    saved
  fi
  goes_on "$signal to the launcher"
done

# nohup: a hang-up is none of its business.
run=nohup-$$
nohup "$espalier" train tiny.toml "run.directory=$run" run.steps=1000000 >out.txt 2>&1 &
job=$!
wait_for "$run/metrics.jsonl"
kill -HUP "$job"
sleep 0.5
kill -TERM "$job" || fail "a hang-up ended what was started with nohup"
got=0; wait "$job" || got=$?
[[ $got == 75 ]] || fail "exit code $got, wanted 75"
grep -q '"cause": "asked to stop by SIGTERM"' "$run/run.json" || fail "the cause is not told" "$run/run.json"

# A storm of requests in the middle of matmuls must not touch what they compute: a handler on a thread that is in an fp32
# matmul of oneDNN damages the heap.
wide=(run.matmul=auto model.hidden_size=192 model.ffn_hidden_size=768 batch.micro_batch_size=8)
for ((storm = 0; storm < 4; storm++)); do
  run=storm-$storm-$$ got=0
  "$espalier" train tiny.toml "run.directory=$run" run.steps=1000000 "${wide[@]}" >out.txt 2>&1 &
  job=$!
  wait_for "$run/metrics.jsonl"
  while kill -s USR1 "$job" 2>kill.txt; do :; done
  wait "$job" || got=$?
  [[ $got == 75 ]] || fail "exit code $got after a storm of requests, wanted 75"
  saved
done
summary

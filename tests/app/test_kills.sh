#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Runs that are killed by SIGKILL between every two operations that change a file of a save, of a removal and of a start, and
# at random moments. Each launch resumes from the state that the kill before it left behind, and is killed in its turn.
# test_kills.sh ESPALIER FAULTS MPIEXEC [one_rank|behind|both|all|start|random]...
espalier=$1 faults=$2 mpiexec=$3; shift 3
source "$(dirname "$(realpath "$0")")/run_faults.sh"
kills=0 restarts=0

# resumed_from RUN STEP: so says the last output, and that it passed over nothing but unfinished saves.
resumed_from() {
  says "resumed from $(path_of_step "$1" "$2") "
  grep "passing over" out.txt | grep -qv "its save was not finished" && fail "a checkpoint was passed over"
}

# killed_saves RUN RANK STRIDE COMMAND...: start after start, each killed in its second save, one operation later than the one
# before, until a start has none left; of the many writes into a shard every STRIDEth is one. The second save, so that each start publishes one
# checkpoint and prunes: what the kill before it left must be gone by then.
killed_saves() {
  local run=$1 rank=$2 stride=$3 at=1 before got what; shift 3
  until (( ${got:-0} == 75 )); do
    before=$(newest "$run") got=0
    ESPALIER_FAULT_STRIDE=$stride with_fault kill "$rank" "$at" "$(path_of_step "$run" $((before + 2)))" "$run/checkpoints" \
      "$@" run.directory="$run" --stop-after 2 >out.txt 2>&1 || got=$?
    [[ -z $before ]] || { restarts=$((restarts + 1)); resumed_from "$run" "$before"; }
    if ((got == 75)); then
      [[ ! -e struck.txt ]] || fail "$run: killed, and yet it ended well"
      only_checkpoints "$run" "the last start"
    elif [[ ! -e struck.txt ]]; then
      fail "$run: exit code $got without a kill"; return
    else
      kills=$((kills + 1)) what="a kill before operation $at: $(head -n 1 struck.txt)"
      [[ $(newest "$run") -ge $((before + 1)) ]] || { lost=$((lost + 1)); fail "the save before the killed one is lost after $what"; }
      ((before == 0)) || not_lost "$run" "$what" $(($(newest "$run") - 1))
      only_checkpoints "$run" "$what" 1
      verified "$run" "$what"
      at=$((at + 1))
    fi
    ((failures < 10)) || return
  done
  ((at > 20)) || fail "$run: only $at operations"
  same_losses "$run" "$@"
}

one_rank() { killed_saves one_rank 0 4 "$espalier" train tiny.toml "${model[@]}"; }
# While the run trains on: publishing and removing happen on the main thread, the rest on the one that writes.
behind() { killed_saves behind 0 4 "$espalier" train tiny.toml "${model[@]}" checkpoint.async=true; }
two_ranks=("$mpiexec" -n 2 "$espalier" train tiny.toml "${model[@]}" parallel.zero_stage=1)
both() { killed_saves rank_0 0 8 "${two_ranks[@]}"; killed_saves rank_1 1 4 "${two_ranks[@]}" checkpoint.async=true; }
all() { killed_saves all "" 8 "${two_ranks[@]}" checkpoint.ranks_per_file=2; }

# Between every two changes in the run directory before the first save: of config.toml, run.json, progress files ...
start() {
  local rank at got run=start
  expect 75 "stopped" "${two_ranks[@]}" run.directory=$run --stop-after 3
  for rank in 0 1; do
    for ((at = 1; at < 200 && failures < 10; at++)); do
      got=0
      with_fault kill $rank $at $run/ $run/ "${two_ranks[@]}" run.directory=$run --retry --stop-after 1 >out.txt 2>&1 || got=$?
      [[ -e struck.txt ]] || { fail "exit code $got without a kill"; return; }
      kills=$((kills + 1)) restarts=$((restarts + 1))
      not_lost $run "a kill at a start" 2 3
      grep -q "$run/checkpoints\|$run/metrics" struck.txt && break  # its first step is done
      [[ $(committed $run | wc -l) == 2 ]] || fail "a start that did not train has changed the checkpoints"
      only_checkpoints $run "a kill at a start"
      verified $run "a kill at a start"
    done
  done
  expect 75 "resumed from" "${two_ranks[@]}" run.directory=$run --stop-after 1
  same_losses $run "${two_ranks[@]}"
}

# One rank or all of them, some time after the start: mostly while training.
random() {
  RANDOM=20261122
  local run=random-$$ interval=3 got before trained saved job ranks
  local train=("${two_ranks[@]}" checkpoint.interval=$interval checkpoint.async=true run.steps=100000)
  for ((i = 0; i < 24; i++)); do
    before=$(newest $run) got=0
    "${train[@]}" run.directory=$run --retry >out.txt 2>&1 &
    job=$!
    sleep "$(printf "%d.%03d" $((RANDOM % 2)) $((300 + RANDOM % 500)))"
    for ((j = 0; j < 100; j++)); do
      mapfile -t ranks < <(pgrep -f "^$espalier train tiny.toml .*run.directory=$run " | sort -n)
      ((${#ranks[@]} == 2)) && break
      sleep 0.05
    done
    ((RANDOM % 2)) && ranks=("${ranks[@]:$((RANDOM % 2)):1}")
    kill -KILL "${ranks[@]}" && kills=$((kills + 1))
    wait $job || got=$?
    [[ $got != 0 ]] || fail "exit code 0 of a killed run"
    if [[ $before ]] && grep -q "resumed from" out.txt; then restarts=$((restarts + 1)); resumed_from $run "$before"; fi
    [[ -e $run/metrics.jsonl ]] || continue
    [[ $(newest $run) -ge ${before:-0} ]] || { lost=$((lost + 1)); fail "a checkpoint is lost after a kill at random"; }
    trained=$(tail -n 1 $run/metrics.jsonl | sed -E 's/^\{"step":([0-9]+),.*/\1/')
    saved=$(newest $run)
    ((${trained:-0} - ${saved:-0} <= 2 * interval)) || fail "step $trained was reached, step ${saved:-0} is saved"
    [[ $saved ]] || continue  # killed before the first save
    only_checkpoints $run "a kill at random" 2
    verified $run "a kill at random"
    ((failures < 10)) || return
  done
  expect 75 "resumed from" "${train[@]}" run.directory=$run --retry --stop-after 3
  only_checkpoints $run "the save after all kills"
  same_losses $run "${train[@]}"
}

for part in "${@:-one_rank}"; do "$part"; done
echo "$*: $kills kills, $restarts restarts, $lost lost checkpoints"
((kills > 0)) || fail "nobody was killed"
summary

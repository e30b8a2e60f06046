# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# What the tests that inject faults into a run share, beside tiny_run.sh: to be sourced, with `faults` the library of
# tests/support/file_faults.cpp.
source "$(dirname "${BASH_SOURCE[0]}")/tiny_run.sh"

# Few tensors, so few operations a save; a save each step, and 500 steps so that no start comes to the end.
model=(model.num_layers=1 run.steps=500 checkpoint.interval=1 checkpoint.keep_last=2)
lost=0  # committed checkpoints

# with_fault FAULT RANK AT FROM UNDER COMMAND...: with that fault injected; struck.txt says at what it struck.
with_fault() {
  rm -f struck.txt
  LD_PRELOAD=$faults ESPALIER_FAULT=$1 ESPALIER_FAULT_RANK=$2 ESPALIER_FAULT_AT=$3 ESPALIER_FAULT_FROM=$4 \
    ESPALIER_FAULT_UNDER=$5 ESPALIER_FAULT_LOG=$work/struck.txt "${@:6}"
}
# committed RUN: the steps of its checkpoints, in order.
committed() {
  local manifest
  for manifest in "$1"/checkpoints/step-????????/manifest.json; do
    [[ -e $manifest ]] && manifest=${manifest%/*} && echo $((10#${manifest##*-}))
  done
}
newest() { committed "$1" | tail -n 1; }
path_of_step() { printf '%s/checkpoints/step-%08d' "$1" "$2"; }
# verified RUN WHAT: every byte of its checkpoints is right; one that is not is lost.
verified() {
  local step
  for step in $(committed "$1"); do
    "$espalier" checkpoint verify "$(path_of_step "$1" "$step")" >verify.txt 2>&1 && continue
    lost=$((lost + 1)); fail "step $step is damaged after $2" verify.txt
  done
}
# not_lost RUN WHAT STEP...: these are committed still.
not_lost() {
  local run=$1 what=$2 step; shift 2
  for step; do
    [[ -e $(path_of_step "$run" "$step")/manifest.json ]] && continue
    lost=$((lost + 1)); fail "step $step is lost after $what" <(ls "$run/checkpoints")
  done
}
# only_checkpoints RUN WHAT [UNFINISHED]: beside them at most that many saves or removals that were not finished.
only_checkpoints() {
  local partial=0 entry
  for entry in "$1"/checkpoints/* ; do
    case ${entry##*/} in
      step-????????.????????????????.partial) partial=$((partial + 1)) ;;
      step-????????) [[ -e $entry/manifest.json ]] || fail "a checkpoint without manifest after $2" <(ls -R "$1/checkpoints") ;;
      *) fail "rubbish after $2: $entry" ;;
    esac
  done
  ((partial <= ${3:-0})) || fail "$partial unfinished directories after $2" <(ls "$1/checkpoints")
}
# same_losses RUN COMMAND...: as the command's run that was never disturbed gives, bit for bit.
same_losses() {
  local run=$1 last; shift
  last=$(tail -n 1 "$run/metrics.jsonl" | sed -E 's/^\{"step":([0-9]+),.*/\1/')
  expect 75 "stopped" "$@" run.directory="$run-undisturbed" checkpoint.interval=0 --stop-after "$last"
  diff <(losses "$run-undisturbed") <(losses "$run") >difference.txt ||
    fail "other losses than without faults (< wanted, > got)" difference.txt
}

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Disks that are full, over quota or broken, at each operation of a save; and checkpoints that were damaged afterwards.
# test_disk_faults.sh ESPALIER FAULTS MPIEXEC [one_rank|behind|two_ranks|damage]...
espalier=$1 faults=$2 mpiexec=$3; shift 3
source "$(dirname "$(realpath "$0")")/run_faults.sh"
errors=(ENOSPC EDQUOT EIO) numbers=(28 122 5)
refused=0 harmless=0

# failing_saves RUN RANK STRIDE COMMAND...: start after start, an operation of the second save of each fails, one later than in
# the one before; of the many writes into a shard every STRIDEth is one. In every fourth start all operations after it fail too.
# Such a save ends the run with 8, the file and the error; or the failure did no harm, and then there is a checkpoint whose every byte is right.
failing_saves() {
  local run=$1 rank=$2 stride=$3 at=1 trial=0 before got what error; shift 3
  while true; do
    before=$(newest "$run") got=0 error=$((trial % 3))
    ESPALIER_FAULT_STRIDE=$stride ESPALIER_FAULT_LASTS=$((trial % 4 == 3)) \
      with_fault "${errors[error]}" "$rank" "$at" "$(path_of_step "$run" $((before + 2)))" "$run/checkpoints" \
      timeout 60 "$@" run.directory="$run" --stop-after 2 >out.txt 2>&1 || got=$?
    [[ -e struck.txt ]] || break
    what="${errors[error]} at operation $at: $(head -n 1 struck.txt)"
    not_lost "$run" "$what" $((before + 1))
    verified "$run" "$what"
    only_checkpoints "$run" "$what" 1
    if ((got == 8)); then
      refused=$((refused + 1))
      says "$run/checkpoints" "(errno ${numbers[error]})"
      state_is "$run" failed
    elif ((got == 75)); then
      harmless=$((harmless + 1)) && echo "no harm by $what"
      not_lost "$run" "$what" $((before + 2))
    else
      fail "exit code $got, wanted 8, after $what"
    fi
    at=$((at + 1)) trial=$((trial + 1))
    ((failures < 10)) || return
  done
  [[ $got == 75 ]] || fail "exit code $got of the start without a fault"
  ((trial > 5)) || fail "$run: only $trial faults"
  only_checkpoints "$run" "the last start"
  same_losses "$run" "$@"
}

one_rank() { failing_saves one_rank 0 8 "$espalier" train tiny.toml "${model[@]}"; }
behind() { failing_saves behind 0 8 "$espalier" train tiny.toml "${model[@]}" checkpoint.async=true; }
two_ranks() {
  local train=("$mpiexec" -n 2 "$espalier" train tiny.toml "${model[@]}" parallel.zero_stage=1)
  failing_saves rank_0 0 8 "${train[@]}"
  failing_saves rank_1 1 4 "${train[@]}"
}

# flip_bit FILE BYTE BIT
flip_bit() {
  local byte; byte=$(od -An -tu1 -j "$2" -N 1 "$1")
  printf "\\x$(printf '%02x' $((byte ^ (1 << $3))))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}
# damaged FILE WHAT: verify refuses the checkpoint with this file, and a launch resumes from the older one; every 25th time.
damaged() {
  expect 4 "${1##*/}" "$espalier" checkpoint verify bad/checkpoints/step-00000002
  refused=$((refused + 1))
  ((refused % 25 == 1)) || return
  exits 75 "$espalier" train tiny.toml "${model[@]}" run.directory=bad --stop-after 1
  says "step-00000002" "${1##*/}" "resumed from bad/checkpoints/step-00000001 "
  rm -rf bad; cp -a good bad
}
damage() {
  RANDOM=20261122
  local file size i
  expect 75 "stopped" "$mpiexec" -n 2 "$espalier" train tiny.toml "${model[@]}" parallel.zero_stage=1 run.directory=good --stop-after 2
  cp -a good bad
  for file in manifest.json rank-00000.h5 rank-00001.h5; do
    local good=good/checkpoints/step-00000002/$file bad=bad/checkpoints/step-00000002/$file
    size=$(stat -c %s "$good")
    rm "$bad"; damaged "$file"
    for ((i = 0; i < 50; i++)); do
      head -c $((size * i / 50)) "$good" >"$bad"; damaged "$file"
    done
    for ((i = 0; i < 67; i++)); do
      cp "$good" "$bad"; flip_bit "$bad" $(((RANDOM * 32768 + RANDOM) % size)) $((i % 8)); damaged "$file"
    done
    cp "$good" "$bad"
    ((failures < 10)) || return
  done
}

for part in "${@:-one_rank}"; do "$part"; done
echo "$*: $refused faults refused, $harmless without harm, $lost lost checkpoints"
((refused > 0)) || fail "nothing was refused"
summary

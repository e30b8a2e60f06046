#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# A rank that stops, dies or leaves just before it sends a message, at messages spread over a step, so that others wait for it in
# each kind of wait: test_rank_faults.sh ESPALIER FAULTS MPIEXEC, where FAULTS is the library of
# tests/support/message_faults.cpp.
espalier=$1 faults=$2 mpiexec=$3
source "$(dirname "$(realpath "$0")")/tiny_run.sh"
# Groups of more ranks than the first number use the library's collectives.
layouts=("16 parallel.pipeline=2 parallel.zero_stage=3" "16 parallel.pipeline=2 parallel.tensor=2" "1 parallel.pipeline=2 parallel.tensor=2")
# Before which message from the third step on: a step of these layouts sends 16 to 40 from each rank.
messages=(1 4 7 11 16 22)
deadline=2

# faulty FAULT RANK MESSAGE RUN LAYOUT...: starts it, with that fault; RUN.mark is made when it strikes.
faulty() {
  LD_PRELOAD=$faults ESPALIER_MESSAGE_FAULT=$1 ESPALIER_FAULT_RANK=$2 ESPALIER_FAULT_AT=$3 ESPALIER_FAULT_RUN=$4 \
    ESPALIER_FAULT_STEP=3 ESPALIER_FAULT_MARK=$4.mark ESPALIER_MOST_DIRECT_RANKS=$5 timeout 60 "$mpiexec" -n 4 \
    "$espalier" train tiny.toml run.directory="$4" --retry run.steps=500 run.communication_timeout=$deadline "${@:6}"
}
# told_by_diagnose RUN CAUSE...: one of these comes first.
told_by_diagnose() {
  "$espalier" diagnose "$1" --json >diagnosis.txt 2>&1 || fail "$1: no diagnosis" diagnosis.txt
  grep -m 1 '"cause"' diagnosis.txt | grep -qE "\"($2)\"" || fail "$1: the diagnosis is not $2" diagnosis.txt
}

# Stopped: the others give up after the deadline, say for whom they waited, and end the job with 6. Three at a time: they sleep.
stopped=0
for layout in "${layouts[@]}"; do
  for first in 0 3; do
    [[ $layout != "1 "* || $first == 0 ]] || continue
    jobs=()
    for ((i = first; i < first + 3; i++)); do
      { code=0
        # shellcheck disable=SC2086
        faulty stop $((i % 4)) "${messages[i]}" "stopped-$i" $layout >"stopped-$i.txt" 2>&1 || code=$?
        echo "$code $(($(date +%s) - $(date +%s -r "stopped-$i.mark" 2>/dev/null || echo 0)))" >"stopped-$i.result"; } &
      jobs+=($!)
    done
    wait "${jobs[@]}"
    for ((i = first; i < first + 3; i++)); do
      read -r code seconds <"stopped-$i.result"
      cp "stopped-$i.txt" out.txt
      [[ $code == 6 ]] || fail "exit code $code of a job whose rank $((i % 4)) stopped before message ${messages[i]}, wanted 6"
      ((seconds <= deadline + 5)) || fail "$seconds s after the fault, with a deadline of $deadline s"
      grep -qE "likely culprit: rank $((i % 4)) |(nothing from|not taken by) .*rank $((i % 4))" out.txt || fail "rank $((i % 4)) is not named"
      grep -oE 'waits for .* (from|on communicator)' out.txt | sed -E 's/waits for (.*) (from|on communicator)/\1/; s/ from ranks? .*//; s/[0-9]+/N/g' >>kinds.txt
      state_is "stopped-$i" failed
      nobody_left "stopped-$i"
      told_by_diagnose "stopped-$i" failed
      stopped=$((stopped + 1))
    done
  done
done

# Killed or gone: nobody is left to report, or the rank itself does. The next start, which is the next one here, tells of it.
killed=0 left=0 before=none
for layout in "${layouts[@]}"; do
  for ((i = 0; i < ${#messages[@]}; i++)); do
    [[ $layout != "1 "* ]] || ((i < 3)) || continue
    for fault in kill exit; do
      code=0
      # shellcheck disable=SC2086
      faulty $fault $((i % 4)) "${messages[i]}" gone $layout >out.txt 2>&1 || code=$?
      case $before in
        kill) says "was killed or crashed; 4 ranks left their progress" "rank $((i % 4)) (" ;;
        exit) says "the previous launch failed: rank" "left before the end of the job" ;;
      esac
      if [[ $fault == kill ]]; then
        ((code != 0 && code != 124)) || fail "exit code $code of a job with a killed rank"
        killed=$((killed + 1))
      else
        [[ $code == 6 ]] || fail "exit code $code of a job that a rank left by exit(0), wanted 6"
        says "rank $((i % 4)) left before the end of the job"
        state_is gone failed
        left=$((left + 1))
      fi
      grep -q '"state": "completed"' gone/run.json && fail "run.json says completed" gone/run.json
      nobody_left gone
      told_by_diagnose gone "died|failed"
      before=$fault
    done
  done
done
sort -u kinds.txt >kinds
echo "$stopped stopped, $killed killed, $left gone; kinds of wait:" && sed 's/^/  /' kinds
(($(wc -l <kinds) >= 5)) || fail "fewer than 5 kinds of wait" kinds
summary

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# check_collective_faults.sh PROGRAM FAULTS COMMAND...: a rank that stops, dies or is late just before each kind of the MPI
# library's collectives. The job ends in time, with the right code, and says for whom it waited. FAULTS is the library of
# tests/support/message_faults.cpp; COMMAND starts PROGRAM on four ranks, up to the program's name.
set -u
program=$1 faults=$2; shift 2
command=("$@")
directory=$(mktemp -d) && cd "$directory" || exit 1
trap 'rm -rf "$directory"' EXIT
export ESPALIER_MOST_DIRECT_RANKS=1
deadline=1 guilty=2 failures=0

# check FAULT CALL: in the background; what it found is in FAULT-CALL.result.
check() {
  local fault=$1 call=$2 name=$1-$2 code seconds problem=""
  LD_PRELOAD=$faults ESPALIER_MESSAGE_FAULT=$fault ESPALIER_FAULT_RANK=$guilty ESPALIER_FAULT_CALL=$call \
    ESPALIER_FAULT_AT=20 ESPALIER_FAULT_MARK=$directory/$name.mark \
    timeout 60 "${command[@]}" "$program" collectives >"$name.txt" 2>&1
  code=$?
  seconds=$(awk "BEGIN { printf \"%.1f\", $(date +%s.%N) - $(date +%s.%N -r "$name.mark" 2>/dev/null || echo 0) }")  # from the fault on
  if [[ ! -e $name.mark ]]; then problem="no fault struck"
  elif ((code == 0 || code == 124)); then problem="exit code $code"
  elif awk "BEGIN { exit !($seconds > $deadline + 5) }"; then problem="$seconds s with a deadline of $deadline s"
  elif [[ $fault != kill && $code != 6 ]]; then problem="exit code $code, wanted 6"
  elif [[ $fault != kill ]] && ! grep -qE "nothing from rank $guilty$" "$name.txt"; then problem="rank $guilty is not named"
  elif [[ $fault != kill ]] && (($(grep -c '^espalier: error on rank' "$name.txt") != 1)); then problem="not one error block"
  fi
  [[ -z $problem ]] && echo "ok: $name, $seconds s" >"$name.result" && return
  { echo "FAILED: $name: $problem; output:"; sed 's/^/    /' "$name.txt"; } >"$name.result"
}

ESPALIER_MESSAGE_FAULT="" timeout 60 "${command[@]}" "$program" collectives >none.txt 2>&1 ||
  { echo "FAILED: without a fault:"; cat none.txt; exit 1; }
for call in MPI_Ialltoallv MPI_Iallgatherv MPI_Ibcast MPI_Ibarrier; do
  for fault in stop kill delay; do check $fault $call & done
  wait
  for fault in stop kill delay; do
    cat "$fault-$call.result"
    grep -q '^ok' "$fault-$call.result" || failures=$((failures + 1))
  done
done
exit $((failures > 0))

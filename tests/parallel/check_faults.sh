#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# check_faults.sh PROGRAM RANKS COMMAND...: one rank's failure ends the job at once, with one error block and its exit code.
# COMMAND starts PROGRAM on RANKS ranks, up to the program's name.
set -u
program=$1 ranks=$2; shift 2
command=("$@")
failures=0
# CUDA takes its time to start, once a rank.
allowance=0
if nvidia-smi -L >/dev/null 2>&1; then allowance=15; fi

# check FAULT CODES BLOCKS SECONDS PATTERN
check() {
  local fault=$1 codes=$2 wanted_blocks=$3 seconds=$(($4 + allowance)) pattern=$5
  local start=$SECONDS output code blocks
  output=$(timeout 60 "${command[@]}" "$program" "$fault" 2>&1)
  code=$?
  blocks=$(grep -c '^espalier: error on rank' <<<"$output")
  if [[ ! " $codes " == *" $code "* ]]; then problem="exit code $code, wanted $codes"
  elif ((blocks != wanted_blocks)); then problem="$blocks error blocks, wanted $wanted_blocks"
  elif ((SECONDS - start > seconds)); then problem="took $((SECONDS - start)) s, wanted at most $seconds"
  elif ! grep -q -e "$pattern" <<<"$output"; then problem="no line with '$pattern'"
  else echo "ok: $fault"; return
  fi
  echo "FAILED: $fault on $ranks ranks: $problem; output:"; sed 's/^/    /' <<<"$output"
  failures=1
}

last=$((ranks - 1))
check none 0 0 10 "^$ranks rank"
check all_throw 2 1 5 "^espalier: error on rank 0 of $ranks, "
check one_throws 3 1 5 "^espalier: error on rank $last of $ranks, "
check one_defect 1 1 5 "vector::at"
check one_exits 6 1 5 "^early exit: rank $last left before the end of the job"
check all_exit 6 1 5 "rank 0 left before the end of the job"
if ((ranks > 1)); then
  check two_throw 3 1 5 "^espalier: error on rank 1 of $ranks, "
  check one_late 6 1 9 "nothing from rank $last$"
  check one_late_duplicate 6 1 9 "a communicator was not made in time"
fi
# Nobody is left to report: the launcher's words, and its mixture of the codes of the killed.
check one_killed "$(seq -s ' ' 255)" 0 5 ""
exit $failures

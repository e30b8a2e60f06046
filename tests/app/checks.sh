# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# For scripts that test the command as a user meets it: `source` it; then the working directory is an empty one, and the
# output of the command checked last is in out.txt. `summary` comes last.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

# fail TEXT [FILE]: counts a failure; the file shows it, the last output if none is given.
fail() { echo "FAILED: $1"; sed 's/^/  | /' "${2:-out.txt}"; failures=$((failures + 1)); }
# exits CODE COMMAND...: with this exit code.
exits() {
  local code=$1 got=0; shift
  "$@" >out.txt 2>&1 || got=$?
  [[ $got == "$code" ]] || fail "exit code $got, wanted $code: $*"
}
# says TEXT...: the last output contains each of them.
says() {
  local text
  for text in "$@"; do grep -qF -- "$text" out.txt || fail "the output does not say \"$text\""; done
}
# expect CODE TEXT COMMAND...: the exit code, and a text that the output contains.
expect() {
  local code=$1 text=$2; shift 2
  exits "$code" "$@"
  grep -qF -- "$text" out.txt || fail "the output does not say \"$text\": $*"
}
# once TEXT: the last output has it in exactly one line: one rank reports, once.
once() {
  local count; count=$(grep -cF -- "$1" out.txt)
  [[ $count == 1 ]] || fail "\"$1\" stands in $count lines"
}
# write_text LINES FILE: something to pack.
write_text() {
  for i in $(seq "$1"); do echo "The tree number $i is trained along a lattice, and the lattice holds the tree."; done >"$2"
}
# wait_for FILE: until something is in it.
wait_for() {
  for ((i = 0; i < 600; i++)); do [[ -s $1 ]] && return 0; sleep 0.1; done
  fail "$1 never came"
}
# Returns when SIGTERM is held in the process, which then asks for it. False: it ended before, or never did.
holds_sigterm() {
  local mask end=$((SECONDS + 60))
  until mask=$(sed -n 's/^SigBlk:\t/0x/p' "/proc/$1/status" 2>/dev/null); ((${mask:-0} & 0x4000)); do
    ((SECONDS < end)) && [[ -e /proc/$1 ]] || return 1
  done
}
summary() {
  if ((failures)); then echo "$failures checks failed"; exit 1; fi
  echo "all checks passed"
}

# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# What the tests of the command about resuming share: a folder of their own with a tiny config, and checks. To be sourced.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() { echo "FAILED: $1"; sed 's/^/  | /' "${2:-out.txt}"; failures=$((failures + 1)); }

# expect CODE "TEXT" COMMAND...: the exit code, and a text that the output, in out.txt, contains.
expect() {
  local code=$1 text=$2 got=0; shift 2
  "$@" >out.txt 2>&1 || got=$?
  [[ $got == "$code" ]] || fail "exit code $got, wanted $code: $*"
  grep -qF -- "$text" out.txt || fail "the output of $* does not say \"$text\""
}
# says TEXT...: the last output contains each of them.
says() {
  local text
  for text in "$@"; do grep -qF -- "$text" out.txt || fail "the output does not say \"$text\""; done
}
# wait_for FILE: until something is in it.
wait_for() {
  for ((i = 0; i < 600; i++)); do [[ -s $1 ]] && return 0; sleep 0.1; done
  fail "$1 never came"
}
# state_is RUN STATE: what run.json says.
state_is() { grep -q "\"state\": \"$2\"" "$1/run.json" || fail "run.json does not say $2" "$1/run.json"; }
# losses RUN: steps, losses and gradient norms, bit for bit.
losses() { sed -E 's/^(\{"step":[0-9]+,"loss":[^,]*),.*("gradient_norm":[^,]*),.*/\1 \2/' "$1/metrics.jsonl"; }
finish() {
  if ((failures)); then echo "$failures checks failed"; exit 1; fi
  echo "all checks passed"
}

for i in $(seq 300); do echo "The tree number $i is trained along a lattice, and the lattice holds the tree."; done >text.txt
cat >tiny.toml <<'TOML'
[model]
preset = "byte-1m"
num_layers = 2
hidden_size = 32
num_heads = 4
ffn_hidden_size = 64
max_sequence_length = 16
[data]
train = ["train.bin"]
[batch]
global_batch_size = 8
micro_batch_size = 2
[run]
directory = "run"
steps = 6
matmul = "tiled"
TOML
expect 0 "train.bin" "$espalier" data pack --output train.bin text.txt

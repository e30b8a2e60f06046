# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# A tiny run, which many tests of the command share beside checks.sh. To be sourced.
source "$(dirname "${BASH_SOURCE[0]}")/checks.sh"

# state_is RUN STATE: what run.json says.
state_is() { grep -q "\"state\": \"$2\"" "$1/run.json" || fail "run.json does not say $2" "$1/run.json"; }
# processes RUN: the ranks that train there.
processes() { pgrep -f "^$espalier train tiny.toml run.directory=$1 " || true; }
# nobody_left RUN [WHAT]: its ranks are gone. A launcher may return before the kernel has removed the last of them: 5 s.
nobody_left() {
  local tries
  for ((tries = 0; tries < 50; tries++)); do [[ -z $(processes "$1") ]] && return; sleep 0.1; done
  fail "${2:+$2: }ranks stay behind: $(processes "$1")"
}
# losses RUN: steps, losses and gradient norms, bit for bit.
losses() { sed -E 's/^(\{"step":[0-9]+,"loss":[^,]*),.*("gradient_norm":[^,]*),.*/\1 \2/' "$1/metrics.jsonl"; }

write_text 300 text.txt
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

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Models of each family, trained, exported and loaded by transformers: the same loss and the same greedy tokens; saved there and
# imported, the same weights bit for bit. test_transformers.sh ESPALIER
# The Python is ESPALIER_PYTHON, or python3. Exit status 77 where it has no torch and transformers.
espalier=$1
here=$(dirname "$(realpath "$0")")
python=${ESPALIER_PYTHON:-python3}
if ! reason=$("$python" -c 'import torch, transformers' 2>&1); then
  echo "SKIPPED: $python cannot import torch and transformers (${reason##*$'\n'}); ESPALIER_PYTHON may name another Python"
  exit 77
fi
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
source "$here/checks.sh"
write_text 400 text.txt
expect 0 "val.bin" "$espalier" data pack --output train.bin --validation val.bin --validation-fraction 0.05 text.txt
# Sequences longer than the window of mistral-tiny and qwen2-tiny, and than the original length of llama-tiny: 64 tokens each.
cat >tiny.toml <<'TOML'
[data]
train = ["train.bin"]
[batch]
global_batch_size = 4
micro_batch_size = 2
sequence_length = 160
[optimizer]
learning_rate = 5e-3
weight_decay = 0.01
[run]
steps = 60
TOML
prompt="The tree number 7 is trained along a lattice, and the lattice holds the tree. The tree number 8 is "

for preset in byte-1m llama-tiny mistral-tiny qwen2-tiny qwen3-tiny; do
  expect 0 "completed" "$espalier" train tiny.toml "run.directory=$preset" "model.preset=$preset"
  expect 0 "model.safetensors" "$espalier" checkpoint export "$preset" --output "$preset.hf"
  "$espalier" evaluate --checkpoint "$preset" --data val.bin --json >evaluated.json 2>out.txt || fail "evaluate $preset"
  "$espalier" generate --checkpoint "$preset" --prompt "$prompt" --max-tokens 60 --temperature 0 >"$preset.txt" 2>out.txt ||
    fail "generate $preset"
  "$python" "$here/transformers_model.py" "$preset.hf" val.bin 160 "$preset.txt" ${#prompt} "$preset.again" >loss.txt 2>out.txt ||
    { fail "$preset in transformers"; continue; }
  ours=$(sed -n 's/^ *"loss": \(.*\),$/\1/p' evaluated.json) theirs=$(<loss.txt)
  echo "$preset: loss $ours, in transformers $theirs"
  awk -v ours="$ours" -v theirs="$theirs" 'BEGIN { d = ours / theirs - 1; exit !(ours > 0 && d < 1e-5 && d > -1e-5) }' ||
    fail "$preset: loss $ours, in transformers $theirs"
  expect 0 "wrote" "$espalier" checkpoint import "$preset.again" --output "$preset.imported"
  expect 0 "model.safetensors" "$espalier" checkpoint export "$preset.imported" --output "$preset.twice"
  cmp "$preset.hf/model.safetensors" "$preset.twice/model.safetensors" >out.txt 2>&1 || fail "$preset: other weights after the way through transformers"
  cmp "$preset.hf/config.json" "$preset.twice/config.json" >out.txt 2>&1 || fail "$preset: another config.json after the way through transformers"
done
summary

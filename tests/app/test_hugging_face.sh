#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# A run as a Hugging Face model and back: test_hugging_face.sh ESPALIER COMMAND..., where COMMAND starts a program on two ranks.
espalier=$1; shift
two_ranks=("$@")
source "$(dirname "$(realpath "$0")")/tiny_run.sh"

exits 0 "$espalier" train tiny.toml
expect 0 "transformer.h.0.attn.c_attn.weight" "$espalier" checkpoint export run --output model --dry-run --shard-size "20 kB"
says "would write model: 28 tensors of 101.0 KiB" "model-00001-of-00005.safetensors, " "config.json"
[[ ! -e model ]] || fail "a dry run wrote something"
expect 0 "GPT2LMHeadModel" "$espalier" checkpoint export run --output model
says "model.safetensors" "config.json"
expect 0 "from transformer.h.0.attn.c_attn.weight" "$espalier" checkpoint import model --output imported --dry-run
says "h.0.attention.query.weight" "would write imported: " "checkpoints/step-00000000"
[[ ! -e imported ]] || fail "a dry run wrote something"
echo '{}' >model/tokenizer.json
sed -i 's/"eos_token_id": null/"eos_token_id": [3, 7]/' model/config.json
expect 0 "wrote imported/checkpoints/step-00000000" "$espalier" checkpoint import model --output imported
says "[model]" "hidden_size = 32"
expect 0 "all checksums are right" "$espalier" checkpoint verify imported
expect 0 "weights from imported" "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=tuned --init-from imported \
  parallel.tensor=2
# The weights are those of the run: its next loss is the first one.
expect 0 "weights from run" "$espalier" train tiny.toml run.directory=direct --init-from run
loss_of() { sed -nE '1s/.*"loss":([0-9.]+).*/\1/p' "$1/metrics.jsonl" | cut -c1-6; }
[[ $(loss_of direct) =~ ^[0-9.]{6}$ ]] || fail "no loss in the metrics: $(loss_of direct)" direct/metrics.jsonl
[[ $(loss_of tuned) == "$(loss_of direct)" ]] || fail "an import starts with another loss: $(loss_of tuned), $(loss_of direct)"
# The same without an import; a config without [model] takes that of config.json, also in a dry run.
expect 0 "weights from model (Hugging Face)" "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=foreign --init-from model \
  parallel.tensor=2
[[ $(loss_of foreign) == "$(loss_of direct)" ]] || fail "a Hugging Face directory starts with another loss: $(loss_of foreign)"
sed '/^\[model\]/,/^max_sequence_length/d' tiny.toml >bare.toml
expect 0 "weights from model (Hugging Face)" "$espalier" train bare.toml run.directory=bare --init-from model
[[ $(loss_of bare) == "$(loss_of direct)" ]] || fail "without [model] a run starts with another loss: $(loss_of bare)"
grep -q "hidden_size = 32" bare/config.toml || fail "config.toml is not of the model" bare/config.toml
expect 0 "2 layers" "$espalier" train bare.toml --init-from model --dry-run
expect 0 "was for the first launch" "$espalier" train bare.toml run.directory=bare --init-from model run.steps=7
expect 2 "config.json says 4" "$espalier" train tiny.toml run.directory=other --init-from model model.num_heads=2
[[ ! -e other ]] || fail "a refused command wrote something"
# What --init-from names is looked at first, before the token files.
echo 'not tokens' >garbage.bin
start() { local code=$1 text=$2; shift 2; expect "$code" "$text" "$espalier" train bare.toml run.directory=other 'data.train=["garbage.bin"]' "$@"; }
start 4 "neither a run, a checkpoint nor a Hugging Face directory" --init-from nothing
says "nothing of this name"
start 4 "neither a run, a checkpoint nor a Hugging Face directory" --init-from model/model.safetensors
start 4 "neither a run, a checkpoint nor a Hugging Face directory" --init-from nothing --dry-run
start 4 "model.num_layers: 2 -> 4" --init-from imported
start 2 "model.num_layers=4, and config.json says 2" --init-from model model.num_layers=4
[[ $(grep -c "and config.json says" out.txt) == 1 ]] || fail "more than one key is named"
start 2 "model.num_layers=4, and config.json says 2" --init-from model model.num_layers=4 --dry-run
start 3 "garbage.bin" --init-from model
[[ ! -e other ]] || fail "a refused command wrote something"
# The printed [model] is short, and makes the same model.
expect 0 "wrote printed" "$espalier" checkpoint import model --output printed
says "num_layers = 2" "hidden_size = 32"
grep -q "preset\|norm_eps" out.txt && fail "the printed model has more than what it changes"
{ sed -n '/^\[model\]/,$p' out.txt; sed '1,/^max_sequence_length/d' tiny.toml; } >printed.toml
expect 0 "weights from printed" "$espalier" train printed.toml run.directory=of_printed run.steps=1 --init-from printed
# The ids of special tokens go along, also where no tokenizer does.
ids_of() { tr -d ' \n' <"$1/config.json" | grep -o '"eos_token_id":[^,]*,[^,]*,'; }
mv model/tokenizer.json .
expect 0 "weights from model" "$espalier" train bare.toml run.directory=ids run.steps=1 --init-from model
expect 0 "generation_config.json" "$espalier" checkpoint export ids --output ids_model
[[ $(ids_of ids_model) == "$(ids_of model)" ]] || fail "a run has lost the ids of the model" ids_model/config.json
expect 0 "weights from ids" "$espalier" train printed.toml run.directory=ids2 run.steps=1 --init-from ids
expect 0 "generation_config.json" "$espalier" checkpoint export ids2 --output ids2_model
cmp -s ids_model/generation_config.json ids2_model/generation_config.json || fail "a run has lost the ids of a run"
mv tokenizer.json model
# One for the other.
expect 4 "espalier checkpoint import model" "$espalier" generate --checkpoint model
expect 4 "espalier checkpoint import model" "$espalier" evaluate --checkpoint model --data train.bin
expect 4 "espalier checkpoint import model" "$espalier" checkpoint export model --output other
expect 3 "espalier checkpoint export imported" "$espalier" checkpoint import imported --output other
expect 2 "--output" "$espalier" checkpoint import model --output ""
expect 2 "--output" "$espalier" checkpoint export run --output ""
expect 2 "is empty" "$espalier" checkpoint import "" --output other
expect 2 "would lie inside the input directory" "$espalier" checkpoint import model --output model/inside
expect 2 "would lie inside the input directory" "$espalier" checkpoint import model/ --output ./model/../model/a/b --dry-run
[[ ! -e model/inside && ! -e model/a && ! -e other ]] || fail "a refused command wrote something"
# Several files, 16 bits, and the tokenizer comes along.
expect 0 "tokenizer.json" "$espalier" checkpoint export imported --output parts --dtype bf16 --shard-size "10 kB"
says "model.safetensors.index.json"
tr -d ' \n' <parts/config.json | grep -qF '"eos_token_id":[3,7]' || fail "the export has lost the ids of the import" parts/config.json
expect 0 "wrote again" "$espalier" checkpoint import parts --output again

expect 0 "tokenizer.json" "$espalier" checkpoint export imported/checkpoints/step-00000000/ --output slash

expect 3 "config.json" "$espalier" checkpoint import run --output other
expect 3 "config.json" "$espalier" checkpoint import nowhere --output other
expect 2 "a new or empty folder" "$espalier" checkpoint import model --output imported
expect 2 "a new or empty folder" "$espalier" checkpoint export run --output model
expect 2 "a new or empty folder" "$espalier" checkpoint export run --output model --dry-run
expect 2 "a new or empty folder" "$espalier" checkpoint import model --output imported --dry-run
ln -s nothing link
expect 2 "a new or empty folder" "$espalier" checkpoint import model --output link
[[ -L link ]] || fail "a refused import took a link away"
expect 2 "unknown type" "$espalier" checkpoint export run --output other --dtype fp8
expect 2 "not a size" "$espalier" checkpoint export run --output other --shard-size much
exits 0 "$espalier" train tiny.toml run.directory=relu model.activation=relu_squared
exits 0 "$espalier" checkpoint export relu --output relu_model
grep -q '"activation_function": "relu2"' relu_model/config.json || fail "another activation function" relu_model/config.json
expect 0 "relu_squared" "$espalier" checkpoint import relu_model --output relu_again
printf 'x' | dd of=model/model.safetensors bs=1 seek=3 conv=notrunc status=none
expect 3 "model.safetensors" "$espalier" checkpoint import model --output other
expect 3 "model.safetensors" "$espalier" train tiny.toml run.directory=other --init-from model
(ulimit -f 2; trap '' XFSZ; expect 8 "other" "$espalier" checkpoint export imported --output other; exit $failures) || failures=1
[[ ! -e other ]] || fail "a refused command wrote something"
summary

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Importing and exporting want memory for a few of the largest tensor, not for the model: test_hugging_face_memory.sh ESPALIER
# `ulimit -v` counts libraries, buffers and whatever is mapped. It is the least that the program starts with, and less than the
# model. The same bytes as one tensor do not fit.
espalier=$1
source "$(dirname "$0")/checks.sh"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
limit=$((512 << 10))  # KiB

free=$(df --output=avail -k . | tail -n 1)
if ((free < 2 << 20)); then echo "skipped: less than 2 GiB are free in $work"; exit 77; fi

# llama DIRECTORY LAYERS HIDDEN FFN VOCABULARY: in fp32, all zeros, in a file with holes that takes no space.
llama() {
  local directory=$1 layers=$2 hidden=$3 ffn=$4 vocabulary=$5 layer name header="" end=0 length="" byte
  # tensor NAME EXTENT...: appends it to the header.
  tensor() {
    local name=model.$1.weight shape begin=$end elements=1 extent; shift
    for extent; do elements=$((elements * extent)); done
    end=$((begin + 4 * elements)) shape=$(IFS=,; echo "$*")
    header+="${header:+,}\"$name\":{\"dtype\":\"F32\",\"shape\":[$shape],\"data_offsets\":[$begin,$end]}"
  }
  tensor embed_tokens "$vocabulary" "$hidden"
  tensor norm "$hidden"
  for ((layer = 0; layer < layers; layer++)); do
    for name in q k v o; do tensor "layers.$layer.self_attn.${name}_proj" "$hidden" "$hidden"; done
    for name in gate up; do tensor "layers.$layer.mlp.${name}_proj" "$ffn" "$hidden"; done
    tensor "layers.$layer.mlp.down_proj" "$hidden" "$ffn"
    for name in input post_attention; do tensor "layers.$layer.${name}_layernorm" "$hidden"; done
  done
  header="{$header}"
  for byte in 0 1 2 3 4 5 6 7; do length+=$(printf '\\x%02x' $((${#header} >> (8 * byte) & 255))); done
  mkdir "$directory"
  { printf '%b' "$length"; printf %s "$header"; } >"$directory/model.safetensors"
  truncate -s $((8 + ${#header} + end)) "$directory/model.safetensors"
  cat >"$directory/config.json" <<JSON
{"architectures": ["LlamaForCausalLM"], "vocab_size": $vocabulary, "hidden_size": $hidden, "intermediate_size": $ffn,
 "num_hidden_layers": $layers, "num_attention_heads": 8, "tie_word_embeddings": true}
JSON
}
# limited COMMAND...: under that limit.
limited() { (ulimit -v $limit; "$@"); }
# larger_than_limit FILE
larger_than_limit() { (($(stat -c %s "$1") > limit << 10)) || fail "$1 is no larger than the limit" <(ls -l "$1"); }

llama many 8 1024 4096 256  # the largest tensor has 16 MiB
llama one 1 64 128 2097152  # ... 512 MiB
larger_than_limit many/model.safetensors
larger_than_limit one/model.safetensors
expect 0 "wrote imported" limited "$espalier" checkpoint import many --output imported
expect 7 "out of memory" limited "$espalier" checkpoint import one --output refused
[[ ! -e refused ]] || fail "an import without memory left something" <(ls -R refused)
larger_than_limit imported/checkpoints/step-00000000/rank-00000.h5
expect 0 "all checksums are right" limited "$espalier" checkpoint verify imported
expect 0 "model.safetensors.index.json" limited "$espalier" checkpoint export imported --output exported --dtype bf16 --shard-size "100 MB"
rm -r imported exported
expect 0 "wrote imported" "$espalier" checkpoint import one --output imported
expect 7 "out of memory" limited "$espalier" checkpoint export imported --output refused --dtype bf16
[[ ! -e refused ]] || fail "an export without memory left something" <(ls -R refused)
summary

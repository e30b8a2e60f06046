#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Token files of other programs: `espalier data convert` and `data inspect`, and training on them.
# test_token_formats.sh ESPALIER COMMAND..., where COMMAND starts a program on two ranks.
espalier=$1; shift
two_ranks=("$@")
source "$(dirname "$(realpath "$0")")/tiny_run.sh"
convert() { "$espalier" data convert "$@"; }
inspect() { "$espalier" data inspect "$@"; }

# ---- The same tokens give the same losses, bit for bit, under every name of the pair ----
exits 0 "$espalier" data pack --document-separator $'\n' --output train.bin text.txt
expect 0 "corpus.idx" convert train.bin --output corpus --format megatron
says "corpus.bin" "300 documents"
train() { expect 0 "completed" "${two_ranks[@]}" "$espalier" train tiny.toml run.steps=2 "run.directory=$1" "data.train=[\"$2\"]"; }
train ours train.bin
for name in corpus corpus.bin corpus.idx; do
  train "of-$name" "$name"
  says "trains on corpus.bin: " "Megatron's format, tokenizer not stated"
  [[ $(losses ours) == "$(losses "of-$name")" ]] || fail "$name gives other losses" "of-$name/metrics.jsonl"
done
[[ $(losses ours | grep -c '"loss":') == 2 ]] || fail "not two steps" ours/metrics.jsonl

# ---- There and back ----
expect 0 "tokenizer byte" convert corpus --output back.bin --format espalier --tokenizer byte --vocab-size 256
cmp train.bin back.bin || fail "train.bin has changed on its way"
expect 0 "300 documents" convert corpus.idx --output again --format megatron
cmp corpus.bin again.bin && cmp corpus.idx again.idx || fail "the pair has changed on its way"
expect 0 "600 documents" convert corpus train.bin --output joined.bin --format megatron
cp corpus.bin nano.bin
expect 0 "300 documents" convert nano.bin --output ended --format megatron --document-end 10  # the end of a line
cmp corpus.bin ended.bin && cmp corpus.idx ended.idx || fail "the documents are others"
cat corpus.bin nano.bin | cmp - joined.bin || fail "not one behind the other"
expect 0 "vocabulary 118, tokenizer not stated" convert nano.bin --output from-nano --format espalier

# ---- What is in a file ----
expect 0 "documents   300, of" inspect corpus
says "format      megatron" "of 2 bytes (uint16)" "ids         10 to 117" "64 - 127" "checked     index; --vocab-size N"
expect 0 "documents   300, of" inspect train.bin
says "as text     The tree number 1 is trained" "checked     checksum and every token"
expect 0 "documents   not stored" inspect nano.bin
expect 0 "documents   300, of" inspect nano.bin --document-end 10
expect 0 "from 4      116 114 101 101" inspect train.bin --from 4 --show 4
expect 0 '"documents": 300' inspect corpus --json --vocab-size 256
says '"type": "uint16"' '"largest_id": 117' '"checked": "index and every token against the vocabulary"' '"histogram"'

# ---- Each wrong input is one error, and nothing is left of an output ----
expect 3 "id 117" convert corpus --output none --format megatron --vocab-size 117
expect 3 "file not found" convert absent --output none --format megatron
expect 8 "the output exists already" convert train.bin --output corpus --format megatron
expect 2 "--output is an input" convert train.bin --output train.bin --format espalier
expect 8 "corpus.idx" convert train.bin --output corpus.idx --format espalier
expect 2 "--format" convert train.bin --output none --format parquet
(failures=0; ulimit -f 4; expect 8 "none.bin" convert train.bin --output none --format megatron; exit $failures) || fail "a full disk"
cp corpus.bin cut.bin
head -c -4 corpus.idx >cut.idx
expect 3 "does not fit its .bin" "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=none 'data.train=["cut"]'
once "does not fit its .bin"
cp corpus.idx cut.idx
printf '\x7f' | dd of=cut.idx bs=1 seek=100 conv=notrunc status=none
expect 3 "sequence 16" "${two_ranks[@]}" "$espalier" train tiny.toml run.directory=none 'data.train=["cut"]' data.check_limit=0
head -c 20 nano.bin >short.bin
expect 3 "shorter than one sequence" "$espalier" train tiny.toml run.directory=none 'data.train=["short.bin"]'
expect 3 "beyond the model's vocabulary" "$espalier" train tiny.toml run.directory=none 'data.train=["corpus"]' model.vocab_size=117
compgen -G 'none*' >out.txt && fail "a refused command has left something"
summary

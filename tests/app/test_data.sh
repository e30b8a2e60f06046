#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# test_data.sh ESPALIER: text and token files as users have them. Patterns, memory, files that are not what they seem, files
# that change between two starts, and tokens that a model does not know.
espalier=$1
here=$(dirname "$(realpath "$0")")
source "$(dirname "$0")/checks.sh"
export OMP_NUM_THREADS=1 ESPALIER_PROGRESS=lines

write_text 400 text.txt
mkdir held_out corpus
for name in 1 2 3 a; do write_text 30 corpus/$name; echo "of file $name" >>corpus/$name; done
cp corpus/1 held_out/1

# ---- Patterns are the shell's, in brackets, too, and each is told that matches nothing ----
expect 0 "3 files" "$espalier" data pack --output t.bin 'corpus/[0-9]'
cd corpus || exit 1
expect 0 "3 files" "$espalier" data pack --output ../t.bin '[0-9]'
expect 0 "1 file," "$espalier" data pack --output ../t.bin '*' --exclude '[0-9]' out.txt
expect 0 "1 file," "$espalier" data pack --output ../t.bin '*' --exclude out.txt --exclude='[0-9]'
rm out.txt
cd .. || exit 1
expect 0 "3 files" "$espalier" data pack --output t.bin 'corpus/*' --exclude corpus/1
expect 0 "2 files" "$espalier" data pack --output t.bin 'corpus/*' --exclude corpus/1 '[ab]'
expect 3 "matches no input" "$espalier" data pack --output none.bin 'corpus/*' --exclude held_out/1
says "held_out/1"
expect 3 "no file matches" "$espalier" data pack --output none.bin '[x-z]'
says "[x-z]"
expect 2 "[[data]]" "$espalier" train '[[data]]' '[[data]]'
expect 3 "an input is not a file" "$espalier" data pack --output none.bin <(echo "a pipe")
[[ ! -e none.bin ]] || fail "refused, and yet a file was written"

# ---- Memory does not depend on the length of a line; where there is too little, the advice is of memory ----
head -c 48000000 /dev/zero | tr '\0' x >line.txt
needed() { (ulimit -v "$1" && "$espalier" data pack --output line.bin --validation v.bin --validation-fraction 0.05 "$2") ; }
least=1000
until needed $((least * 1024)) text.txt >out.txt 2>&1 || ((least > 60000)); do least=$((least + 100)); done
expect 0 "5 % of all" needed $(((least + 110) * 1024)) line.txt
rm -f line.txt line.bin

# ---- What contradicts the options is told ----
printf 'one\n%%\ntwo\n%%\n' >sayings
expect 0 "occurs 2 times" "$espalier" data pack --output t.bin --document-separator '\n%\n' sayings
printf '{"text": "one"}\n{"text": "two"}\n' >lines.jsonl
expect 0 "JSON lines is packed as plain text" "$espalier" data pack --output t.bin lines.jsonl
expect 3 "a token file of Espalier" "$espalier" data pack --output u.bin t.bin

# ---- JSON lines, compressed, from a directory and from standard input, are documents of their own ----
mkdir lines
printf '{"text": "one"}\n{"text": "two two"}\n' | gzip >lines/a.jsonl.gz
printf '{"text": "three"}\n{"text": 3}\n' >lines/b.jsonl
expect 3 "b.jsonl:2" "$espalier" data pack --output u.bin --key text lines
[[ ! -e u.bin && ! -e u.bin.partial && ! -e u.bin.journal ]] || fail "refused, and yet a file was written"
expect 0 "3 documents" "$espalier" data pack --output u.bin --key text --skip-bad --document-end 0 lines
says "b.jsonl:2"
expect 0 "documents   3, of 4 to 8 tokens, 6.0 on average" "$espalier" data inspect u.bin --tokenizer byte
says 'one\x00two two\x00three'
expect 0 "2 documents" "$espalier" data pack --output t.bin --key text - <lines/a.jsonl.gz
expect 2 "cannot be used with standard input" "$espalier" data pack --output t.bin --key text - --exclude '*.dat' <lines/a.jsonl.gz
expect 2 "standard input cannot be packed together with files" "$espalier" data pack --output t.bin --key text - lines/b.jsonl <text.txt
expect 2 "--document-end <none>" "$espalier" data pack --output t.bin --document-end '<none>' text.txt

# ---- How each token file is read; what is none of ours is not believed ----
cat >run.toml <<'TOML'
[model]
preset = "byte-1m"
num_layers = 1
hidden_size = 32
num_heads = 2
ffn_hidden_size = 64
max_sequence_length = 32
[data]
train = ["train.bin"]
validation = ["val.bin"]
[batch]
global_batch_size = 4
[run]
directory = "run"
steps = 4
eval_samples = 8
TOML
expect 0 "% of all" "$espalier" data pack --output train.bin --validation val.bin --validation-fraction 0.1 text.txt
tokens() {  # tokens BYTES OFFSET <TEXT: uint16 or int32 ids of its bytes
  od -An -v -tu1 -w1 | while read -r id; do printf "\\x$(printf %02x $(((id + $2) % 256)))"; for ((i = 1; i < $1; i++)); do printf '\0'; done; done
}
head -c 4000 text.txt | tokens 2 0 >nano.bin
head -c 4000 text.txt | tokens 4 0 >megatron.bin
expect 3 "every second uint16 is 0" "$espalier" train run.toml 'data.train=["megatron.bin"]' run.directory=none
expect 3 "every second uint16 is 0" "$espalier" data inspect megatron.bin
gzip -c nano.bin >packed.bin
expect 3 "gzip" "$espalier" train run.toml 'data.validation=["packed.bin"]' run.directory=none
expect 75 "trains on train.bin" "$espalier" train run.toml --stop-after 2
says "espalier's format, tokenizer byte" "validates on val.bin"
expect 75 "raw without a header (nanoGPT), tokenizer not stated" "$espalier" train run.toml 'data.train=["nano.bin"]' \
  'data.validation=["nano.bin"]' run.directory=nano --stop-after 2
says "warning: the validation file nano.bin is also used for training"

# ---- A changed file is noticed at a resume, and may be meant; a moved one is the same ----
mkdir moved
mv nano.bin moved
expect 75 "resumed from" "$espalier" train run.toml 'data.train=["moved/nano.bin"]' 'data.validation=["moved/nano.bin"]' \
  run.directory=nano --stop-after 1
printf '\x41\0' | dd of=moved/nano.bin bs=1 seek=7998 conv=notrunc status=none
nano=("$espalier" train run.toml 'data.train=["moved/nano.bin"]' 'data.validation=["moved/nano.bin"]' run.directory=nano)
expect 3 "data.train[0]: 8000 bytes" "${nano[@]}"
says "data.validation[0]" "--new-data"
expect 0 "completed" "${nano[@]}" --new-data
cp val.bin before.bin
head -c 3000 text.txt | tr a-z b-za >other.txt
expect 0 "tokens" "$espalier" data pack --output val.bin other.txt
expect 3 "data.validation[0]" "$espalier" train run.toml
cp before.bin val.bin
expect 0 "completed" "$espalier" train run.toml

# ---- What a model does not know is refused; not-a-number is in no range ----
tr -cd '\0-\177' <text.txt >ascii.txt
expect 0 "" "$espalier" data pack --output ascii.bin ascii.txt
expect 0 "completed" "$espalier" train run.toml model.vocab_size=128 'data.train=["ascii.bin"]' 'data.validation=[]' run.directory=ascii
expect 2 "id 195 in \"é\"" "$espalier" generate --checkpoint ascii --prompt 'café'
says "ids below 128"
expect 0 "cafe" "$espalier" generate --checkpoint ascii --prompt 'cafe' --max-tokens 4
for option in --top-p --temperature; do
  for number in nan NaN -nan inf 1e999; do
    expect 2 "$option" "$espalier" generate --checkpoint ascii "$option" "$number"
  done
done
expect 2 "fraction" "$espalier" data pack --output t.bin --validation v.bin --validation-fraction nan text.txt
expect 2 "learning_rate" "$espalier" train run.toml optimizer.learning_rate=nan run.directory=none
expect 2 "--tolerance" "$espalier" verify run.toml --tolerance nan
expect 2 "--max-step-seconds" "$espalier" plan --model gpt2-124m --cluster a100-80 --batch 8 --max-step-seconds nan

# ---- Tokenizers: the way there and back, packed on several threads, a model that learns their tokens ----
fixtures=$here/../io/text
gpt2=$fixtures/gpt2_like.json
tokenize=("$espalier" data tokenize --tokenizer)
for tokenizer in "$gpt2" "$fixtures/small.tiktoken" byte; do
  "${tokenize[@]}" "$tokenizer" "$fixtures/languages.txt" >ids.txt 2>out.txt || fail "tokenize with $tokenizer"
  "${tokenize[@]}" "$tokenizer" --decode ids.txt >back.txt 2>out.txt || fail "decode with $tokenizer"
  cmp back.txt <(cat "$fixtures/languages.txt"; echo) >out.txt 2>&1 || fail "$tokenizer gives another text"
done
printf 'a b\0c\n\0' | "${tokenize[@]}" byte --null >out.txt 2>&1
[[ $(<out.txt) == $'97 32 98\n99 10' ]] || fail "documents with a zero byte behind each"
expect 3 "not a list of token ids" "${tokenize[@]}" byte --decode text.txt
printf ab | gzip >ab.gz
expect 0 "97 98" "${tokenize[@]}" byte ab.gz
printf '1 2\n3 999999\n' >bad_ids.txt
expect 3 "bad_ids.txt:2, token 2" "${tokenize[@]}" byte --decode bad_ids.txt
expect 2 "unknown tokenizer" "${tokenize[@]}" nowhere.json text.txt
expect 3 "is not a tokenizer" "${tokenize[@]}" text.txt text.txt
sed 's/"type":"BPE"/"type":"WordLevel"/' "$gpt2" >other.json
expect 3 "WordLevel" "${tokenize[@]}" other.json text.txt
mkdir tokenizer
cp "$gpt2" tokenizer/tokenizer.json
pack=("$espalier" data pack --tokenizer tokenizer --document-separator $'.\n' text.txt)
for threads in 1 3; do expect 0 "tokens" "${pack[@]}" --threads $threads --output gpt2.$threads.bin; done
cmp gpt2.1.bin gpt2.3.bin >out.txt 2>&1 || fail "other tokens on three threads"
echo "2" >two.txt
expect 0 "tokens" "$espalier" data pack --tokenizer tokenizer --document-end 2 --output end.bin two.txt
expect 0 "tokens" "$espalier" data inspect end.bin
grep -qE '^ +first .* 2$' out.txt || fail "--document-end 2 is not the id 2"
expect 2 "token that ends documents is unknown" "$espalier" data pack --tokenizer tokenizer --document-end a --output end.bin two.txt
expect 0 "tokenizer   bpe-600-" "$espalier" data inspect gpt2.1.bin
expect 0 "completed" "$espalier" train run.toml model.vocab_size=600 'data.train=["gpt2.1.bin"]' 'data.validation=[]' run.directory=gpt2
write=("$espalier" generate --checkpoint gpt2 --prompt "The tree" --max-tokens 8)
expect 4 "bpe-600-" "${write[@]}"
says "--tokenizer FILE"
expect 4 "another tokenizer" "${write[@]}" --tokenizer byte
expect 0 "The tree" "${write[@]}" --tokenizer "$gpt2"
expect 4 "another tokenizer" "$espalier" evaluate --checkpoint gpt2 --data u.bin
says "u.bin" "bpe-600-"
expect 4 "another tokenizer" "$espalier" evaluate --checkpoint gpt2 --text text.txt --tokenizer byte
expect 0 "of_gpt2.idx" "$espalier" data convert gpt2.1.bin --output of_gpt2 --format megatron
expect 3 "beyond the vocabulary of --tokenizer" "$espalier" data convert of_gpt2 --output c.bin --format espalier --tokenizer byte
[[ ! -e c.bin ]] || fail "refused, and yet a file was written"
expect 0 "vocabulary 600, tokenizer bpe-600-" "$espalier" data convert of_gpt2 --output c.bin --format espalier --tokenizer tokenizer
expect 3 "beyond --vocab-size" "$espalier" data convert u.bin --output c.bin --format espalier --vocab-size 20
expect 3 "beyond --vocab-size" "$espalier" data inspect u.bin --vocab-size 20
expect 2 "after the end of the file" "$espalier" data inspect u.bin --from 100000
cp -r tokenizer gpt2
expect 0 "The tree" "${write[@]}"
[[ ! -e none ]] || fail "a refused run has left a directory"
summary

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# `espalier generate`: rules of sampling, where a text ends, several prompts, and several ranks.
# test_generate.sh ESPALIER MPIEXEC ARGUMENT...
espalier=$1
mpiexec=("${@:2}")
script=$(realpath "$0")
source "$(dirname "$script")/tiny_run.sh"
expect 0 "completed" "$espalier" train tiny.toml run.steps=60 optimizer.learning_rate=1e-2

# generate FILE ARGUMENT...: a text of 60 tokens, into the file.
generate() {
  local file=$1; shift
  "$espalier" generate --checkpoint run --max-tokens 60 "$@" >"$file" 2>out.txt || fail "generate $*"
}
same() { cmp -s "$1" "$2" || fail "$3: $1 (<) and $2 (>)" <(diff "$1" "$2"); }
differs() { ! cmp -s "$1" "$2" || fail "$3" "$1"; }

# ---- Greedy, in four words ----
generate greedy.txt --prompt "The tree" --temperature 0
[[ $(wc -c <greedy.txt) == 69 ]] || fail "not 8 + 60 bytes and the end of the line" greedy.txt
for options in "--top-k 1" "--top-p 0" "--temperature 0 --seed 9" "--top-k 1 --top-p 0.5 --temperature 3"; do
  # shellcheck disable=SC2086
  generate other.txt --prompt "The tree" $options
  same greedy.txt other.txt "greedy by $options"
done

# ---- The same seed, the same text; rules that rule nothing out change nothing ----
generate seeded.txt --prompt "The tree" --seed 3 --temperature 1 --top-p 1
generate other.txt --prompt "The tree" --seed 3 --temperature 1 --top-p 1 --top-k 100000 --repetition-penalty 1
same seeded.txt other.txt "top-k beyond the vocabulary and penalty 1"
generate other.txt --prompt "The tree" --seed 4 --temperature 1 --top-p 1
differs seeded.txt other.txt "another seed gives the same text"
generate other.txt --prompt "The tree" --temperature 0 --repetition-penalty 100
differs greedy.txt other.txt "a repetition penalty changes nothing"
[[ $(head -c 40 other.txt | fold -w 1 | sort | uniq -d | wc -l) -lt $(head -c 40 greedy.txt | fold -w 1 | sort | uniq -d | wc -l) ]] ||
  fail "with the penalty as many bytes come again" other.txt

# ---- Where it ends: before a text, in whatever pieces that comes, or before a token ----
generate whole.txt --prompt "" --seed 5
grown=$(tr -d '\n' <whole.txt)
[[ ${#grown} -gt 30 ]] || fail "too little to stop in" whole.txt
stop=${grown:20:3}
generate ended.txt --prompt "" --seed 5 --stop "$stop" --stop "never comes"
before=$(<whole.txt); before=${before%%"$stop"*}
[[ $(<ended.txt) == "$before" ]] || fail "not ended before \"$stop\"; wanted \"$before\"" ended.txt
byte=$(printf '%d' "'${grown:20:1}")
generate ended.txt --prompt "" --seed 5 --stop-token 0 --stop-token "$byte"
before=$(<whole.txt); before=${before%%"${grown:20:1}"*}
[[ $(<ended.txt) == "$before" ]] || fail "not ended before token $byte; wanted \"$before\"" ended.txt
generate ended.txt --prompt "The tree" --temperature 0 --stop "The tree"
[[ $(wc -c <ended.txt) -gt 20 ]] || fail "the prompt itself has ended it" ended.txt

# ---- Several prompts: each gets the text that it gets alone ----
prompts=("The tree" "lattice [a]" "~")
for i in 0 1 2; do
  generate "alone$i.txt" --prompt "${prompts[i]}" --seed 2
  { ((i == 0)) || echo; echo "==> $((i + 1)) of 3 <=="; cat "alone$i.txt"; } >>wanted.txt
done
generate all.txt --prompt "${prompts[0]}" --prompt "${prompts[1]}" --prompt="${prompts[2]}" --seed 2
same wanted.txt all.txt "three prompts"
printf '%s\n\n%s\r\n%s' "${prompts[@]}" >prompts.txt
generate all.txt --prompts prompts.txt --seed 2
same wanted.txt all.txt "three lines of a file"
head -n 1 prompts.txt >one.txt
generate all.txt --prompts one.txt --seed 2
same alone0.txt all.txt "a file of one line"

for size in 1 2 3 16; do
  generate all.txt --prompts prompts.txt --seed 2 --batch-size "$size"
  same wanted.txt all.txt "$size prompts together"
done
# One that ends early leaves its place to the next one.
for i in 0 1 2; do
  generate "alone$i.txt" --prompt "${prompts[i]}" --seed 2 --stop e
done
{ for i in 0 1 2; do ((i == 0)) || echo; echo "==> $((i + 1)) of 3 <=="; cat "alone$i.txt"; done; } >wanted.txt
generate all.txt --prompts prompts.txt --seed 2 --stop e --batch-size 2
same wanted.txt all.txt "three prompts that end at different times"

# ---- Beyond the model's positions the last tokens alone count, and a note says so, once ----
generate other.txt --prompt a --prompt b
once "the model's max_sequence_length: each token was chosen from the last 16 tokens alone"
"$espalier" generate --checkpoint run --max-tokens 12 --prompt abcd >other.txt 2>out.txt || fail "generate 12 tokens"
grep -q max_sequence_length out.txt && fail "a text that fits is warned of"

# ---- Tensor ranks: the texts of one rank, printed once; copies of the heads of K and V; an odd vocabulary ----
# on RANKS FILE ARGUMENT...
on() {
  local ranks=$1 file=$2; shift 2
  "${mpiexec[@]}" "$ranks" "$espalier" generate --max-tokens 40 "$@" >"$file" 2>out.txt || fail "generate on $ranks ranks: $*"
}
llama=(model.norm=rmsnorm model.activation=swiglu model.position=rotary model.bias=false model.num_kv_heads=2
       model.tied_embeddings=false model.vocab_size=255)
expect 0 "completed" "$espalier" train tiny.toml run.directory=llama run.steps=20 "${llama[@]}"
for run in run llama; do
  on 1 one.txt --checkpoint $run --prompts prompts.txt --temperature 0
  [[ $(grep -c "==>" one.txt) == 3 ]] || fail "not three texts" one.txt
  for ranks in 2 4; do
    on $ranks shared.txt --checkpoint $run --prompts prompts.txt --temperature 0
    same one.txt shared.txt "$run on $ranks ranks"
    on $ranks shared.txt --checkpoint $run --prompts prompts.txt --temperature 0 --batch-size 2
    same one.txt shared.txt "$run on $ranks ranks, two prompts together"
  done
done
on 2 shared.txt --checkpoint run --prompt "The tree" --seed 3
on 1 one.txt --checkpoint run --prompt "The tree" --seed 3
same one.txt shared.txt "a seed on two ranks"
expect 2 "wanted: 1, 2, 4 ranks" "${mpiexec[@]}" 3 "$espalier" generate --checkpoint run
once "the ranks cannot share the model"
expect 2 "a stop token is beyond" "${mpiexec[@]}" 2 "$espalier" generate --checkpoint run --stop-token 256
once "error on rank"

# ---- Wrong input ----
refuse() { local code=$1 text=$2; shift 2; expect "$code" "$text" "$espalier" generate --checkpoint run "$@"; }
refuse 2 "--prompt excludes --prompts" --prompt a --prompts prompts.txt
refuse 2 "would match everywhere" --stop ""
refuse 2 "0 to 2147483647" --stop-token -1
refuse 2 "a stop token is beyond the model's vocabulary" --stop-token 256
refuse 2 "--batch-size" --batch-size 0
refuse 2 "--repetition-penalty" --repetition-penalty 0
refuse 2 "wanted 0 to 1" --top-p 1.01
refuse 2 "wanted 0 to 1000" --temperature nan
refuse 3 "missing.txt" --prompts missing.txt
printf '\n\n' >empty.txt
refuse 3 "a prompt file has no prompts" --prompts empty.txt
expect 0 "completed" "$espalier" train tiny.toml model.vocab_size=250 run.directory=small run.steps=1
expect 2 "--prompt number 2, token 2 of 2" "$espalier" generate --checkpoint small --prompt ok --prompt $'a\xff'
printf 'ok\n\n\xff\n' >bad.txt
expect 2 "bad.txt, prompt 2, token 1 of 1" "$espalier" generate --checkpoint small --prompts bad.txt
summary

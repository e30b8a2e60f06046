#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# `espalier evaluate`: the loss that training printed, logits that give it again, and one error for each wrong input.
# test_evaluate.sh ESPALIER COMMAND..., where COMMAND starts a program on two ranks.
espalier=$1; shift
two_ranks=("$@")
script=$(realpath "$0")
source "$(dirname "$script")/tiny_run.sh"
expect 0 "val.bin" "$espalier" data pack --output train.bin --validation val.bin --validation-fraction 0.1 text.txt

evaluate() { "$espalier" evaluate "$@" --json 2>notes.txt >result.json; }
# value KEY: of the last result.
value() { sed -n "s/^ *\"$1\": \(.*[^,]\),\{0,1\}$/\1/p" result.json; }
# near A B WHAT: no further apart than 1e-6.
near() { awk "BEGIN { d = $1 - $2; exit !(d < 1e-6 && d > -1e-6) }" || fail "$3: $1, wanted $2" result.json; }
validation_loss() { grep -o '"validation_loss": *[0-9.e+-]*' "$1/metrics.jsonl" | tail -n 1 | sed 's/.*: *//'; }

# ---- The loss of a checkpoint on its validation data is what training printed, in every precision ----
for run in fp32 fp64 bf16 fp16 bf16-state; do
  expect 0 "completed" "$espalier" train tiny.toml run.directory=$run 'data.validation=["val.bin"]' \
    "precision.compute=${run%-*}" "precision.residual=$([[ $run == *-state ]] && echo state || echo compute)"
  evaluate --checkpoint $run --data val.bin || fail "evaluate $run" notes.txt
  near "$(value loss)" "$(validation_loss $run)" "loss of $run"
  near "$(value perplexity)" "$(awk "BEGIN { printf \"%.12g\", exp($(value loss)) }")" "perplexity of $run"
  [[ $(value precision) == "\"${run%-*}\"" ]] || fail "not in the run's precision" result.json
done
expect 0 "completed" "$espalier" train tiny.toml run.directory=some 'data.validation=["val.bin","train.bin"]' run.eval_samples=130
evaluate --checkpoint some --data val.bin train.bin --max-sequences 130
near "$(value loss)" "$(validation_loss some)" "loss of 130 sequences of two files"
[[ $(value sequences) == 130 && $(value tokens) == 2080 ]] || fail "not 130 sequences of 16 tokens" result.json

# ---- Micro-batches and ranks change nothing; the last tokens are left out ----
evaluate --checkpoint fp32 --data val.bin
loss=$(value loss) tokens=$(value tokens)
whole=$("$espalier" data inspect val.bin | awk '$1 == "tokens" { print int(($2 - 1) / 16) * 16 }')
[[ $tokens == "$whole" && $(value sequence_length) == 16 ]] || fail "$tokens tokens, wanted $whole" result.json
for micro_batch in 1 7 16777216; do  # the last holds no more than there is
  evaluate --checkpoint fp32 --data val.bin --micro-batch $micro_batch
  near "$(value loss)" "$loss" "loss with micro-batches of $micro_batch"
done
for more in "" "--micro-batch 5" "--logits pair.npy --logits-sequences 3"; do
  # shellcheck disable=SC2086
  "${two_ranks[@]}" "$espalier" evaluate --checkpoint fp32 --data val.bin --json $more 2>notes.txt >result.json || fail "two ranks" notes.txt
  near "$(value loss)" "$loss" "loss on two ranks"
  [[ $(value tokens) == "$tokens" ]] || fail "other tokens on two ranks" result.json
done
evaluate --checkpoint fp32 --data val.bin --precision fp64
near "$(value loss)" "$loss" "loss of an fp32 run in fp64"
expect 0 "nats per token" "$espalier" evaluate --checkpoint fp32/checkpoints/step-00000006 --data val.bin --sequence-length 5
says "in 4" "sequences of 5" "fp32/checkpoints/step-00000006 (step 6, fp32)"

# ---- Logits are those of the loss, whoever reads them ----
for given in "16 1" "16 3" "7 40" "16 100000"; do
  read -r length sequences <<<"$given"
  evaluate --checkpoint fp32 --data val.bin --sequence-length "$length" --max-sequences "$sequences" --logits l.npy \
    --logits-sequences "$sequences" || fail "evaluate --logits" notes.txt
  read -r found rows columns < <(python3 "$(dirname "$script")/read_logits.py" l.npy val.bin "$length" 2>error.txt)
  near "${found:-nan}" "$(value loss)" "loss of the logits ($(tail -n 1 error.txt))"
  [[ $rows == "$(value tokens)" && $columns == 256 ]] || fail "logits ($rows, $columns)" result.json
done
evaluate --checkpoint bf16 --data val.bin --max-sequences 1 --logits l.npy || fail "logits of bf16 do not replace ours" notes.txt
read -r found rows columns < <(python3 "$(dirname "$script")/read_logits.py" l.npy val.bin 16)
awk "BEGIN { d = $found / $(value loss); exit !(d > 0.98 && d < 1.02) }" || fail "loss $found of bf16 logits" result.json
evaluate --checkpoint fp32 --data val.bin --logits l3.npy --logits-sequences 3
cmp -s l3.npy pair.npy || fail "two ranks write other logits"
[[ ! -e l.npy.partial && ! -e pair.npy.partial ]] || fail "a partial file stays"

# ---- A plain text: all of its tokens, the same loss as packed; bits per byte ----
head -c 3201 text.txt >even.txt  # 200 sequences and the last target
expect 0 "even.bin" "$espalier" data pack --output even.bin even.txt
evaluate --checkpoint fp32 --data even.bin
loss=$(value loss)
for command in "" "${two_ranks[*]}"; do
  # shellcheck disable=SC2086
  $command "$espalier" evaluate --checkpoint fp32 --text even.txt --json 2>notes.txt >result.json || fail "evaluate --text" notes.txt
  near "$(value loss)" "$loss" "loss of a text"
  near "$(value bits_per_byte)" "$(awk "BEGIN { printf \"%.12g\", $loss / log(2) }")" "bits per byte"
  [[ $(value tokens) == 3200 && $(value bytes) == 3200 && $(value tokenizer) == '"byte"' ]] || fail "not all of the text" result.json
done
head -c 3210 text.txt >odd.txt
evaluate --checkpoint fp32 --text odd.txt --micro-batch 3
[[ $(value tokens) == 3209 && $(value sequences) == 201 ]] || fail "not all of a text whose last sequence is short" result.json
head -c 9 text.txt >tiny.txt
expect 0 "bits" "$espalier" evaluate --checkpoint fp32 --text tiny.txt --tokenizer byte
says "8 in 1 sequence of 8"
printf 'x' >one.txt
expect 3 "too short" "$espalier" evaluate --checkpoint fp32 --text one.txt
expect 3 "missing.txt" "${two_ranks[@]}" "$espalier" evaluate --checkpoint fp32 --text missing.txt
once "error"
expect 4 "another tokenizer" "$espalier" evaluate --checkpoint fp32 --text even.txt --tokenizer "$(dirname "$script")/../io/text/gpt2_like.json"
expect 2 "--text" "$espalier" evaluate --checkpoint fp32 --text even.txt --data val.bin
expect 2 "belongs to --text" "$espalier" evaluate --checkpoint fp32 --data val.bin --tokenizer byte

# ---- A damaged checkpoint is passed over; without another one it is an error ----
expect 0 "completed" "$espalier" train tiny.toml run.directory=two checkpoint.interval=3
data=$(ls -S two/checkpoints/step-00000006/* | head -n 1)
printf 'XXXX' | dd of="$data" bs=1 seek=5000 conv=notrunc status=none
expect 0 "passing over" "$espalier" evaluate --checkpoint two --data val.bin
says "(step 3, fp32)"
expect 4 "damaged" "$espalier" evaluate --checkpoint two/checkpoints/step-00000006 --data val.bin
"${two_ranks[@]}" "$espalier" evaluate --checkpoint two --data val.bin >out.txt 2>&1 || fail "two ranks do not pass over a damaged checkpoint"
once "passing over"
expect 4 "no complete checkpoint" "${two_ranks[@]}" "$espalier" evaluate --checkpoint nowhere --data val.bin
once "error"

# ---- Wrong input: one error, the right code, nothing written ----
expect 2 "longer than the positions of the model" "$espalier" evaluate --checkpoint fp32 --data val.bin --sequence-length 17
says "at most 16"
expect 2 "belongs to --logits" "$espalier" evaluate --checkpoint fp32 --data val.bin --logits-sequences 2
expect 2 "--data or --text is required" "$espalier" evaluate --checkpoint fp32
expect 2 "--precision" "$espalier" evaluate --checkpoint fp32 --data val.bin --precision int8
expect 3 "missing.bin" "${two_ranks[@]}" "$espalier" evaluate --checkpoint fp32 --data missing.bin
once "error"
echo "a short text" >short.txt
expect 0 "short.bin" "$espalier" data pack --output short.bin short.txt
expect 3 "shorter than one sequence" "$espalier" evaluate --checkpoint fp32 --data val.bin short.bin
says "short.bin" "at least 17"
python3 -c 'import struct, sys; sys.stdout.buffer.write(struct.pack("<50H", *[i * 7 for i in range(50)]))' >beyond.bin
expect 3 "beyond the model's vocabulary" "${two_ranks[@]}" "$espalier" evaluate --checkpoint fp32 --data beyond.bin
once "error"
says "id 259" "token 37 of 50"
cp val.bin damaged.bin
printf 'X' | dd of=damaged.bin bs=1 seek=800 conv=notrunc status=none
expect 3 "damaged token file" "$espalier" evaluate --checkpoint fp32 --data damaged.bin
echo "mine" >mine.npy
expect 8 "did not write" "${two_ranks[@]}" "$espalier" evaluate --checkpoint fp32 --data val.bin --logits mine.npy
once "error"
[[ $(<mine.npy) == mine ]] || fail "a file of the user was replaced" mine.npy
expect 8 "cannot create a file" "$espalier" evaluate --checkpoint fp32 --data val.bin --logits no/such/folder.npy
expect 8 "the name of a directory" "$espalier" evaluate --checkpoint fp32 --data val.bin --logits fp32
(ulimit -f 6000; exits 8 "$espalier" evaluate --checkpoint fp32 --data train.bin --logits full.npy --logits-sequences 1000
 exit $failures) || fail "a full disk is no error"
says "full.npy"
[[ ! -e full.npy && ! -e full.npy.partial ]] || fail "half of an array stays"
expect 0 "completed" "$espalier" train tiny.toml run.directory=wild optimizer.learning_rate=10 optimizer.warmup_steps=0 \
  optimizer.minimum_learning_rate=0 optimizer.clip_grad_norm=0 stability.on_spike=continue run.steps=4
expect 5 "a loss that is not finite" "$espalier" evaluate --checkpoint wild --data val.bin --precision fp16 --logits wild.npy
says "--precision fp32"
[[ ! -e wild.npy && ! -e wild.npy.partial ]] || fail "logits of a loss that is not finite stay"

# ---- A request to stop is heard between batches: 75, and no file ----
for ranks in 1 2; do
  command=("$espalier" evaluate --checkpoint fp32 --data train.bin train.bin train.bin --sequence-length 1 --micro-batch 1
           --logits stop.npy --logits-sequences 100000)
  [[ $ranks == 1 ]] || command=("${two_ranks[@]}" "${command[@]}")
  "${command[@]}" >out.txt 2>&1 &
  job=$!
  wait_for stop.npy.partial
  kill -TERM "$(pgrep -nf "^$espalier evaluate .*--logits stop.npy")" || fail "nothing to send SIGTERM to"
  got=0; wait "$job" || got=$?
  [[ $got == 75 ]] || fail "exit code $got after SIGTERM on $ranks ranks, wanted 75"
  says "stopped" "nothing was written"
  [[ ! -e stop.npy && ! -e stop.npy.partial ]] || fail "a stop leaves a file"
done
summary

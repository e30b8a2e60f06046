#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Runs the command as a user would: test_command.sh ESPALIER COMMAND..., where COMMAND starts a program on two ranks.
espalier=$1; shift
two_ranks=("$@")
script=$(realpath "$0")
source "$(dirname "$script")/checks.sh"

write_text 400 text.txt
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
global_batch_size = 8
micro_batch_size = 2
[run]
directory = "run"
steps = 6
eval_samples = 8
TOML

expect 0 "train.bin" "$espalier" data pack --output train.bin --validation val.bin --validation-fraction 0.1 text.txt
expect 0 "checksum" "$espalier" data inspect train.bin
expect 0 "parameters" "$espalier" train run.toml --dry-run --ranks 4
expect 0 "train" "$espalier" --help
expect 0 "section.key=value" "$espalier" train --help
expect 0 "Kokkos" "$espalier" --version
"$espalier" train --keys >keys.txt
sed -n '/^```toml$/,/^```$/{/^```/d;p}' "$(dirname "$script")/../../docs/config.md" >documented.txt
diff documented.txt keys.txt >difference.txt || fail "docs/config.md (<) is not what --keys prints (>)" difference.txt
expect 75 "stopped after a saved checkpoint" "${two_ranks[@]}" "$espalier" train run.toml --stop-after 3
grep -q '"state": "preempted"' run/run.json || fail "run.json does not say preempted" run/run.json
expect 0 "resumed from" "$espalier" train run.toml
grep -q '"state": "completed"' run/run.json || fail "run.json does not say completed" run/run.json
expect 0 "nothing left to do: 6 steps done, and run.steps = 6" "$espalier" train run.toml
expect 0 "run.steps = 4" "$espalier" train run.toml run.steps=4
expect 0 "6 steps done, and run.tokens = 600 is reached after 3" "$espalier" train run.toml run.tokens=600
expect 0 "completed" "$espalier" train run.toml
grep -q '"predicted_bytes"' run/run.json || fail "run.json does not give the predicted memory" run/run.json
for mode in none selective full; do
  expect 0 "peak memory (highest rank): " "$espalier" train run.toml run.directory=memory-$mode parallel.recompute=$mode \
    run.steps=2 model.hidden_size=128 model.ffn_hidden_size=512 model.num_layers=4
  off=$(sed -n 's/^.*peak memory.*predicted .* (\([-+0-9.]*\) %).*/\1/p' out.txt)
  awk "BEGIN { exit !(\"$off\" != \"\" && $off < 1 && $off > -1) }" || fail "memory is $off % off its prediction"
done
expect 0 "embedding.token" "$espalier" checkpoint inspect run/checkpoints/step-00000006
expect 0 "all checksums are right" "$espalier" checkpoint verify run/checkpoints/step-00000006
expect 0 "The tree" "$espalier" generate --checkpoint run --prompt "The tree" --max-tokens 40 --seed 3
cp out.txt first.txt
expect 0 "The tree" "$espalier" generate --checkpoint run --prompt "The tree" --max-tokens 40 --seed 3
cmp -s out.txt first.txt || fail "the same seed wrote another text"
expect 0 "completed" "${two_ranks[@]}" "$espalier" train run.toml parallel.data=2 batch.global_batch_size=12 run.steps=1 run.directory=pair
expect 0 "The tree" "$espalier" generate --checkpoint pair --prompt "The tree" --max-tokens 4

# ---- A signal finishes the step, saves, and asks to be started again ----
"$espalier" train run.toml run.steps=1000000 run.directory=signal >out.txt 2>&1 &
job=$!
wait_for signal/metrics.jsonl
kill -TERM "$job"
got=0; wait "$job" || got=$?
if [[ $got != 75 ]] || ! grep -q '"state": "preempted"' signal/run.json || ! ls signal/checkpoints/step-*/manifest.json >/dev/null; then
  fail "SIGTERM: exit code $got, wanted 75 and a checkpoint"
fi

# ---- Help: every command has an example, in lines of 80 columns ----
for command in "" train verify generate data "data pack" "data inspect" "data convert" checkpoint "checkpoint inspect" "checkpoint verify" \
  bench "bench ops" "bench step"; do
  "$espalier" $command --help >out.txt 2>&1 || fail "$command --help"
  grep -qE "^  ([a-zA-Z0-9_=-]+ )*espalier ${command%% *}" out.txt && ! grep -v '^Usage: ' out.txt | grep -qE '^.{81}' ||
    fail "no example, or lines of more than 80 columns"
done

# ---- What needs no ranks is done by one; launchers of another MPI are refused ----
expect 0 "proven for 2 ranks" "${two_ranks[@]}" "$espalier" train run.toml --dry-run batch.global_batch_size=4
once "2 ranks: tensor 1 x data 2 x pipeline 1"
once "custom: 17.8k parameters, 1 layer x 32 channels"
expect 0 "Kokkos" "${two_ranks[@]}" "$espalier" --version
once "Kokkos  "
expect 2 "belongs to --dry-run" "$espalier" train run.toml --events run.directory=events
[[ ! -e events ]] || fail "--events has trained"
expect 2 "belongs to --dry-run" "$espalier" train run.toml --ranks 4 run.directory=events
[[ ! -e events ]] || fail "--ranks has trained"
expect 2 "so there is nothing to compare" "$espalier" verify run.toml
expect 2 "runs on one process" "${two_ranks[@]}" "$espalier" data inspect train.bin
expect 2 "launcher of another MPI" env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$espalier" train run.toml run.directory=lone
expect 2 "launcher of another MPI" env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 "$espalier" train run.toml run.directory=lone
[[ ! -e lone ]] || fail "a lone rank has made a run directory"

# ---- The progress bar fits the terminal; the process keeps its name when it starts itself again ----
ESPALIER_PROGRESS=bar "$espalier" train run.toml run.steps=1000000 run.log_interval=1000000 run.directory=bar >bar.txt 2>&1 &
job=$!
for ((i = 0; i < 600; i++)); do grep -q left bar.txt && break; sleep 0.1; done
[[ $(ps -o comm= -p "$job") == espalier ]] || fail "ps calls it $(ps -o comm= -p "$job")"
kill -TERM "$job"; wait "$job"
tr '\r' '\n' <bar.txt | sed 's/\x1b\[K//g' | grep '^\[' >out.txt
[[ -s out.txt ]] && ! grep -qE '^.{80}' out.txt || fail "the bar is missing, or breaks at 80 columns"

# ---- Bad input: the right code, one block, what to do ----
expect 2 "did you mean train" "$espalier" trian run.toml
expect 2 "wanted: one of pack, pack-conversations, inspect" "$espalier" data foo
says "foo" "espalier data --help"
expect 2 "did you mean ops?" "$espalier" bench opps
expect 2 "espalier checkpoint needs a command" "$espalier" checkpoint
expect 2 "espalier checkpoint inspect --help" "$espalier" checkpoint inspect
expect 2 "--model: gpt9 not in {gpt2-124m" "$espalier" bench step --model gpt9
expect 2 "at most the 256 positions" "$espalier" bench ops --model byte-1m --sequence-length 100000
expect 2 "embedding; layernorm; gelu; attention" "$espalier" bench ops --model byte-1m --only no_such_op
expect 2 "got -1" "$espalier" generate --checkpoint run --seed -1
expect 2 "got -1" "$espalier" data pack --seed -1 --output s.bin text.txt
echo "a text" >kept.txt
expect 8 "a new name, or a token file to replace" "$espalier" data pack --output kept.txt text.txt
expect 8 "the name of a directory" "$espalier" data pack --output . text.txt
expect 2 "is named -" "$espalier" data pack --output - text.txt
[[ $(<kept.txt) == "a text" ]] || fail "a text was replaced by tokens" kept.txt

# ---- An answer that cannot be written is an error, whatever was asked ----
for command in "--version" "--help" "train --keys" "data inspect train.bin" "checkpoint verify run"; do
  got=0; "$espalier" $command >/dev/full 2>out.txt || got=$?
  [[ $got == 8 ]] || fail "exit code $got of $command on a full disk, wanted 8" out.txt
  says "cannot write the output"
done

# ---- A vocabulary may be larger than the tokenizer's: ids without a text are not sampled ----
expect 0 "completed" "$espalier" train run.toml model.vocab_size=300 run.directory=padded run.steps=1
expect 0 "" "$espalier" generate --checkpoint padded --max-tokens 60 --temperature 5 --top-p 1
expect 2 "--version" "$espalier" train --version
expect 2 "--nonsense" "$espalier" train --nonsense --help-me
expect 2 "no documents" "$espalier" bench step data.documents=separate
expect 2 "--kokkos-threads=abc" "$espalier" bench step --kokkos-threads=abc
expect 2 "Kokkos does not know" "${two_ranks[@]}" "$espalier" train run.toml --kokkos-foo=1 run.directory=other
once "error"
expect 2 "go together" "$espalier" data pack --output a.bin --validation-fraction 0.1 text.txt
expect 2 "go together" "$espalier" data pack --output a.bin --validation v.bin text.txt
[[ ! -e v.bin && ! -e a.bin ]] || fail "refused, and yet a file was written"
expect 2 "global_batch_size" "${two_ranks[@]}" "$espalier" train run.toml batch.global_batch_sise=8 model.hidden_size=33 run.steps=-1
once "error"
says "num_heads" "-1"
expect 2 "global_batch_size: 7 is not divisible by micro_batch_size" "${two_ranks[@]}" "$espalier" train run.toml batch.global_batch_size=7
expect 2 "max_sequence_length" "$espalier" train run.toml batch.sequence_length=64
expect 2 "missing.toml" "$espalier" train missing.toml
# Options of builds for GPUs, where this is one for CPUs: not in the help, but explained to whoever gives one.
exits 0 "$espalier" train --help
[[ $(grep -c -e --transport -e --ranks-per-gpu out.txt) == 0 ]] || fail "the help of a build for CPUs lists options of GPUs"
for given in --transport=nccl --ranks-per-gpu=4 "--transport nccl"; do
  # shellcheck disable=SC2086
  expect 2 "-DESPALIER_ENABLE_CUDA=ON (docs/gpus.md)" "$espalier" train run.toml $given
  says "got:    ${given%% nccl}" "leave out ${given%%[= ]*}"
done
expect 2 "this option needs a GPU build" "${two_ranks[@]}" "$espalier" bench step --ranks-per-gpu 2
once "error"
expect 2 "not expected" "$espalier" plan --transprot nccl
expect 2 "hidden_size" "$espalier" train run.toml model.hidden_size=64
expect 3 "missing.bin" "${two_ranks[@]}" "$espalier" train run.toml 'data.train=["missing.bin"]' run.directory=other
once "error"
expect 3 "2 token files cannot be used" "${two_ranks[@]}" "$espalier" train run.toml 'data.train=["missing.bin"]' \
  'data.validation=["lost.bin"]' run.directory=other
says "missing.bin: file not found" "lost.bin: file not found"
: >empty.bin
expect 3 "empty.bin" "$espalier" train run.toml 'data.train=["empty.bin"]' run.directory=other
head -c 1000 train.bin >short.bin
expect 3 "short.bin" "$espalier" train run.toml 'data.train=["short.bin"]' run.directory=other
expect 3 "vocab" "$espalier" train run.toml model.vocab_size=100 run.directory=other
expect 4 "another model" "$espalier" train run.toml model.hidden_size=48 run.directory=other --init-from run/checkpoints/step-00000006
expect 7 "the minimum for this model on 1 rank is" "$espalier" train run.toml run.device_memory=100kB run.directory=small
expect 0 "by recompute none" "$espalier" train run.toml --dry-run model.num_layers=8
# Who does not compute reads what a build with other libraries has left.
expect 0 "by recompute none" "$espalier" train run.toml --dry-run run.matmul=cublaslt run.attention=cudnn
cp -r run elsewhere
sed -i -E 's/^(matmul|attention) = "[a-z]*"/\1 = "\1"/; s/"matmul"/"cublaslt"/; s/"attention"/"cudnn"/' elsewhere/config.toml
grep -q '^matmul = "cublaslt"' elsewhere/config.toml || fail "the library is not in config.toml" elsewhere/config.toml
for reads in "diagnose elsewhere" "report elsewhere" "checkpoint verify elsewhere" "generate --checkpoint elsewhere --prompt tree"; do
  # shellcheck disable=SC2086
  exits 0 "$espalier" $reads
done
expect 7 "parallel.recompute = 'full' would fit" "$espalier" train run.toml model.num_layers=8 run.device_memory=1800kB \
  run.directory=small
expect 2 "one of \"none\", \"selective\", \"full\"" "$espalier" train run.toml parallel.recompute=all
expect 7 "memory that this machine has" "$espalier" train run.toml batch.micro_batch_size=1048576 batch.global_batch_size=1048576 run.directory=huge
expect 7 "memory" "$espalier" bench step --model gpt2-124m --micro-batch 1048576
expect 7 "memory" "$espalier" bench ops --model gpt2-124m --micro-batch 1048576
expect 2 "wanted 1 to 16777216" "$espalier" bench step --micro-batch 4611686018427387904
expect 2 "wanted 1 to 16777216" "$espalier" bench ops --sequence-length 0
expect 2 "model.num_layers: got 1000000" "$espalier" train run.toml model.num_layers=1000000 run.directory=huge
once "error"
[[ $(grep -c Abort out.txt) == 0 ]] || fail "MPI adds a line of its own"
expect 2 "global_batch_size" "$espalier" train run.toml batch.global_batch_size=4611686018427387904 run.directory=huge
[[ ! -e huge ]] || fail "refused, and yet a run directory was made"
expect 5 "diverged" "$espalier" train run.toml optimizer.learning_rate=1e30 optimizer.clip_grad_norm=0 optimizer.minimum_learning_rate=0 run.directory=wild
grep -q '"state": "failed"' wild/run.json || fail "run.json does not say failed" wild/run.json
touch file
expect 8 "file" "$espalier" train run.toml run.directory=file/below
says "choose another"
expect 2 "run.directory: is empty" "$espalier" train run.toml run.directory= run.steps=-1
cp train.bin damaged.bin
printf 'X' | dd of=damaged.bin bs=1 seek=20000 conv=notrunc status=none
expect 3 "damaged token file" "${two_ranks[@]}" "$espalier" train run.toml 'data.train=["damaged.bin"]' run.directory=other
once "error"
expect 0 "completed" "$espalier" train run.toml 'data.train=["damaged.bin"]' data.check_limit=1000 run.steps=1 run.directory=unchecked
expect 2 "would replace a text to pack" "$espalier" data pack --output text.txt text.txt
expect 2 "one name" "$espalier" data pack --output a.bin --validation ./a.bin --validation-fraction 0.1 text.txt
expect 8 "a device, a pipe or a socket" "$espalier" data pack --output /dev/null text.txt
expect 3 "missing.txt" "$espalier" data pack --output a.bin missing.txt
mkfifo pipe
expect 3 "regular file" "$espalier" data inspect pipe
expect 4 "no complete checkpoint" "$espalier" generate --checkpoint nowhere --prompt a

summary

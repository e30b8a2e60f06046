#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Layouts as a user meets them: test_parallel_command.sh ESPALIER MPIEXEC [events|input|budget|verify|verify8|faults]...
# events: the order of a step; input: what is refused, and how; verify: all layouts, and injected faults;
# faults: ranks that stop, die or start differently.
espalier=$1 mpiexec=$2; shift 2
source "$(dirname "$(realpath "$0")")/tiny_run.sh"

# same_lines TEXT: the last output, line by line.
same_lines() { diff <(echo "$1") out.txt >difference.txt || fail "other lines than wanted (< wanted, > got)" difference.txt; }
# seconds_since NANOSECONDS: whole seconds.
seconds_since() { echo $((($(date +%s%N) - $1) / 1000000000)); }

sed -i 's/^num_layers = .*/num_layers = 8/' tiny.toml

# ---- The order of events of a step, as docs/parallelism.md explains it ----
events() {
  exits 0 "$espalier" train tiny.toml --dry-run --events --ranks 2 batch.micro_batch_size=4
  same_lines "rank 0:
  F0
  B0
  reduce
  optimizer
rank 1:
  F0
  B0
  reduce
  optimizer
all ranks:
  t=0    rank 0: F0
  t=0    rank 1: F0
  t=1    rank 0: B0
  t=1    rank 1: B0
  t=2    rank 0: reduce
  t=2    rank 1: reduce
  t=3    rank 0: optimizer
  t=3    rank 1: optimizer"

  exits 0 "$espalier" train tiny.toml --dry-run --events --ranks 2 batch.micro_batch_size=4 parallel.pipeline=2
  same_lines "rank 0:
  F0
  send F0 to stage 1
  F1
  send F1 to stage 1
  recv B0 from stage 1
  B0
  recv B1 from stage 1
  B1
  reduce
  tied_reduce
  optimizer
rank 1:
  recv F0 from stage 0
  F0
  B0
  send B0 to stage 0
  recv F1 from stage 0
  F1
  B1
  send B1 to stage 0
  reduce
  tied_reduce
  optimizer
all ranks:
  t=0    rank 0: F0
  t=1    rank 0: send F0 to stage 1
  t=1    rank 0: F1
  t=1    rank 1: recv F0 from stage 0
  t=1    rank 1: F0
  t=2    rank 0: send F1 to stage 1
  t=2    rank 1: B0
  t=3    rank 1: send B0 to stage 0
  t=3    rank 0: recv B0 from stage 1
  t=3    rank 0: B0
  t=3    rank 1: recv F1 from stage 0
  t=3    rank 1: F1
  t=4    rank 1: B1
  t=5    rank 1: send B1 to stage 0
  t=5    rank 0: recv B1 from stage 1
  t=5    rank 0: B1
  t=5    rank 1: reduce
  t=6    rank 0: reduce
  t=7    rank 0: tied_reduce
  t=7    rank 1: tied_reduce
  t=8    rank 0: optimizer
  t=8    rank 1: optimizer"

  exits 0 "$espalier" train tiny.toml --dry-run --events --ranks 4 parallel.pipeline=2 parallel.zero_stage=1
  says "gather_weights"
  # Why consecutive layers: each micro-batch crosses 2 boundaries, not 11.
  exits 0 "$espalier" train tiny.toml --dry-run --ranks 3 model.num_layers=12 parallel.pipeline=3
  says "boundaries   each micro-batch crosses 2" "(11 with layers dealt round-robin)" "proven for 3 ranks"
  # The middle stage sends 4 micro-batches both ways, each (2 * 16, 32) in fp32; the ends a token embedding of (256, 32).
  says "sends        dp 32.0 KiB, pp 32.0 KiB per rank and step"
}

# ---- Bad input: exit code 2, everything that is wrong at once, what would do ----
input() {
  exits 2 "$mpiexec" -n 4 "$espalier" train tiny.toml parallel.tensor=3 parallel.pipeline=9 'parallel.layers_per_stage=[1,2]'
  says "5 problems" "tensor 3 x pipeline 9 takes 27 ranks or a multiple, but there are 4" \
    "nearest layouts of 4 ranks that fit: tensor" \
    "parallel.tensor: 3 cannot share num_heads 4 (nearest: tensor 2 or 4, num_heads 3 or 6)" "parallel.tensor: 3 cannot share ffn_hidden_size" \
    "pipeline: 9 x virtual_stages 1 = 9 parts are more than num_layers 8" "layers_per_stage: has 2 numbers, wanted 9"
  [[ $(grep -cF "error" out.txt) == 1 ]] || fail "more than one rank reports"
  [[ ! -e run ]] || fail "something was written before the config was checked"
  exits 2 "$espalier" train tiny.toml --dry-run --ranks 4 parallel.tensor=2 parallel.data=3
  says "2 problems" "tensor 2 x data 3 x pipeline 1 takes 6 ranks, but there are 4" "tensor 2 x data 2 x pipeline 1" \
    "global_batch_size: 8 is not divisible by micro_batch_size 2 x data 3"
  exits 2 "$espalier" train tiny.toml --dry-run --ranks 4 parallel.tensor=4 model.num_heads=6 model.hidden_size=36 \
    model.ffn_hidden_size=66 model.vocab_size=3
  says "tensor: 4 cannot share num_heads 6" "num_heads 4 or 8" "tensor: 4 cannot share ffn_hidden_size 66" \
    "ffn_hidden_size 64 or 68" "tensor: 4 cannot share vocab_size 3"
  exits 2 "$espalier" train tiny.toml --dry-run --ranks 4 parallel.data=4 batch.global_batch_size=12
  says "global_batch_size: 12 is not divisible by micro_batch_size 2 x data 4" "8 or 16, or micro_batch_size 1"
  exits 2 "$espalier" train tiny.toml --dry-run --ranks 2 parallel.tensor=2 parallel.sequence_parallel=true \
    batch.micro_batch_size=1 batch.sequence_length=15
  says "15 rows, which tensor 2 does not divide" "14 or 16 rows"
  exits 2 "$espalier" train tiny.toml --dry-run --ranks 4 parallel.pipeline=4 parallel.virtual_stages=3 \
    parallel.schedule=interleaved
  says "pipeline: 4 x virtual_stages 3 = 12 parts are more than num_layers 8"
  exits 2 "$espalier" train tiny.toml --dry-run --ranks 2 parallel.pipeline=2 parallel.virtual_stages=2
  says "schedule: 1f1b has 1 virtual stage per stage, not virtual_stages 2" "interleaved"
  local sharded=("$espalier" train tiny.toml --dry-run batch.micro_batch_size=1 parallel.zero_stage=3 parallel.shard_over=node)
  exits 0 "${sharded[@]}" --ranks 8 --ranks-per-node 4
  says "ZeRO-3 over 4 replicas of a node"
  exits 2 "${sharded[@]}" --ranks 8
  says "the number of ranks per node is unknown" "--ranks-per-node M"
  exits 2 "${sharded[@]}" --ranks 8 --ranks-per-node 3
  says "nodes of 3 ranks hold different numbers of the 8 replicas"
  exits 2 "$espalier" train tiny.toml --ranks-per-node 2
  says "belongs to --dry-run"
  exits 0 "$mpiexec" -n 2 "$espalier" train tiny.toml run.directory=node run.steps=1 parallel.zero_stage=3 parallel.shard_over=node
  says "tensor 1 x data 2 x pipeline 1, ZeRO-3"  # on one node
  exits 2 "$espalier" train tiny.toml --dry-run --ranks 2 parallel.virtual_stages=2 parallel.schedule=interleaved
  says "need a pipeline of two stages or more"
  exits 2 "$espalier" train tiny.toml --dry-run --ranks 2 parallel.pipeline=2 'parallel.layers_per_stage=[3,4]'
  says "layers_per_stage: adds up to 7, not to num_layers 8"
  exits 2 "$espalier" train tiny.toml --dry-run --ranks 3 parallel.pipeline=3 parallel.assignment=round_robin \
    parallel.schedule=gpipe
  says "round_robin deals 8 layers out to 3 stages unevenly" "6 and 9"
  exits 2 "$espalier" train tiny.toml --dry-run --ranks 16 parallel.pipeline=16
  says "16 parts are more than num_layers 8 (nearest: pipeline 8)"
  exits 2 "$espalier" train tiny.toml --dry-run run.cluster=no_such.toml
  says "run.cluster" "no_such.toml"
  printf '[cluster]\npreset = "h100"\nnodes = 0\n' >wrong.toml
  exits 2 "$espalier" train tiny.toml --dry-run run.cluster=wrong.toml
  says "where:  run.cluster" "cluster.nodes: got 0, wanted 1 to 16777216"
  exits 2 "$espalier" train tiny.toml --dry-run 'parallel.order="tp,pp,pp"'
  says "order"
  exits 2 "$espalier" train tiny.toml --dry-run parallel.schedule=1f2b
  says "1f1b"
  exits 0 "$espalier" train tiny.toml --dry-run --ranks 4 parallel.pipeline=4 parallel.zero_stage=1
  says "warning" "parallel.zero_stage does nothing"

  # Too large for one rank, and for replicas of it; split it fits.
  local large=(model.hidden_size=128 model.ffn_hidden_size=512 model.max_sequence_length=64 run.device_memory=25MB)
  exits 7 "$espalier" train tiny.toml --dry-run "${large[@]}"
  says "DOES NOT FIT"
  exits 7 "$espalier" train tiny.toml run.directory=budget "${large[@]}"
  says "does not fit the memory budget" "a need of 34.0 MiB" "optimizer" "run.device_memory = 23.8 MiB" \
    "layouts that would fit" "pipeline 2"
  exits 7 "$mpiexec" -n 4 "$espalier" train tiny.toml run.directory=budget "${large[@]}"
  says "does not fit the memory budget" "data 4"
  exits 0 "$mpiexec" -n 4 "$espalier" train tiny.toml run.directory=budget "${large[@]}" parallel.pipeline=2 \
    parallel.tensor=2
  says "completed"
}

# What is said to fit does, to the tenth of a MiB: library scratch is nobody's to predict, and not counted. Nor is what
# measures the machine before the model is there, which is more than the smaller of these needs.
budget() {
  fits_exactly parallel.tensor=2 parallel.pipeline=2 model.hidden_size=128 model.ffn_hidden_size=512
  fits_exactly parallel.tensor=4
}

fits_exactly() {
  local need
  exits 0 "$espalier" train tiny.toml --dry-run --ranks 4 "$@"
  need=$(sed -nE 's/^memory +([0-9.]+) ([KM]i)B per rank.*/\1 \2/p' out.txt |
    awk '{ printf "%d", $1 * ($2 == "Mi" ? 1048576 : 1024) }')
  exits 7 "$mpiexec" -n 4 "$espalier" train tiny.toml run.directory=tight "$@" run.device_memory="$((need - 104858))"
  exits 0 "$mpiexec" -n 4 "$espalier" train tiny.toml run.directory="tight-$need" "$@" \
    run.device_memory="$((need + 104858))"
}

# ---- verify: right layouts pass, injected faults are found and named ----
verify() {
  exits 0 "$mpiexec" -n 4 "$espalier" verify tiny.toml --steps 1 --precision fp64
  says "55 of 55 layouts train the model of the reference; 0 skipped" "1 step, relative errors, tolerance 1e-10" \
    "largest of all layouts"
  grep -Eq '^  gradient +[0-9.e-]+  (embedding|final_norm|h\.[0-9]+)\.?[a-z_.]*, tensor [0-9]' out.txt ||
    fail "the largest error is not placed"
  exits 0 "$mpiexec" -n 3 "$espalier" verify tiny.toml --steps 1 batch.global_batch_size=6 precision.residual=state
  once "warning: precision.residual and precision.gradient_reduction do nothing: compute is fp32"
  says "skipped, 2 layouts: parallel.tensor: 3 cannot share num_heads 4" "  tensor 3 x data 1 x pipeline 1, sequence parallel"
  exits 2 "$mpiexec" -n 3 "$espalier" verify tiny.toml --steps 1 batch.global_batch_size=8 model.num_layers=2
  says "0 of 0 layouts train the model" "verify has compared no layout"
  exits 2 "$mpiexec" -n 2 "$espalier" verify tiny.toml --reference dat=4
  says "--reference dat=4" "did you mean \"data\"?"
  grep -q "relative errors" out.txt && fail "a table begins before its reference is known"

  # What one program has saved another compares itself with, also on one rank.
  exits 0 "$espalier" verify tiny.toml --steps 1 --precision fp64 --save saved
  says "saved/step-00000001: loss"
  exits 0 "$espalier" verify tiny.toml --precision fp64 --against saved
  says "1 step of saved, relative errors, tolerance 1e-10" "1 of 1 layouts train the model of the reference; 0 skipped"
  exits 0 "$mpiexec" -n 2 "$espalier" verify tiny.toml --precision fp64 --against saved
  says "layouts train the model of the reference; 0 skipped"
  exits 5 "$mpiexec" -n 2 "$espalier" verify tiny.toml --precision fp64 --against saved --inject drop_all_reduce
  exits 2 "$espalier" verify tiny.toml --against saved
  says "saved with another config" "precision.compute"
  grep -q "relative errors" out.txt && fail "a table begins before its reference is known"
  exits 4 "$espalier" verify tiny.toml --against nowhere
  says "no saved reference" "nowhere"
  exits 2 "$espalier" verify tiny.toml --precision fp64 --against saved --steps 1
  exits 2 "$espalier" verify tiny.toml --precision fp64 --save saved
  says "another one, or remove it"
  mkdir -p occupied && echo mine > occupied/file
  for folder in occupied /; do
    exits 2 "$espalier" verify tiny.toml --precision fp64 --save $folder
    says "the folder of --save has other files"
  done
  [[ $(ls occupied) == file ]] || fail "verify --save wrote into a folder of others"
  exits 2 "$espalier" verify tiny.toml
  says "one rank has only one layout" "--against"

  local fault
  for fault in drop_all_reduce wrong_token_weight swap_shards no_tied_reduction no_tensor_sum late_gather released_layer; do
    exits 5 "$mpiexec" -n 2 "$espalier" verify tiny.toml --steps 1 --precision fp64 model.num_layers=2 --inject "$fault"
    grep -Eq '!.*(embedding|final_norm|h\.[0-9]+)\.?[a-z.]*$' out.txt || fail "no tensor is named for $fault"
  done

  exits 5 "$mpiexec" -n 4 "$espalier" verify tiny.toml --steps 1 --precision fp64 model.num_layers=2 --inject no_copies_sum
  grep -Eq 'ZeRO-3 over 2 replicas of a node .*!' out.txt || fail "the layout with several copies is not marked"

  # What no layout has cannot be broken, and is no success.
  refused() { exits 2 "$mpiexec" -n 2 "$espalier" verify tiny.toml --steps 1 "${@:2}"; says "this model has no $1 to break on 2 ranks"; }
  refused "tied embeddings on two pipeline stages" --inject no_tied_reduction model.tied_embeddings=false
  refused "heads of keys and values that tensor ranks hold copies of" --inject no_kv_sum
  refused "rotary positions on tensor ranks" --inject wrong_positions
  refused "copies of sharded gradients" --inject no_copies_sum

  # Of every family, and what only they can get wrong: four ranks share two heads of keys and values.
  local preset
  for preset in llama-tiny mistral-tiny qwen2-tiny qwen3-tiny; do
    exits 0 "$mpiexec" -n 2 "$espalier" verify tiny.toml --steps 1 --precision fp64 model.preset=$preset
    says "layouts train the model of the reference"
  done
  local precision
  for precision in fp32 fp64; do
    exits 0 "$mpiexec" -n 4 "$espalier" verify tiny.toml --steps 1 --precision $precision model.preset=llama-tiny
    says "layouts train the model of the reference"
  done
  for fault in no_kv_sum wrong_positions; do
    exits 5 "$mpiexec" -n 4 "$espalier" verify tiny.toml --steps 1 --precision fp64 model.preset=llama-tiny --inject "$fault"
    grep -Eq '!.*h\.[0-9]+[a-z_.]*$' out.txt || fail "no tensor is named for $fault"
  done
}

# The same on eight ranks: a minute or two on two cores.
verify8() {
  exits 0 "$mpiexec" -n 8 "$espalier" verify tiny.toml --steps 1 --precision fp64
  says "layouts train the model of the reference" "tolerance 1e-10"
}

# ---- Ranks that stop, die, or start differently ----
faults() {
  local slow=(--emulate forward=0.02 --emulate backward_input=0.02 --emulate latency=1e-6 parallel.pipeline=2 parallel.tensor=2)

  exits 2 "$mpiexec" -n 1 "$espalier" train tiny.toml run.directory=unlike : \
    -n 1 "$espalier" train tiny.toml run.directory=unlike optimizer.learning_rate=2e-3
  says "the ranks were not started in the same way" "learning_rate = 0.002" "rank 1"
  exits 2 "$mpiexec" -n 1 "$espalier" train tiny.toml run.directory=unlike parallel.tensor=2 : \
    -n 1 "$espalier" train tiny.toml run.directory=unlike parallel.pipeline=2
  says "the ranks were not started in the same way"
  exits 2 timeout 60 "$mpiexec" -n 1 "$espalier" train tiny.toml run.directory=unlike : -n 1 "$espalier" verify tiny.toml
  says "the ranks were not started in the same way" "espalier verify" "rank 1"
  once "error"

  # A trace of all ranks (tests/training/test_trace.cpp reads it as JSON).
  exits 0 "$mpiexec" -n 4 "$espalier" train tiny.toml run.directory=traced parallel.pipeline=2 parallel.tensor=2 \
    run.trace_steps=1
  local rank
  for rank in 0 1 2 3; do
    grep -q "\"rank $rank: stage $((rank / 2)), replica 0, tensor $((rank % 2))\"" traced/trace/trace.json ||
      fail "rank $rank is not in the trace" traced/trace/trace.json
  done
  [[ $(tr -d -c '{' <traced/trace/trace.json | wc -c) == $(tr -d -c '}' <traced/trace/trace.json | wc -c) ]] ||
    fail "the trace's brackets do not close" traced/trace/trace.json
  grep -q '"F0"' traced/trace/trace.json || fail "F0 is not in the trace" traced/trace/trace.json

  # A rank that stops: the others give up after the deadline, and say who held them up.
  "$mpiexec" -n 4 "$espalier" train tiny.toml run.directory=stopped "${slow[@]}" run.steps=1000000 \
    run.communication_timeout=5 >out.txt 2>&1 &
  local job=$! got=0 deadline=5 start victim
  wait_for stopped/metrics.jsonl
  victim=$(processes stopped | sort -n | sed -n 3p)
  start=$(date +%s%N)
  kill -STOP "$victim"
  wait "$job" || got=$?
  [[ $got == 6 ]] || fail "exit code $got of a job with a stopped rank, wanted 6"
  (($(seconds_since "$start") <= deadline + 5)) || fail "$(seconds_since "$start") s after a deadline of $deadline s"
  local name; name=$(grep -oE "rank [0-9]+ \([^)]*process $victim\)" out.txt | head -n 1 | grep -oE "rank [0-9]+")
  # Stopped in the middle of work it is the culprit; stopped in a wait of its own, the one from whom nothing comes.
  [[ -n $name ]] && grep -qE "likely culprit: $name |nothing from .*$name" out.txt || fail "the stopped rank (process $victim, $name) is not named"
  says "step" "operation" "communicator" "waits for"
  nobody_left stopped
  grep -q '"state": "failed"' stopped/run.json || fail "run.json does not say failed" stopped/run.json
  grep -q 'likely culprit' stopped/run.json || fail "run.json does not tell where the ranks were" stopped/run.json

  # A rank that is killed: no rank exits cleanly, and the next launch prints where it was before it resumes.
  "$mpiexec" -n 4 "$espalier" train tiny.toml run.directory=killed "${slow[@]}" run.steps=1000000 checkpoint.interval=2 \
    run.communication_timeout=60 >out.txt 2>&1 &
  job=$! got=0
  wait_for killed/metrics.jsonl
  for ((i = 0; i < 300; i++)); do compgen -G 'killed/checkpoints/step-*/manifest.json' >/dev/null && break; sleep 0.1; done
  kill -KILL "$(processes killed | sort -n | sed -n 2p)"
  wait "$job" || got=$?
  [[ $got != 0 ]] || fail "a job with a killed rank ended well"
  grep -q '"state": "completed"' killed/run.json && fail "run.json says completed" killed/run.json
  nobody_left killed
  exits 75 "$mpiexec" -n 4 "$espalier" train tiny.toml run.directory=killed "${slow[@]}" run.steps=1000000 \
    checkpoint.interval=2 run.communication_timeout=60 --stop-after 2
  says "rank 0 (" "rank 3 (" "resumed from" "step"
}

for part in "${@:-events}"; do "$part"; done
summary

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# How the CUDA build uses CUDA, on a machine without a GPU: test_fake_cuda.sh ESPALIER MPIEXEC FOLDER, where
# tests/support/fake_cuda/build.sh has put the CUDA mock into FOLDER. Kernels do not run, so their results are 0. Any misuse,
# and any race between streams, ends a rank with 97.
espalier=$1 mpiexec=$2 folder=$(realpath "$3")
export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
unset CUDA_VISIBLE_DEVICES ESPALIER_RANKS_PER_GPU ESPALIER_TRANSPORT
source "$(dirname "$(realpath "$0")")/tiny_run.sh"
export ESPALIER_FAKE_CUDA_SHARED=$work ESPALIER_FAKE_CUDA_MARK=adamw
sed -i '/^matmul = /d' tiny.toml
stage() { ((failures > ${reported:=0})) || echo "CUDA mock: $1"; reported=$failures; }

# trains NAME RANKS OVERRIDE...: well, and leaves NAME.json.
trains() {
  local name=$1 ranks=$2; shift 2
  rm -rf run "$name.json"
  ESPALIER_FAKE_CUDA_REPORT=$PWD/$name.json exits 0 "$mpiexec" -n "$ranks" "$espalier" train tiny.toml "$@"
}
# steady NAME RANKS OVERRIDE...: also, steps after the first start graphs, and do not allocate, make events, copy by way of
# pageable memory, or wait for the whole device.
steady() {
  local name=$1 ranks=$2 count; shift 2
  trains "$name" "$ranks" "$@"
  for count in allocations frees pinned_allocations pinned_frees device_synchronizations streams events \
    blocking_copies; do
    [[ $(grep -c "\"marked_$count\": 0," "$name.json") == "$ranks" ]] || fail "$name: steps after the first have $count" "$name.json"
  done
  for count in launches graph_launches; do
    [[ $(grep -c "\"marked_$count\": [1-9]" "$name.json") == "$ranks" ]] || fail "$name: steps after the first have no $count" "$name.json"
  done
}

# waits_once NAME: and the host waits for its stream once in each of them.
waits_once() {
  grep -q '"marked_stream_synchronizations": 5,' "$1.json" || fail "$1: five steps after the first have other waits" "$1.json"
}

# ---- The mock itself ----
found=0
exits 0 "$folder/mistakes" none
while read -r name text; do
  code=97
  [[ $name != touch ]] || code=139
  expect $code "fake CUDA: " bash -c '"$0" "$1"; exit $?' "$folder/mistakes" "$name"
  says "$text"
  found=$((found + 1))
done < <("$folder/mistakes" list)
stage "it finds $found injected mistakes"

# ---- One rank ----
steady fp32 1
waits_once fp32
steady bf16 1 precision.compute=bf16
says "attention by own kernels"
steady fp16 1 precision.compute=fp16 parallel.recompute=selective
steady full 1 parallel.recompute=full run.matmul=tiled
waits_once full
trains fp64 1 precision.compute=fp64
# Where epilogues take longer than passes of their own, these are taken.
launches_of() { grep -oE "\"_Z[^\"]*$1[^\"]*\": [0-9]+" "$2" | awk '{sum += $NF} END {print sum + 0}'; }
ESPALIER_FAKE_CUDA_EPILOGUE_MS=5 steady epilogues 1 precision.compute=bf16
for kernel in activation_values activation_gradients bias_backward; do
  (($(launches_of $kernel epilogues.json) > $(launches_of $kernel bf16.json))) ||
    fail "$kernel stays part of matmuls that are slow" epilogues.json
done
# A start that goes on takes the kernels of the start before, and times none.
ESPALIER_FAKE_CUDA_EPILOGUE_MS=5 trains choices 1 precision.compute=bf16 run.steps=4
grep -q '"matmul_kernels"' run/checkpoints/step-00000004/manifest.json || fail "the checkpoint names no kernels" choices.json
ESPALIER_FAKE_CUDA_REPORT=$PWD/kept.json expect 0 "resumed from" "$espalier" train tiny.toml precision.compute=bf16
passes=$(launches_of activation_values kept.json)  # in training alone: to choose, many more are timed
((passes > 0 && passes < $(launches_of activation_values bf16.json))) || fail "kernels are chosen anew after a resume" kept.json
# A tool of Kokkos that is told of each kernel, around which Kokkos waits for the device.
echo 'extern "C" void kokkosp_begin_parallel_for(const char*, unsigned, unsigned long*) {}' >tool.cpp
"${CXX:-g++}" -shared -fPIC -o tool.so tool.cpp
KOKKOS_TOOLS_LIBS=$work/tool.so trains tool 1
stage "fp32, bf16, fp16 and fp64 on one rank: no step but the first allocates or waits for the whole device"

# ---- Ranks that share a GPU: all data by way of the host ----
export ESPALIER_RANKS_PER_GPU=4
steady data 2 parallel.data=2
steady tensor 2 parallel.tensor=2
steady pipeline 2 parallel.pipeline=2
steady hybrid 4 parallel.tensor=2 parallel.pipeline=2 precision.compute=bf16
trains sequence 2 parallel.tensor=2 parallel.sequence_parallel=true
trains interleaved 2 parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2 model.num_layers=4
trains zero_bubble 2 parallel.pipeline=2 parallel.schedule=zero_bubble
trains zero1 4 parallel.data=4 parallel.zero_stage=1 checkpoint.interval=2 checkpoint.async=true
trains zero2 2 parallel.data=2 parallel.zero_stage=2
trains zero3 2 parallel.data=2 parallel.zero_stage=3
trains zero3-pipeline 4 parallel.data=2 parallel.pipeline=2 parallel.zero_stage=3
trains zero3-node 4 parallel.data=4 parallel.zero_stage=3 parallel.shard_over=node --emulate ranks_per_node=2
trains saves 4 parallel.tensor=2 parallel.data=2 checkpoint.interval=2 checkpoint.async=true
rm -r run/checkpoints/step-00000006
expect 0 "completed" "$mpiexec" -n 2 "$espalier" train tiny.toml parallel.pipeline=2
stage "2 and 4 ranks that share a GPU, in thirteen layouts; saved behind the steps, and gone on in another layout"
unset ESPALIER_RANKS_PER_GPU

# ---- A GPU for each rank: NCCL, whose messages the mock carries ----
export ESPALIER_FAKE_CUDA_DEVICES=4
steady nccl-data 2 parallel.data=2
steady nccl-tensor 2 parallel.tensor=2
says "NCCL uses about 10.0 MiB of GPU memory"
grep -q '"tensor_comm":[^,}]*[1-9]' run/metrics.jsonl || fail "tensor collectives take no time" run/metrics.jsonl
steady nccl-pipeline 2 parallel.pipeline=2
steady nccl-hybrid 4 parallel.tensor=2 parallel.pipeline=2
trains nccl-zero1 4 parallel.data=4 parallel.zero_stage=1 checkpoint.interval=2 checkpoint.async=true
says "tensors by nccl"
steady nccl-zero2 2 parallel.data=2 parallel.zero_stage=2
steady nccl-zero3 2 parallel.data=2 parallel.zero_stage=3
trains nccl-zero3-pipeline 4 parallel.data=2 parallel.pipeline=2 parallel.zero_stage=3
[[ -z $(find . -maxdepth 1 -name 'fake-nccl-*') ]] || fail "communicators of NCCL were left" <(find . -maxdepth 1 -name 'fake-nccl-*')
trains nccl-sequence 2 parallel.tensor=2 parallel.sequence_parallel=true
trains nccl-zero_bubble 2 parallel.pipeline=2 parallel.schedule=zero_bubble
# By MPI in the first step, and then by NCCL.
trains nccl-interleaved 2 parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2 model.num_layers=4
(($(sed -nE 's/.*"messages": ([0-9]+).*/\1/p' nccl-interleaved.json | head -n 1) > 20)) || fail "few messages went by NCCL" nccl-interleaved.json
stage "2 and 4 ranks on GPUs of their own, over NCCL"

# Events are reported as late as CUDA may report them, so that nobody takes work to be done before it must be. There would be
# races if streams did not wait for each other. Tensor collectives use the stream of the kernels, so they need no wait.
export ESPALIER_FAKE_CUDA_LATE=100000
trains races-tensor 2 parallel.tensor=2 run.steps=2
trains races-zero1 2 parallel.data=2 parallel.zero_stage=1 checkpoint.interval=2 checkpoint.async=true
trains races-zero2 2 parallel.data=2 parallel.zero_stage=2
trains races-zero3 2 parallel.data=2 parallel.zero_stage=3
trains races-zero_bubble 2 parallel.pipeline=2 parallel.schedule=zero_bubble
trains races-interleaved 2 parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2 model.num_layers=4
for layout in data pipeline; do
  trains races-$layout 2 parallel.$layout=2 run.steps=2
  rm -rf run
  ESPALIER_FAKE_CUDA_IGNORE_WAITS=1 expect 97 "fake CUDA: a race: " \
    "$mpiexec" -n 2 "$espalier" train tiny.toml parallel.$layout=2 run.steps=2
done
unset ESPALIER_FAKE_CUDA_LATE
stage "no races between streams, and many if none waited for another"

# A rank that stands still: the watchdog, or who waits for it in MPI, ends the job.
"$mpiexec" -n 2 "$espalier" train tiny.toml parallel.data=2 run.steps=1000000 run.log_interval=1000000 \
  run.communication_timeout=4 "run.directory=$work/late" >late.txt 2>&1 &
job=$!
wait_for late/metrics.jsonl
stopped=$(pgrep -n -f "^$espalier train .* run.directory=$work/late")
kill -STOP "$stopped"
code=0; wait $job || code=$?
[[ $code == 6 ]] && grep -qE "waited .* without success" late.txt || fail "exit code $code, wanted 6 and what was waited for" late.txt
rank=$(sed -nE "s/.*rank ([0-9]+) \([^ ]*, process $stopped\): .*/\1/p" late.txt)
grep -q "likely culprit: rank ${rank:-of nobody} (" late.txt || fail "the report does not name rank ${rank:-?}, which stands still" late.txt
stage "a rank that stands still under NCCL ends the job, and is named"
unset ESPALIER_FAKE_CUDA_DEVICES

# ---- Other commands ----
exits 0 "$espalier" bench step --model byte-1m --steps 2
exits 0 "$espalier" bench ops --model byte-1m --micro-batch 1 --sequence-length 64
exits 0 "$mpiexec" -n 2 "$espalier" bench machine --output machine.toml --ranks-per-gpu 2
says "1 x 2 of NVIDIA H200 (fake) (66 multiprocessors for each of 2 ranks), "
trains generate 1
exits 0 "$espalier" generate --checkpoint run --prompt "tree" --max-tokens 20
for command in train verify generate plan "bench step" "bench ops" "bench machine"; do
  # shellcheck disable=SC2086
  exits 0 "$espalier" $command --help
  says "--ranks-per-gpu" "--transport"
done
stage "bench step, ops and machine, generate; the options of GPUs in the help"

# ---- What is refused ----
rm -rf run
ESPALIER_FAKE_CUDA_DEVICES=0 expect 2 "no CUDA-capable device is detected" "$espalier" train tiny.toml
ESPALIER_FAKE_CUDA_DEVICES=0 exits 0 "$espalier" train tiny.toml precision.compute=bf16 --dry-run
CUDA_VISIBLE_DEVICES='' expect 2 'CUDA_VISIBLE_DEVICES=""' "$espalier" train tiny.toml
ESPALIER_FAKE_CUDA_DRIVER=12040 expect 2 "the NVIDIA driver is too old: it supports CUDA 12.4" "$espalier" train tiny.toml
ESPALIER_FAKE_CUDA_ARCH=75 expect 2 "this build of Espalier has no code for the GPU of this rank" "$espalier" train tiny.toml
expect 2 "there are more ranks than GPUs" "$mpiexec" -n 2 "$espalier" train tiny.toml parallel.data=2
ESPALIER_RANKS_PER_GPU=2 expect 2 "too many ranks share a GPU" "$mpiexec" -n 3 "$espalier" train tiny.toml
ESPALIER_FAKE_CUDA_FREE_MIB=5 expect 7 "the memory of a GPU is full" "$espalier" train tiny.toml
ESPALIER_FAKE_CUDA_FREE_MIB=20 expect 7 "the model does not fit the memory that is free on a GPU" "$espalier" train tiny.toml
expect 2 "NCCL takes one rank per GPU" "$mpiexec" -n 2 "$espalier" train tiny.toml parallel.data=2 --transport nccl --ranks-per-gpu 2
[[ ! -e run ]] || fail "a start that was refused has left run/" <(ls run)
stage "no device, an old driver, another architecture, too many ranks and full memory are refused"
summary

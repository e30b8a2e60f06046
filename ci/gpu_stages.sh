# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# The stages of ci/gpu and their items; to be sourced by ci/gpu.

# Tests and checks may share a GPU; what is timed runs alone. Sixteen processes that start together on an H200 of a
# virtual machine are refused ("out of memory").
num_tests=$((NUM_JOBS < 8 ? NUM_JOBS : 8))
num_beside=$(((num_tests + 2) / 3))

configure_gpu() (
  set -e
  kokkos=$(ci/kokkos5 cuda --prefix)
  # -O3, and few files at a time: there are cores for all of them. The paths to the pack's libraries, also to those that
  # libraries need, are relative to the programs.
  local libraries=usr/lib/$triplet
  configure build-gpu "$kokkos;$prefix/usr;$root/build-gpu/nccl;$root/build-gpu/cudnn" CUDA=ON TESTS=ON \
    -DCMAKE_CXX_COMPILER="$kokkos/bin/nvcc_wrapper" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS=-DFMT_USE_CONSTEXPR=1 -DCMAKE_UNITY_BUILD=ON -DCMAKE_UNITY_BUILD_BATCH_SIZE=4 \
    -DCMAKE_DISABLE_FIND_PACKAGE_KokkosKernels=ON \
    -DCMAKE_BUILD_RPATH="$(printf "\$ORIGIN/%s;" "prefix/$libraries" nccl/lib cudnn/lib cuda/lib)$toolkit/lib64;$toolkit/lib" \
    -DCMAKE_EXE_LINKER_FLAGS="-Wl,--disable-new-dtags -Wl,-rpath-link,$prefix/$libraries" \
    ${cudnn_frontend:+-DESPALIER_CUDNN_FRONTEND_INCLUDE="$cudnn_frontend"}
)

stage_build() {
  if of_the_pack; then
    item programs_of_the_pack 60 build-gpu/espalier --version
    return
  fi
  export NVCC_WRAPPER_DEFAULT_COMPILER=$CXX
  item kokkos 300 ci/kokkos5 cuda
  export -f configure note fail logged toolchain_key configure_gpu
  toolkit=$(dirname "$(dirname "$(command -v nvcc)")")
  cudnn_frontend=$(cudnn_frontend)
  export prefix root triplet toolkit CXX ESPALIER_ARCH cudnn_frontend
  item configure 120 bash -c configure_gpu
  # Together, so that all cores have something to do, and what matters most first.
  local compile=(cmake --build build-gpu -j "$NUM_JOBS" --target)
  item compile_ops_and_command "$seconds" "${compile[@]}" core_tests models_tests espalier -- -k 0
  item compile_tests "$seconds" "${compile[@]}" parallel_tests stream_graph_tests parallel_faults training_tests -- -k 0
  if [[ ! -s $log/failed && $only == . ]]; then
    echo "$arch" >build-gpu/built_from.arch
    sources_hash "$arch" >build-gpu/built_from
  fi
}

# verify_against PRECISION [RANKS]
verify_against() {
  local launch=()
  if ((${2:-1} > 1)); then launch=("$(command -v mpiexec.mpich || command -v mpiexec)" -n "$2"); fi
  (cd build-gpu/reference && "${launch[@]}" ../espalier verify config.toml --precision "$1" --against "$1")
}

find_references() {
  export -f verify_against
  export ESPALIER_RANKS_PER_GPU=8 OMP_NUM_THREADS=1
  [[ ! -f build-gpu/reference/config.toml ]] || return 0
  rm -rf build-gpu/reference build-gpu/reference.part
  mkdir -p build-gpu/reference.part
  note "computing the references on this CPU"
  save_references "$root/build-gpu/reference.part"
  mv build-gpu/reference.part build-gpu/reference
}

stage_smoke() {
  item device 30 build-gpu/espalier bench ops --only memory --model byte-1m --sequence-length 256
  item layernorm 60 build-gpu/core_tests --gtest_filter='Layernorm*'
  item verify_fp32 60 bash -c "verify_against fp32"
  item verify_bf16 60 bash -c "verify_against bf16"
  item step 90 build-gpu/espalier bench step --model gpt2-124m --micro-batch 8 --sequence-length 1024 --precision bf16
}

stage_verify() {
  local precision
  for precision in fp32 bf16 fp16 fp64; do beside "verify_$precision" 120 bash -c "verify_against $precision"; done
  for precision in fp32 bf16; do beside "verify_${precision}_np2" 240 bash -c "verify_against $precision 2"; done
}

# What makes two layers of gpt2-124m of a tiny model.
as_gpt2=(run.matmul=auto model.vocab_size=50257 model.max_sequence_length=1024 model.hidden_size=768 model.num_heads=12
  model.ffn_hidden_size=3072 batch.sequence_length=1024)

# Several ranks share the GPU; MPICH waits without spinning where cores are few.
stage_tests() {
  export ESPALIER_RANKS_PER_GPU=8
  local run=(ctest --test-dir build-gpu --output-on-failure --no-tests=error --timeout 240 -LE long -j "$num_tests")
  local layouts='^training[.](layouts|recompute|precision|data_parallel)'
  local states='^training[.](resume|kept_|restarts|rollback|spikes|checkpoint_|stored_|sharded_|next_loss|round_trips|same_|saved_)'
  local times='^training[.](gemm_rate|operation_pace|pipeline_time|overlap)'
  item core 240 "${run[@]}" -L core
  item models 240 "${run[@]}" -L models
  item nccl_link 120 "${run[@]}" -R nccl_link
  item repeats 240 tests/app/test_repeats.sh build-gpu/espalier "${as_gpt2[@]}" precision.compute=bf16
  item layouts 400 "${run[@]}" -R "$layouts"
  item parallel 400 "${run[@]}" -L parallel -E nccl_link
  item training_states 400 "${run[@]}" -R "$states"
  item training_times 300 "${run[@]}" -R "$times"
  item training 400 "${run[@]}" -L training -E "$layouts|$states|$times"
}

# show NAME LINES: the last ones of what it has measured, but for matmuls of our own slow kernel.
show() { [[ $log_is_of != "$1" || ! -f $log/$1.log ]] || grep -v ' by tiled ' "$log/$1.log" | tail -n "$2" | sed 's/^/    /'; }

# What torch.compile has made is kept: an item that ran out of time gets further when it is run again.
stage_bench() {
  export TORCHINDUCTOR_CACHE_DIR=$root/build-gpu/inductor TORCHINDUCTOR_FX_GRAPH_CACHE=1
  local ops=(build-gpu/espalier bench ops --precision bf16)
  local compare=(bench/compare_pytorch --device cuda --espalier build-gpu/espalier --rounds 2)
  item ops 120 "${ops[@]}" --model gpt2-124m --micro-batch 32 --sequence-length 1024
  show ops 50
  item attention 60 "${ops[@]}" --only attention, --micro-batch 1 --sequence-length 8192 model.hidden_size=2048 \
    model.num_heads=32 model.max_sequence_length=8192
  show attention 5
  item attention_grouped 60 "${ops[@]}" --only attention, --model llama-3.2-1b --micro-batch 8 --sequence-length 2048
  show attention_grouped 5
  item profile 180 bench/profile_step build-gpu/espalier
  show profile 5
  item profile_llama 180 bench/profile_step build-gpu/espalier model.preset=llama-3.2-1b batch.sequence_length=1024
  show profile_llama 5
  needs=60 item pytorch_gpt2-124m 300 "${compare[@]}" --model gpt2-124m --json "$log/gpt2-124m.json"
  show pytorch_gpt2-124m 9
  needs=60 item pytorch_smollm2-135m 300 "${compare[@]}" --model smollm2-135m --json "$log/smollm2-135m.json"
  show pytorch_smollm2-135m 9
  needs=330 item pytorch_gpt2-1558m 560 "${compare[@]}" --model gpt2-1558m --json "$log/gpt2-1558m.json"
  show pytorch_gpt2-1558m 9
}

# Memory first, then races of what uses shared memory.
stage_sanitize() {
  local suite sanitize=(compute-sanitizer --error-exitcode 1)
  beside memcheck_step 180 bash -c "cd build-gpu/reference && ${sanitize[*]} --tool memcheck ../espalier verify config.toml \
    --precision bf16 --against bf16"
  for suite in Layernorm Gelu Linear Norm AdamW Embedding CrossEntropy AttentionRows Attention FusedLinear Matmul; do
    beside "memcheck_$suite" 180 "${sanitize[@]}" --tool memcheck build-gpu/core_tests --gtest_filter="$suite.*:*/$suite.*"
  done
  for suite in Layernorm Norm Embedding CrossEntropy AttentionRows Attention; do
    beside "racecheck_$suite" 180 "${sanitize[@]}" --tool racecheck build-gpu/core_tests --gtest_filter="$suite.*:*/$suite.*"
  done
}

#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Espalier authors
# SPDX-License-Identifier: Apache-2.0
# Builds the CUDA mock into a folder, under the names of the libraries that it replaces. A program runs with it where
# LD_LIBRARY_PATH begins with that folder.
#
#   tests/support/fake_cuda/build.sh FOLDER [PROGRAM...]    each PROGRAM must find there all that it takes from CUDA
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
folder=$1; shift
include=$(dirname "$(command -v nvcc)")/../include
mkdir -p "$folder"

# The programs ask for the versions of the symbols that NVIDIA's libraries have.
cudart=$(basename "$(realpath "$include"/../lib64/libcudart.so.[0-9]* | head -n 1)" | grep -o '^libcudart.so.[0-9]*')
cublaslt=${cudart/cudart/cublasLt}
cat >"$folder/versions" <<VERSIONS
$cudart { global: cuda*; __cuda*; };
$cublaslt { global: cublasLt*; };
libcudnn.so.9 { global: cudnn*; };
others { global: nccl*; cuCtx*; cuStream*; local: *; };
VERSIONS

launcher=; ! command -v ccache >/dev/null || launcher=ccache
objects=() failed=
for source in "$here"/*.cpp; do
  object=$folder/$(basename "$source" .cpp).o
  objects+=("$object")
  (cd "$here/../../.." && $launcher "${CXX:-g++}" -std=c++20 -O2 -g1 -Wall -Wextra -Wshadow -Werror -fPIC -I. -isystem "$include" \
    -c "tests/support/fake_cuda/$(basename "$source")" -o "$object") &
  ((${#objects[@]} % 2)) || wait -n || failed=yes
done
while (($(jobs -rp | wc -l))); do wait -n || failed=yes; done
[[ ! $failed ]] || exit 1
"${CXX:-g++}" -shared -o "$folder/libfake_cuda.so" "${objects[@]}" -Wl,--version-script="$folder/versions" -Wl,--no-undefined -pthread
for name in "$cudart" "$cublaslt" libnccl.so.2 libcudnn.so.9 libcuda.so.1; do
  ln -sf libfake_cuda.so "$folder/$name"
done
# The program that looks at the mock itself.
nvcc -std=c++20 -arch=sm_80 --no-compress -cudart shared -ccbin "${CXX:-g++}" "$here/mistakes.cu" -o "$folder/mistakes"

symbols() { nm -D "$@" | awk '{print $NF}' | sed 's/@.*//' | grep -E '^(__cuda|cuda[A-Z]|cu[A-Z]|cublas|nccl|cudnn)' | sort -u; }
for program; do
  missing=$(comm -23 <(symbols --undefined-only "$program") <(symbols --defined-only "$folder/libfake_cuda.so") | tr '\n' ' ')
  [[ -z $missing ]] || { echo "the CUDA mock lacks what $program takes from it: $missing" >&2; exit 1; }
done

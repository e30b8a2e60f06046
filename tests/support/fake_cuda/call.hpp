// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <mutex>
#include <string>
#include <type_traits>

/// How calls end with an error: what is below them throws it, wherever it is found.
namespace fake_cuda {

/// Everything is behind one mutex; who waits lets go of it meanwhile.
using Lock = std::unique_lock<std::mutex>;
Lock lock_all();

struct Refusal {
  cudaError_t status;
};
/// The same, where it is a misuse, too.
[[noreturn]] void refuse(cudaError_t status, const std::string& text);

/// What stands before every call that needs a context: no device and an old driver are answered here.
void start_call();

/// Some call has: only then is there something to look at.
bool was_used();

/// The answer of a call. An error is kept for cudaGetLastError.
cudaError_t answer(cudaError_t status);

/// A call of CUDA: does f() or f(lock).
template <class F>
cudaError_t call(const F& f) {
  Lock lock = lock_all();
  try {
    start_call();
    if constexpr (std::is_invocable_v<F, Lock&>)
      f(lock);
    else
      f();
    return cudaSuccess;
  } catch (const Refusal& refusal) {
    return answer(refusal.status);
  }
}

/// A call of a library on top of CUDA, which has two answers.
template <class Status, class F>
Status library_call(Status success, Status failure, const F& f) {
  return call(f) == cudaSuccess ? success : failure;
}

}  // namespace fake_cuda

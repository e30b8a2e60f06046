// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

/// A mock of the CUDA runtime, the driver, cuBLASLt, NCCL and cuDNN for machines without a GPU (docs/portability.md).
/// It plays H200s and checks calls strictly. Copies, memsets and messages move bytes. Kernels and matmuls compute
/// nothing: memory keeps what it held, at first zeros. cuDNN refuses every plan. A misuse is a line "fake CUDA: ..."
/// and exit code 97. Environment variables, each ESPALIER_FAKE_CUDA_ and:
///   DEVICES=1        GPUs that a process sees          ARCH=90         their architecture
///   DRIVER=13000     version of the driver             FREE_MIB=N      memory that other programs have left
///   SHARED=DIR       messages of NCCL between ranks    EPILOGUE_MS=5   epilogues of matmuls are slow
///   RACES=0          races are not looked for          IGNORE_WAITS=1  races are found as if no stream waited
///   LATE=9           events are late so often          LEAKS=0         leaks are not reported
///   REPORT=FILE      counts, as JSON (below)           MARK=TEXT       kernel that marks the steps
///   ABORT=1          a misuse aborts, for a debugger
namespace fake_cuda {

/// Everything is behind one mutex; who waits lets go of it meanwhile.
using Lock = std::unique_lock<std::mutex>;
Lock lock_all();

/// What real CUDA would answer with an error that nobody expects, or not define: one line on stderr, and the process
/// ends with 97.
void misuse(const std::string& text);

/// Of a mangled name, or a text that ends with one, what stands before the arguments, and not all of what Kokkos wraps
/// around it.
std::string readable(const std::string& text);

/// The answer of a call. An error is kept for cudaGetLastError; `refuse` is for one that is a misuse, too.
cudaError_t answer(cudaError_t status);
cudaError_t refuse(cudaError_t status, const std::string& text);

/// An environment variable ESPALIER_FAKE_CUDA_<name>.
long long setting(const char* name, long long otherwise);

/// What is written at the end, as one line of JSON a process, into the file ESPALIER_FAKE_CUDA_REPORT.
struct Counts {
  std::uint64_t allocations = 0;         ///< of device memory
  std::uint64_t frees = 0;               ///< of device memory
  std::uint64_t pinned_allocations = 0;  ///< of host memory
  std::uint64_t pinned_frees = 0;
  std::uint64_t device_synchronizations = 0;  ///< also those that freeing device memory implies
  std::uint64_t stream_synchronizations = 0;
  std::uint64_t event_synchronizations = 0;
  std::uint64_t blocking_copies = 0;  ///< cudaMemcpy, and asynchronous ones that pageable memory makes wait
  std::uint64_t copies = 0;           ///< of any kind
  std::uint64_t memsets = 0;
  std::uint64_t launches = 0;
  std::uint64_t products = 0;  ///< cublasLtMatmul
  std::uint64_t messages = 0;  ///< ncclSend and ncclRecv
  std::uint64_t streams = 0;
  std::uint64_t events = 0;
  std::uint64_t captures = 0;
  std::uint64_t graph_instantiations = 0;
  std::uint64_t graph_launches = 0;
  std::uint64_t peak_bytes = 0;                       ///< of device memory
  std::map<std::string, std::uint64_t> kernels = {};  ///< launches of each
};
Counts& counts();

/// A kernel is launched. Where ESPALIER_FAKE_CUDA_MARK is a part of its name, what is counted between the first and the
/// last such launch is in the report, too: with a kernel of the optimizer, all steps but the first.
void note_launch(const std::string& kernel);

/// Told at the end of the process: what each file still holds.
void tell_leaked_memory();
void tell_leaked_streams();
void tell_leaked_graphs();
void tell_leaked_products();
void tell_leaked_communicators();
void tell_leaked_cudnn();

}  // namespace fake_cuda

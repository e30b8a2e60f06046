// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

/// A mock of the CUDA runtime, the driver, cuBLASLt, NCCL and cuDNN for machines without a GPU (docs/portability.md).
/// It plays H200s and checks calls strictly. Copies, memsets and messages move bytes. Kernels and matmuls compute
/// nothing: memory keeps what it held, at first zeros. cuDNN refuses every plan. A misuse is a line "fake CUDA: ..."
/// and exit code 97. Environment variables, each ESPALIER_FAKE_CUDA_ and:
///   DEVICES=1        GPUs that a process sees          ARCH=90         their architecture
///   DRIVER=13000     version of the driver             FREE_MIB=N      memory that other programs have left
///   SHARED=DIR       messages of NCCL between ranks    EPILOGUE_MS=5   epilogues of matmuls are slow
///   LATE=9           events are late so often          IGNORE_WAITS=1  races are found as if no stream waited
///   REPORT=FILE      counts, as JSON (below)           MARK=TEXT       kernel that marks the steps
namespace fake_cuda {

/// An environment variable ESPALIER_FAKE_CUDA_<name>.
long long setting(const char* name, long long otherwise);

/// What real CUDA would answer with an error that nobody expects, or not define: one line on stderr, and the process
/// ends with 97.
void misuse(const std::string& text);

/// Of a mangled name, or a text that ends with one, what stands before the arguments, and not all of what Kokkos wraps
/// around it.
std::string readable(const std::string& text);

/// Adds one to a count of the report, and returns it. At the end of the process the report is one line of JSON in the
/// file ESPALIER_FAKE_CUDA_REPORT. It has:
///   allocations, frees, pinned_allocations, pinned_frees    of device memory, and of pinned host memory
///   device_synchronizations, stream_synchronizations        also those that freeing device memory implies
///   blocking_copies    cudaMemcpy, and asynchronous ones that pageable memory makes wait
///   streams, events, graph_launches, launches, messages     launches of kernels; ncclSend and ncclRecv
///   the mangled name of each kernel: its launches
std::uint64_t count(const std::string& name);

/// A kernel is launched. Where ESPALIER_FAKE_CUDA_MARK is a part of its name, what is counted between the first and the
/// last such launch is in the report, too: with a kernel of the optimizer, all steps but the first.
void note_launch(const std::string& kernel);

/// Told at the end of the process: what each file still holds.
void tell_leaked_memory();
void tell_leaked_streams();
void tell_leaked_graphs();
void report_leaked_matmuls();
void tell_leaked_communicators();
void tell_leaked_cudnn();

}  // namespace fake_cuda

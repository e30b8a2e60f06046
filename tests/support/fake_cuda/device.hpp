// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace fake_cuda {

/// Documented limits of the GPU that is played, an H200.
constexpr std::size_t total_memory = 150'100'000'000;
constexpr unsigned most_threads = 1024;
constexpr int registers = 65536;  ///< of a multiprocessor
constexpr std::size_t shared_without_asking = 48 * 1024;
constexpr std::size_t shared_at_most = 227 * 1024;

/// Some call has asked for a device: only then is there something to look at.
bool was_used();

/// What stands before every call that needs a context: no device and an old driver are answered here.
cudaError_t start_call();

int current_device();
int compute_capability();  ///< 90

}  // namespace fake_cuda

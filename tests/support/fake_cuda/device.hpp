// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace fake_cuda {

/// Documented limits of the GPU that is played, an H200.
constexpr std::size_t total_memory = 150'100'000'000;
constexpr unsigned max_threads = 1024;
constexpr std::size_t shared_without_asking = 48 * 1024;
constexpr std::size_t shared_at_most = 227 * 1024;

/// Their numbers, those that CUDA_VISIBLE_DEVICES leaves.
std::vector<int> visible_devices();
int current_device();
int compute_capability();  ///< 90

}  // namespace fake_cuda

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <type_traits>

#include "core/bfloat16.hpp"
#include "core/float16.hpp"
#include "core/scalars.hpp"

namespace espalier {

using ExecSpace = Kokkos::DefaultExecutionSpace;
using MemSpace = ExecSpace::memory_space;

/// True where kernels run on the host and a team is one thread with vector lanes. Tests define
/// ESPALIER_GPU_KERNELS_ON_HOST to run there what is written for GPUs, a thread of the host for each of a team.
#ifdef ESPALIER_GPU_KERNELS_ON_HOST
inline constexpr bool exec_is_host = false;
#else
inline constexpr bool exec_is_host = std::is_same_v<ExecSpace, Kokkos::DefaultHostExecutionSpace>;
#endif

/// Indices of 64 bits: Kokkos' own choice on GPUs has 32, and aborts where a range has more than 2^32 - 1 elements.
using RangePolicy = Kokkos::RangePolicy<ExecSpace, Kokkos::IndexType<std::int64_t>>;

}  // namespace espalier

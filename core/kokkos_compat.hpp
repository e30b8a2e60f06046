// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <string>

/// All that differs between Kokkos 3.4 and 5, and nowhere else.
namespace espalier::compat {

#if KOKKOS_VERSION >= 30700
using Kokkos::exp;
using Kokkos::isfinite;
using Kokkos::log;
using Kokkos::sqrt;
#else
using Kokkos::Experimental::exp;
using Kokkos::Experimental::isfinite;
using Kokkos::Experimental::log;
using Kokkos::Experimental::sqrt;
#endif

/// Host memory that the device of the default execution space copies from and to at full speed.
#ifdef KOKKOS_HAS_SHARED_HOST_PINNED_SPACE
using PinnedHostSpace = Kokkos::SharedHostPinnedSpace;
#else
using PinnedHostSpace = Kokkos::HostSpace;
#endif

/// Waits for the work of one instance; the label says why, also to tools (an old Kokkos reports no such wait to them).
template <class Exec>
void fence(const Exec& exec, const std::string& reason) {
#if KOKKOS_VERSION >= 30500
  exec.fence(reason);
#else
  std::uint64_t handle = 0;
  Kokkos::Tools::beginFence(reason, Kokkos::Tools::Experimental::device_id(exec), &handle);
  exec.fence();
  Kokkos::Tools::endFence(handle);
#endif
}

}  // namespace espalier::compat

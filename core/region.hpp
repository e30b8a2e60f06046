// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Kokkos_Core.hpp>
#include <string>

namespace espalier {

/// Names a phase for profiling tools while it lives; exceptions leave no region open.
class Region {
 public:
  explicit Region(const std::string& label) { Kokkos::Profiling::pushRegion(label); }
  ~Region() { Kokkos::Profiling::popRegion(); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
};

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/region.hpp"

#include <Kokkos_Core.hpp>

namespace espalier {

Region::Region(const std::string& label) { Kokkos::Profiling::pushRegion(label); }
Region::~Region() { Kokkos::Profiling::popRegion(); }

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "parallel/communicator.hpp"
#include "training/run_config.hpp"

namespace espalier {

/// FLOP/s of matrix products on all ranks together by the peak that the maker of the devices names: what MFU is a share
/// of. From run.cluster, else from the name of the GPU. Nothing where it is not known, as on most CPUs.
std::optional<double> peak_rate(const RunConfig& config, const Communicator& world);

}  // namespace espalier

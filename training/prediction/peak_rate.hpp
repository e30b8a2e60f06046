// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "parallel/collectives/communicator.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// FLOP/s of matrix products on all ranks together by the peak that the maker of the devices names: what MFU is a share
/// of. By the name of the GPU (of a MIG part its share of the processors), else by run.cluster. Nothing where it is not
/// known, as on most CPUs, and where --emulate imitates the operations of another machine.
std::optional<double> peak_rate(const RunConfig& config, const Communicator& world);

}  // namespace espalier

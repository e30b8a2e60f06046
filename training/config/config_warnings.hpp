// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "planning/implementation.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// Settings that are allowed but do nothing, or less than they seem to: one sentence each.
std::vector<std::string> config_warnings(const RunConfig& config, int world_size);

/// Those of them that hold in any layout and for any number of steps: of [precision], and of libraries that compute.
std::vector<std::string> compute_warnings(const RunConfig& config);

/// Why attention goes through our own kernels whatever run.attention says; empty: it does not.
inline std::string why_not_cudnn(const RunConfig& config) {
  return why_not_cudnn(config.model.shape, config.data.separates_documents());
}

}  // namespace espalier

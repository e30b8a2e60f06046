// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "parallel/collectives/communicator.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// Checks the token files of a config against their checksums and the model's vocabulary. One rank of each host reads
/// them, and all ranks get the result. Files that are larger than data.check_limit together are not read; the loader
/// checks each token that it returns anyway. Collective. @throws Error (data), the same on every rank.
/// @param note gets on rank 0 how each file is read
/// @returns what the files hold (training/config/data_files.hpp)
nlohmann::json check_token_files(const RunConfig& config, const Communicator& world,
                                 const std::function<void(const std::string&)>& note = {});

}  // namespace espalier

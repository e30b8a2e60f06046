// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "parallel/collectives/communicator.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// Reads the token files of a config against their checksums and the model's vocabulary: one rank of each host does,
/// and all ranks hear of what it finds. Files that are larger than data.check_limit together are left unread; the
/// loader looks at each token that it hands out anyway. Collective. @throws Error (data), the same on every rank.
/// @param note is told on rank 0 how each file is read
/// @returns what the files hold (training/config/data_files.hpp)
nlohmann::json check_token_files(const RunConfig& config, const Communicator& world,
                                 const std::function<void(const std::string&)>& note = {});

}  // namespace espalier

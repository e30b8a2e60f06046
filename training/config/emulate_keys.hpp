// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/config/toml_config.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

// The keys of emulation: of tests, benches and rehearsals, not of a config. Records of a run have them as [emulate].

/// What `train --emulate` is given: TOML files with a section [emulate], and settings "forward=10ms"; later ones win.
/// @throws Error (usage) that lists every problem of the first that has one.
RunConfig::Emulate read_emulation(const std::vector<std::string>& given);

/// The section [emulate] of a record.
void read_emulate_keys(ConfigReader& reader, RunConfig::Emulate& emulate);

/// All keys with their meanings, as TOML that reads back equal.
std::string all_emulate_keys(const RunConfig::Emulate& emulate = {});

/// The same of those that differ from their defaults; empty where none does.
std::string changed_emulate_keys(const RunConfig::Emulate& emulate);

}  // namespace espalier

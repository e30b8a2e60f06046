// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "io/file.hpp"
#include "io/records/run_facts.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// The config that `train` resolved, for the ranks that it ran on: `layout` and `ranks_per_node` are filled in.
/// @param file the config is its text, for messages
/// @param world_size 0: as many as the degrees of the config make
/// @throws Error (data) where it is not one, with the position.
RunConfig recorded_config(const std::string& text, const Path& file, int world_size, const RunFacts& facts);

/// A number for the node that the rank is on: as [emulate] imitates nodes, else by host; 0 where that is not noted.
int node_of(int rank, const RunConfig& config, const RunFacts& facts);

/// Does the run rehearse a plan whose step has more micro-batches?
bool is_part_of_a_step(const RunConfig& config);

}  // namespace espalier

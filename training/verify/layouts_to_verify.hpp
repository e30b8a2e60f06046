// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "parallel/collectives/injected_fault.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// Every layout that a world of this size allows, also those that the model cannot have: all degrees, schedules, ZeRO
/// stages, with and without sequence parallelism and virtual stages. Where shards lie within nodes, a node has half of
/// the replicas. The rest is the config's. Pure.
std::vector<Layout> layouts_to_verify(const RunConfig& config, int world_size);

/// One of them as keys of [parallel], and the emulated ranks of a node.
std::vector<std::string> settings_to_verify(const Layout& layout);

/// All of them.
std::vector<std::vector<std::string>> settings_to_verify(const RunConfig& config, int world_size);

/// Keys that lay any config out on one rank; with more, plain data parallelism.
std::vector<std::string> one_rank_settings();

/// Does the layout have what the fault breaks?
bool can_break(InjectedFault fault, const RunConfig& config);

/// What the fault breaks, in words: "tied embeddings on two pipeline stages".
std::string broken_part(InjectedFault fault);

/// A small model of the same kind, which is cheap to run: fewer and narrower layers, shorter sequences, the vocabulary
/// of the data.
RunConfig shrunk(const RunConfig& config);

}  // namespace espalier

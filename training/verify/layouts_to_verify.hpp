// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "parallel/collectives/injected_fault.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// Every layout that a world of this size allows, as overrides of [parallel]: all degrees, schedules, ZeRO stages, with
/// and without sequence parallelism and virtual stages. Pure.
std::vector<std::vector<std::string>> layouts_to_verify(const RunConfig& config, int world_size);

/// Layout::short_text() of one of them, also of one that make_run_layout() cannot make for this model.
std::string text_of_layout(const std::vector<std::string>& overrides);

/// Overrides that lay any config out on one rank; with more, plain data parallelism.
std::vector<std::string> one_rank_overrides();

/// Does the layout have what the fault breaks?
bool can_break(InjectedFault fault, const RunConfig& config);

/// What the fault breaks, in words: "tied embeddings on two pipeline stages".
std::string broken_part(InjectedFault fault);

/// A small model of the same kind, which is cheap to run: fewer and narrower layers, shorter sequences, the vocabulary
/// of the data.
RunConfig shrunk(const RunConfig& config);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "training/config/run_config.hpp"

namespace espalier {

class ConfigReader;

/// The micro-batch of a config that gives none: as many sequences, up to 8, as divide the share of a replica, but a
/// micro-batch for each stage at least, so that none idles; 1 where the replicas have no equal shares.
Index fitting_micro_batch(const RunConfig& config, int world_size);

/// Rules between keys, for a world of `world_size` ranks. Tells the reader everything that is wrong, not only the
/// first; allocates nothing. A micro_batch_size of 0 stands for the fitting one.
void validate_run_config(const RunConfig& config, ConfigReader& reader, int world_size);

/// Tells one of problems(ModelConfig) at its key of [model] or [rotary].
void report_model_problem(ConfigReader& reader, const std::string& problem);

/// Do those of the rules hold that say how [batch], [parallel], the model and the ranks go together?
bool is_valid_layout(const RunConfig& config, int world_size);

}  // namespace espalier

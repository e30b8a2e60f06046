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

/// Rules between keys, for a world of `world_size` ranks. Reports everything that is wrong to the reader, not only the
/// first; allocates nothing. A micro_batch_size of 0 stands for the fitting one.
void validate_run_config(const RunConfig& config, ConfigReader& reader, int world_size);

/// Do those of the rules hold that say how [batch], [parallel], the model and the ranks go together?
bool is_valid_layout(const RunConfig& config, int world_size);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/layer_partition.hpp"
#include "parallel/collectives/communicator.hpp"
#include "training/config/run_config.hpp"

namespace espalier {

/// Seconds of forward and backward of the items that a pipeline is cut between: embedding, one block, head, under one
/// mode of recomputation. Runs a model of one layer on one micro-batch of the config; frees what it allocates.
LayerCosts measure_layer_costs(const RunConfig& config, Recompute recompute);

/// The layers of each stage that the run directory has from an earlier start, if its pipeline is that of this config;
/// else none. However many replicas or tensor ranks there were.
std::vector<Index> stored_layers(const RunConfig& config);

/// Fills in parallel.layers_per_stage where the config leaves it open: as the run directory has it for this pipeline,
/// so that a resumed run keeps its stages; else balanced by what rank 0 measures (by counted FLOPs where the
/// measurement would not fit run.device_memory). Collective; the same on all ranks.
void resolve_layers_per_stage(RunConfig& config, const Communicator& world);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "io/records/prediction_record.hpp"
#include "planning/price_layout.hpp"
#include "training/config/run_layout.hpp"

namespace espalier {

/// What `train` tells of its step: by --emulate where that imitates operations, else by run.cluster, or without it by
/// the GEMM rate. Of the healthy run: faults that --emulate injects are what is to stand out against it.
/// @param gemm_rate FLOP/s of all ranks together
TimeOutlook time_outlook(const RunConfig& config, const Layout& layout, double gemm_rate);

/// By the planner's formulas (planning/price_layout) on this cluster. Nothing where
/// the planner knows no price (fp64, layers dealt out round-robin, recomputation that differs between stages), or the
/// cluster has not so many devices or not this precision. Documents count as joined, which a note says.
TimeOutlook predict_time(const RunConfig& config, const Layout& layout, const Cluster& cluster,
                         const std::string& source);

/// Of a run with --emulate: the same lists in the simulator with the times and links that it gives.
TimePrediction predict_emulated_time(const RunConfig& config, const Layout& layout);

/// The machine that run.cluster names. @throws Error (usage) that names the key, whose file may lie beside another
/// config. @pre run.cluster is set
Cluster cluster_of(const RunConfig& config);

/// @throws Error (usage), the same where it is set and wrong. For what comes before a run.
void require_cluster(const RunConfig& config);

/// A machine of which only the GEMM rate of all ranks together is known: the rest is what CPUs usually have, and the
/// error bars are wide.
Cluster assumed_cluster(int num_ranks, Precision precision, double gemm_rate);

}  // namespace espalier

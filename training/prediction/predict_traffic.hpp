// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "models/rank_memory.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "parallel/reduction/reduction_plan.hpp"
#include "training/config/run_layout.hpp"

namespace espalier {

/// Bytes that `rank` hands to the communicators of each axis in one optimizer step (index with Axis), from the shapes
/// alone. Exact, padding included: what StepReport::bytes_sent will be.
///   tp  the collectives inside each operation, of rows (B T, C) (of B T / tp rows under sequence parallelism) and of
///       the softmax statistics;
///   pp  for each send of the list the residual stream of a micro-batch, (B T, C), or our rows of it;
///   dp  the gradients' reduction, all its groups, and with ZeRO the gathering of weights.
/// The few numbers that the whole world sums once a step (loss, norm, flags) belong to no axis.
/// @param types that it computes in; how gradients travel the config says
std::array<std::uint64_t, num_axes> predict_traffic(const RunConfig& config, const Layout& layout, int rank,
                                                    const TrainingTypes& types);

/// What of it the reduction of each group of parameters sends, and the gathering of its weights.
/// @param of_units with what layers send that are summed, and gathered, again and again (ZeRO-2 and -3)
TrafficByGroup predict_reduction_traffic(const RunConfig& config, const Layout& layout, int rank,
                                         const TrainingTypes& types, bool of_units = true);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/cost.hpp"
#include "planning/cluster.hpp"

namespace espalier {

/// Seconds that one micro-batch took on one device, forward and backward together.
struct LayerSample {
  ModelConfig model;
  Index micro_batch = 1;
  Index sequence_length = 1;
  double embedding = 0;
  double block = 0;  ///< one of them
  double head = 0;   ///< with the loss
};

struct Calibration {
  Accelerator device;
  double median_error = 0;  ///< of a sample's blocks, as a share
  double worst_error = 0;
};

/// Fits what a device gets out of its peaks: matmul_efficiency, half_depth, fill_waves and attention_efficiency of
/// `precision`, memory_efficiency and kernel_seconds, so that the planner's formulas give the measured times: least
/// squares of the logarithms, blocks counting most, by a pattern search [Hooke and Jeeves 1961]. `start` brings the
/// peak of the precision, memory bandwidth and processors; its other values are where the search begins. Of a device
/// whose memory_efficiency and kernel_seconds are known, from another precision, they stay.
/// @throws Error (usage) without samples or without a peak.
Calibration calibrate(const Accelerator& start, Precision precision, const std::vector<LayerSample>& samples,
                      bool device_known = false);

/// The planner's seconds of a sample.
LayerSample predicted_sample(const Accelerator& device, Precision precision, const LayerSample& sample);

/// Two all_reduces as a clock saw them: of next to nothing, and of `bytes`.
struct TimedAllReduce {
  double small_seconds = 0;
  double large_seconds = 0;
  double bytes = 0;
};

/// The links for which collective_seconds gives these times: inside a node, measured among the devices of one; between
/// nodes, measured among all devices of the cluster, whose node link is known.
LinkTier node_link(const Cluster& cluster, const TimedAllReduce& measured);
LinkTier network_link(const Cluster& cluster, const TimedAllReduce& measured);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/file.hpp"
#include "models/layout.hpp"
#include "models/model_config.hpp"
#include "parallel/collectives/emulated_links.hpp"
#include "planning/implementation.hpp"

namespace espalier {

/// The keys of config.toml that say how the work was cut and paced.
struct RunSetup {
  ModelConfig shape;
  /// Degrees are filled in; `layers` are open of one stage and where they are not known.
  Layout layout = {.precision = Precision::fp32};
  int ranks_per_node = 0;  ///< of the first node; 0: not known
  Index sequence_length = 0;
  TrainSettings settings;
  double peak_learning_rate = 0;
  Index warmup_steps = 0;
  double clip_grad_norm = 0;
  Index decay_steps = 0;  ///< of the learning rate; 0: to the last step
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0;
  Index total_steps = 0;  ///< of the whole run; 0: not known
  Index checkpoint_interval = 0;
  Index device_memory = 0;  ///< bytes, the budget of a rank; 0: none
  std::string cluster;      ///< preset or file that times were predicted for; empty: none
  Index trace_first_step = 2;
  Index trace_steps = 0;
  double initial_loss_scale = 65536;
  double minimum_loss_scale = 1;

  Index planned_microbatches = 0;  ///< a rehearsal's: of a replica in a step of the plan; 0: no rehearsal

  /// [emulate]: times of operations that are imitated, 0 where they are not, and the links.
  double emulated_forward = 0;
  double emulated_backward = 0;
  EmulatedLinks links;
  /// Each byte between tensor ranks, or replicas, counts as this many: that of `links` included.
  double tensor_message_scale = 1;
  double data_message_scale = 1;

  Index num_microbatches() const;  ///< of a replica in a step
  /// Does it stand for a plan whose step has more micro-batches?
  bool is_part_of_a_step() const { return planned_microbatches > num_microbatches(); }
  Index tokens_per_step() const { return layout.global_batch * sequence_length; }
  /// Layers of each stage, all its chunks together; empty where not known.
  std::vector<Index> layers_of_stages() const;
};

/// Of the config that `train` resolved. @param path of the file, for messages
/// @param world_size 0: as many as the degrees of the config make
/// @throws Error (data) where it is not one, with the position.
RunSetup recorded_setup(const std::string& config, const Path& path, int world_size);

}  // namespace espalier

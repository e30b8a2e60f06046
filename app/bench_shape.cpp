// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/bench_shape.hpp"

#include "app/command_line.hpp"
#include "models/largest_model.hpp"
#include "models/model_config.hpp"
#include "models/presets.hpp"

namespace espalier {

void add_shape_options(CLI::App& command, BenchShape& shape) {
  command.add_option("--model", shape.model, "preset; default gpt2-124m")
      ->check(CLI::IsMember(trainable_preset_names()));
  command.add_option("--micro-batch", shape.micro_batch, "sequences per micro-batch; default 4")
      ->check(between(1, LargestModel::batch));
  command.add_option("--sequence-length", shape.sequence_length, "tokens per sequence; default 256")
      ->check(between(1, LargestModel::positions));
}

}  // namespace espalier

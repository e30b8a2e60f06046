// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "planning/layout_memory.hpp"
#include "training/predict_time.hpp"

namespace espalier::test {

/// The config with which `train` would run a layout of a model, in bf16 and with attention of our own; to predict from,
/// nothing runs it.
inline RunConfig config_of_layout(const ModelConfig& shape, const PlanLayout& layout) {
  std::vector<std::string> keys = model_keys(shape);
  keys.insert(keys.end(), {"data.train=[\"x\"]", "run.steps=1", "precision.compute=bf16", "run.attention=own",
                           fmt::format("batch.global_batch_size={}", layout.global_batch),
                           fmt::format("batch.micro_batch_size={}", layout.micro_batch)});
  const std::vector<std::string> parallel = parallel_keys(layout, blocks_per_part(shape, layout));
  keys.insert(keys.end(), parallel.begin(), parallel.end());
  return parse_run_config("", "test", keys, static_cast<int>(layout.num_devices()));
}

}  // namespace espalier::test

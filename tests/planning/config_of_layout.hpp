// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "training/prediction/predict_time.hpp"

namespace espalier::test {

/// The config with which `train` would run a layout of a model, in bf16 and with attention of our own; to predict from,
/// nothing runs it.
inline RunConfig config_of_layout(const ModelConfig& shape, Layout layout) {
  std::vector<std::string> keys = model_keys(shape);
  keys.insert(keys.end(), {"data.train=[\"x\"]", "run.steps=1", "run.attention=own"});
  layout.precision = Precision::bf16;
  const std::vector<std::string> of_layout = settings_of(layout);
  keys.insert(keys.end(), of_layout.begin(), of_layout.end());
  return parse_run_config("", "test", keys, static_cast<int>(layout.num_devices()));
}

}  // namespace espalier::test

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/model_config.hpp"

namespace espalier {

/// A named shape ("gpt2-124m"). @throws Error (usage) with the names known.
ModelConfig model_preset(const std::string& name);

/// All names, small models first.
const std::vector<std::string>& model_preset_names();

/// Those that `train` can build.
const std::vector<std::string>& trainable_preset_names();

}  // namespace espalier

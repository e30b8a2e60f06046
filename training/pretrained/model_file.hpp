// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/model_config.hpp"
#include "planning/implementation.hpp"

namespace espalier {

/// A model to plan for, and the batch that its file names.
struct PlannedModel {
  ModelConfig model;
  std::string name;                ///< the preset or the file
  Index global_batch = 0;          ///< sequences; 0: not given
  Index sequence_length = 0;       ///< tokens; 0: not given, and no learned positions give it
  TrainSettings settings;          ///< of the file
  std::string precision;           ///< precision.compute; empty: not given
  std::vector<std::string> notes;  ///< what was taken for granted, a sentence each
};

/// A preset of the planner, or a file where the text ends with ".toml". @throws Error (usage).
PlannedModel planned_model(const std::string& name_or_file);

/// Reads [model], [batch], [precision] and what else memory and messages depend on from a config of `train`. [model]
/// may also be what `train` cannot train: any preset of the planner, position = "alibi" (docs/planner.md). @param name
/// of the file, for messages
/// @throws Error (usage) that lists every problem with its position.
PlannedModel parse_planned_model(const std::string& text, const std::string& name);

}  // namespace espalier

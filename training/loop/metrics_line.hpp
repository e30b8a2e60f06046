// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

#include "training/loop/train_loop.hpp"

namespace espalier {

/// Blanks that the line of a step gets that is to be validated: `,"validation_loss":` and a number fit.
constexpr std::size_t room_for_validation = 44;

/// A step in metrics.jsonl; docs/running.md explains each field.
nlohmann::ordered_json metrics_line(const StepReport& report, const TrainProgress& progress);

}  // namespace espalier

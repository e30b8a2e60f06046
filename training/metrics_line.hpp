// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "training/train_loop.hpp"

namespace espalier {

/// A step in metrics.jsonl; docs/running.md explains each field.
nlohmann::ordered_json metrics_line(const StepReport& report, const TrainProgress& progress);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "parallel/launch/runtime.hpp"

namespace espalier {

/// `espalier train --replay INCIDENT`: computes a step again on one rank and prints which sample and which tensor did
/// it. @returns 0 where loss and gradient norm are those that were recorded, else 5.
int replay_command(const std::string& incident, const std::vector<std::string>& overrides, Runtime& runtime);

}  // namespace espalier

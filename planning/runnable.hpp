// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "planning/price_layout.hpp"

namespace espalier {

/// What every memo and config for GPUs says. README.md and docs/gpus.md say the same (ci/check_docs.py).
inline constexpr const char* gpu_caveat = "Nothing has run on several GPUs yet";

/// What `train` lacks to run the layout, whatever the model ("train has no context parallelism yet"); empty when it
/// lacks nothing.
std::string why_not_runnable(const Layout& layout);

/// The same, and what it lacks to run the model and the device: each alone, and joined.
std::vector<std::string> what_lacks(const PlanProblem& problem, const Layout& layout);
std::string why_not_runnable(const PlanProblem& problem, const Layout& layout);

/// What it lacks to run `layout` and not to run `other`: "train does not compute in fp8 yet"; empty when nothing.
std::string what_else_lacks(const Layout& layout, const Layout& other);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace espalier {

/// --ranks-per-gpu and --transport, where this build is for GPUs: for every command that computes, or starts ranks that
/// do. They reach Runtime by the environment, where programs without this command line find them, too.
void add_gpu_options(CLI::App& command);

/// Of a command line that could not be parsed. @throws Error (usage) where this build is for CPUs, and one of the
/// arguments is such an option
void refuse_gpu_options(const std::vector<std::string>& arguments);

}  // namespace espalier

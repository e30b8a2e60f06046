// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "core/scalars.hpp"

namespace espalier {

/// What the commands that measure this machine compute on, with what it is where no option says otherwise.
struct BenchShape {
  std::string model = "gpt2-124m";  ///< preset
  Index micro_batch = 4;            ///< sequences
  Index sequence_length = 256;      ///< tokens
};

/// --model, --micro-batch and --sequence-length; `shape` must outlive the parsing.
void add_shape_options(CLI::App& command, BenchShape& shape);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/model_config.hpp"
#include "planning/implementation.hpp"
#include "tests/published/csv.hpp"
#include "tests/published/published_memory.hpp"

namespace espalier {

/// What runs as one kernel, in place of one for each operator.
struct PublishedKernels {
  bool fused_residual = false;     ///< the sum of the residual and the next norm; attention reads Q, K and V as the
                                   ///< projection leaves them
  bool fused_elementwise = false;  ///< RMSNorm, rotary positions and gates
  bool fused_loss = false;         ///< logits to their gradient
};

/// What the program that a row is of does: `program`, `gradient_bytes`, `extra_state_bytes`, `memory_by`. Without them
/// a program in PyTorch of today.
struct PublishedProgram {
  Implementation implementation;
  PublishedMemory memory;
  PublishedKernels kernels;
  bool balances_stages = false;  ///< blocks of pipeline stages by their work
};
/// @throws Error (data) for a word of `program` that is unknown.
PublishedProgram published_program(const CsvRow& row);

/// What these kernels move beyond those of `train`.
void set_arrays(const PublishedKernels& kernels, const ModelConfig& model, Implementation& made);

/// @throws Error (data) for a field that is neither empty nor one of the words.
void require_word(const CsvRow& row, const std::string& column, const std::vector<std::string>& words);

/// "yes" or "no"; nothing where absent. @throws Error (data) for anything else.
std::optional<bool> yes_or_no(const CsvRow& row, const std::string& column);

}  // namespace espalier

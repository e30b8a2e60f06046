// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/ops/matmul.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Logits (rows, V) on every rank of `tensor`, of which each holds its columns (rows, V/tp). Collective over `tensor`;
/// null: this rank holds all columns.
template <class T>
std::vector<float> logits_to_host(const ExecSpace& exec, const Matrix<T>& logits, Index vocab_size,
                                  const Communicator* tensor);

}  // namespace espalier

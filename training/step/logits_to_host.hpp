// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "core/kokkos_compat.hpp"
#include "core/ops/matmul.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// Shares of the vocabulary (rows, V/tp), one of which has a column more than another, side by side: (rows, V).
std::vector<float> gather_columns(std::vector<float> local, Index rows, Index vocab_size, const Communicator& tensor);

/// Logits (rows, V) on every rank of `tensor`, of which each holds its columns (rows, V/tp). Collective over `tensor`;
/// null: this rank holds all columns.
template <class T>
std::vector<float> logits_to_host(const ExecSpace& exec, const Matrix<T>& logits, Index vocab_size,
                                  const Communicator* tensor) {
  const Tensor<T, 1> memory(logits.data, (logits.rows - 1) * logits.stride + logits.cols);  // rows may be padded
  const auto host = Kokkos::create_mirror_view(memory);
  Kokkos::deep_copy(exec, host, memory);
  compat::fence(exec, "espalier::logits_to_host: the logits are read on the host");
  std::vector<float> values;
  values.reserve(static_cast<std::size_t>(logits.rows * logits.cols));
  for (Index row = 0; row < logits.rows; ++row)
    for (Index column = 0; column < logits.cols; ++column)
      values.push_back(static_cast<float>(host(row * logits.stride + column)));
  return tensor != nullptr && tensor->size() > 1 ? gather_columns(std::move(values), logits.rows, vocab_size, *tensor)
                                                 : values;
}

}  // namespace espalier

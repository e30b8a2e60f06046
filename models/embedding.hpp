// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/arena.hpp"
#include "models/gpt_config.hpp"
#include "models/linear.hpp"

namespace espalier {

/// Token and learned position embedding (core/ops/embedding); the token table is also the weight of the head.
template <class T>
class Embedding {
 public:
  Embedding(ParameterStore<T>& parameters, const GptConfig& config, Placement placement);

  void forward(const ExecSpace& exec, Tensor<T, 2> x /* (N, C) */, Tensor<TokenId, 1> tokens /* (N) */,
               Index sequence_length) const;
  void backward_weight(const ExecSpace& exec, Tensor<T, 2> dx /* (N, C) */, Tensor<TokenId, 1> tokens /* (N) */,
                       Index sequence_length) const;

  int token_table() const { return token_table_; }  ///< handle in the store, for the tied head

 private:
  const ParameterStore<T>* parameters_;
  GptConfig config_;
  int token_table_;
  int position_table_;
};

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/ops/attention_shape.hpp"
#include "core/ops/dropout.hpp"
#include "core/tensor.hpp"

// Causal attention, out = softmax(scale * Q K^T, keys up to the query) V with scale = 1 / sqrt(HS), in tiles with a
// running softmax (Dao et al., FlashAttention, 2022; Milakov and Gimelshein, 2018): of the (T, T) matrix of a head no
// more than one tile exists at a time. Heads of queries may share keys and values in groups of NH / NKV (Ainslie et
// al., GQA, 2023); a query may see no more than the last W keys (Beltagy et al., Longformer, 2020), and none of another
// document (Krell et al., Efficient Sequence Packing, 2021). Tiles that nobody sees are skipped.
//
// Letters: B sequences, T positions, NH heads of queries and NKV of keys and values on this rank, HS channels a head,
// Cl = NH*HS. A row of qkv is [Q of NH heads | K of NKV heads | V of NKV heads], Ql = (NH + 2 NKV)*HS channels.

namespace espalier {

/// Dropout of attention's probabilities. The row of a value is (sample * model_heads + head) * T + query, its column is
/// the key. Heads are counted over all tensor ranks: any split drops the same values.
struct AttentionDropout {
  Dropout dropout = {};   ///< row 0: of query 0 of the first head of this rank
  Index model_heads = 0;  ///< NH of all ranks
  KOKKOS_INLINE_FUNCTION bool is_on() const { return dropout.is_on(); }
  /// Of head b*NH + h.
  KOKKOS_INLINE_FUNCTION Index row(const AttentionShape& shape, Index head, Index query) const {
    return (head / shape.num_heads * model_heads + head % shape.num_heads) * shape.sequence_length + query;
  }
  /// What a probability is multiplied by.
  template <class S>
  KOKKOS_INLINE_FUNCTION S factor(const AttentionShape& shape, Index head, Index query, Index key) const {
    return is_on() ? dropout.factor<S>(row(shape, head, query), key) : S(1);
  }
};

/// Saved for backward: qkv, out and log_sum_exp, the logarithm of each softmax denominator.
/// @param positions of each token in its document, as far as it lies in its sequence: they count up from 0 where a
/// sequence or a document starts. A query sees no key before that. Empty: a sequence is one document.
template <class T>
void attention_forward(const ExecSpace& exec, Tensor<T, 2> out /* (B*T, Cl) */,
                       Tensor<State<T>, 1> log_sum_exp /* (B*NH*T) */, Tensor<T, 2> qkv /* (B*T, Ql) */,
                       const AttentionShape& shape, const AttentionDropout& dropout = {},
                       Tensor<int, 1> positions = {} /* (B*T) */);

/// Gradients of K and V are summed over the heads of a group in their order.
template <class T>
void attention_backward(const ExecSpace& exec, Tensor<T, 2> dqkv /* (B*T, Ql), = */, Tensor<T, 2> dout /* (B*T, Cl) */,
                        Tensor<T, 2> out /* (B*T, Cl) */, Tensor<State<T>, 1> log_sum_exp /* (B*NH*T) */,
                        Tensor<T, 2> qkv /* (B*T, Ql) */, const AttentionShape& shape,
                        const AttentionDropout& dropout = {}, Tensor<int, 1> positions = {} /* (B*T) */);

}  // namespace espalier

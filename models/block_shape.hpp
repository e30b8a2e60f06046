// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/parameter_spec.hpp"
#include "core/work.hpp"
#include "models/logit_rows.hpp"
#include "models/model_config.hpp"

namespace espalier {

/// What dropout depends on: the seed and the samples of the micro-batch.
struct DropoutContext {
  bool is_training = false;  ///< else nothing is dropped
  std::uint64_t seed = 0;
  Index first_sample = 0;  ///< global index of the first sequence; they are consecutive
};

/// Sizes of one micro-batch on one of the tp ranks of a tensor axis.
struct BlockShape {
  AttentionShape attention{};  ///< B, T, NH/tp, HS, NKV/tp, W
  Index rows = 0;              ///< R, of the residual stream: N = B*T, or N/tp under sequence parallelism
  Index channels = 0;          ///< C
  Index kv_channels = 0;       ///< columns of the keys, and of the values: NKV*HS/tp
  Index ffn = 0;               ///< F/tp
  Index up = 0;                ///< columns of the way up: F/tp, or 2F/tp with a gate
  Index rotary = 0;            ///< HR, channels of a head that are rotated
  Norm norm = Norm::layernorm;
  bool bias = true;
  bool qkv_bias = true;
  bool qk_norm = false;
  bool copies_kv = false;  ///< other tensor ranks hold the same heads of K and V
  bool drops_residual = false;
  bool drops_embedding = false;
  DropoutContext dropout = {};
  Index vocabulary = 0;  ///< V/tp, rows of the token embedding; the first ranks have one more where it does not divide
  Index positions = 0;   ///< P, that are learned
  Index logit_rows = 0;  ///< NL, rows of logits that exist at a time
  Index logit_columns = 0;  ///< Vp: V/tp and, on GPUs, columns of zeros
  int tensor_size = 1;      ///< tp
  bool sequence_parallel = false;

  Index tokens() const { return attention.batch * attention.sequence_length; }    ///< N
  Index q_channels() const { return attention.num_heads * attention.head_size; }  ///< of Q, and of attention's output
  Index qk_channels() const { return q_channels() + kv_channels; }                ///< of [Q | K]
  Index qkv_channels() const { return q_channels() + 2 * kv_channels; }           ///< of [Q | K | V]
};

/// @param tensor_rank whose part of the vocabulary it is
inline BlockShape make_block_shape(const ModelConfig& config, int tensor_size, bool sequence_parallel, Index batch,
                                   Index sequence_length, int tensor_rank = 0, LogitSizes logits = logits_on_host) {
  const bool cuts_rows = sequence_parallel && tensor_size > 1;
  // Sizes are the largest share of any rank. Of few heads of K and V some ranks hold the same one.
  const auto divided_up = [&](Index extent) { return (extent + tensor_size - 1) / tensor_size; };
  const Index ffn = divided_up(config.ffn_hidden_size);
  const Index kv_heads = divided_up(config.kv_heads());
  const Index vocabulary = Shard{0, tensor_rank, tensor_size}.range(config.vocab_size).size();
  return {
      .attention = {batch, sequence_length, divided_up(config.num_heads), config.head_size(), kv_heads, config.window},
      .rows = batch * sequence_length / (cuts_rows ? tensor_size : 1),
      .channels = config.hidden_size,
      .kv_channels = kv_heads * config.head_size(),
      .ffn = ffn,
      .up = config.gated() ? 2 * ffn : ffn,
      .rotary = config.rotary_size(),
      .norm = config.norm,
      .bias = config.bias,
      .qkv_bias = config.has_qkv_bias(),
      .qk_norm = config.qk_norm,
      .copies_kv = config.kv_copies(tensor_size) > 1,
      .drops_residual = config.residual_dropout > 0,
      .drops_embedding = config.embedding_dropout > 0,
      .vocabulary = vocabulary,
      .positions = config.learned_positions(),
      .logit_rows = logit_rows(batch * sequence_length, config.vocab_size, tensor_size, logits.max_at_once),
      .logit_columns = (vocabulary + logits.multiple - 1) / logits.multiple * logits.multiple,
      .tensor_size = tensor_size,
      .sequence_parallel = cuts_rows};
}

/// The work of a layer for one micro-batch, in each part of a step.
struct LayerWork {
  Work forward;
  Work recompute;             ///< forward again, for what backward_input reads
  Work recompute_for_weight;  ///< forward again, for what only backward_weight reads
  Work backward_input;
  Work backward_weight;
};

/// The three matmuls of the head.
struct HeadMatmuls {
  MatmulWork logits;
  MatmulWork table_gradient;
  MatmulWork norm_gradient;  ///< of the norm's output
};

/// TensorParallel::gather() and reduce() of (N, channels) of type T, for the lists.
template <class T>
void add_gather(Work& work, const BlockShape& shape, Index channels) {
  if (shape.sequence_parallel)
    work.collectives.push_back({Collective::all_gather, shape.tokens() * channels, sizeof(T)});
}
template <class T>
void add_reduce(Work& work, const BlockShape& shape, Index channels) {
  if (shape.tensor_size > 1)
    work.collectives.push_back({shape.sequence_parallel ? Collective::reduce_scatter : Collective::all_reduce,
                                shape.tokens() * channels, sizeof(T)});
}

/// Bytes of (rows, columns) of type T, read or written `times` times.
template <class T>
double array_bytes(Index rows, Index columns, int times = 1) {
  return static_cast<double>(times) * static_cast<double>(rows) * static_cast<double>(columns) * sizeof(T);
}

}  // namespace espalier

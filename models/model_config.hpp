// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/ops/activation_names.hpp"
#include "core/scalars.hpp"

namespace espalier {

enum class Norm { layernorm, rmsnorm };
enum class Positions { learned, rotary };  ///< learned: a table, added to the token embedding

/// A dense decoder: pre-norm blocks of attention and feed-forward. The only description of a model: training, planning,
/// checkpoints and cost use it. The defaults are GPT-2.
struct ModelConfig {
  Index vocab_size = 50257;          ///< V
  Index max_sequence_length = 1024;  ///< P, rows of the position table; rotary: not used
  Index num_layers = 12;             ///< L
  Index hidden_size = 768;           ///< C
  Index num_heads = 12;              ///< NH
  Index ffn_hidden_size = 3072;      ///< F
  Index num_kv_heads = 0;            ///< NKV, heads of keys and values; 0: one for each head
  Norm norm = Norm::layernorm;
  std::string activation = "gelu";  ///< of core/ops/activation; with a gate the feed-forward has three matrices
  Positions positions = Positions::learned;
  bool tied_embeddings = true;  ///< the head is the token embedding
  bool bias = true;             ///< of the linear layers
  double dropout = 0;           ///< share of values dropped

  bool operator==(const ModelConfig&) const = default;
  Index head_size() const { return num_heads == 0 ? 0 : hidden_size / num_heads; }  ///< HS
  Index kv_heads() const { return num_kv_heads == 0 ? num_heads : num_kv_heads; }
  Index kv_size() const { return head_size() * kv_heads(); }  ///< columns of K (and of V)
  bool gated() const { return is_gated(activation); }
  /// P, or 0 without a table.
  Index learned_positions() const { return positions == Positions::learned ? max_sequence_length : 0; }
};

/// Broken rules of a shape, one sentence each with the value got; empty when it can be built.
std::vector<std::string> problems(const ModelConfig& model);

/// What a model has that `train` cannot build yet.
struct UnsupportedPart {
  std::string words;   ///< "RMSNorm"
  std::string key;     ///< of [model]: "norm = \"rmsnorm\""
  std::string wanted;  ///< what `train` has instead: "norm = \"layernorm\""
};
std::vector<UnsupportedPart> unsupported_parts(const ModelConfig& model);

/// Why `train` cannot build the model; empty when it can.
std::string why_not_trainable(const ModelConfig& model);

}  // namespace espalier

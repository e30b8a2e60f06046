// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/ops/activation_names.hpp"
#include "core/ops/rotary_frequencies.hpp"
#include "core/scalars.hpp"
#include "models/broken_rule.hpp"

namespace espalier {

enum class Norm { layernorm, rmsnorm };
/// How a token learns its position. learned: a table, added to the token embedding; rotary: Q and K are rotated; alibi:
/// a slope on the scores (Press et al., 2022), which `plan` alone knows.
enum class Positions { learned, rotary, alibi };
const char* to_string(Norm norm);
const char* to_string(Positions positions);
inline constexpr std::array all_norms{Norm::layernorm, Norm::rmsnorm};
inline constexpr std::array all_positions{Positions::learned, Positions::rotary, Positions::alibi};

/// A dense decoder: pre-norm blocks of attention and feed-forward. The only description of a model: training, planning,
/// checkpoints and cost use it. The defaults are GPT-2.
struct ModelConfig {
  Index vocab_size = 50257;          ///< V
  Index max_sequence_length = 1024;  ///< P, longest sequence; learned: rows of the position table
  Index num_layers = 12;             ///< L
  Index hidden_size = 768;           ///< C
  Index num_heads = 12;              ///< NH
  Index ffn_hidden_size = 3072;      ///< F
  Index num_kv_heads = 0;            ///< NKV, heads of keys and values; 0: one for each head
  Index head_dim = 0;                ///< HS; 0: C / NH
  Norm norm = Norm::layernorm;
  double norm_eps = 1e-5;
  std::string activation = "gelu";  ///< of core/ops/activation; with a gate the feed-forward has three matrices
  Positions positions = Positions::learned;
  RotaryConfig rotary = {};      ///< size 0: whole heads are rotated
  bool tied_embeddings = true;   ///< the head is the token embedding
  bool bias = true;              ///< of all linear layers
  bool qkv_bias = false;         ///< of Q, K and V, also without `bias`
  bool qk_norm = false;          ///< RMSNorm of each head of Q and K (Dehghani et al., ViT-22B, 2023)
  Index window = 0;              ///< W: a token sees the last W, itself included; 0: all before it
  Index full_layers = 0;         ///< the first layers without a window
  double embedding_dropout = 0;  ///< share of values dropped: of what enters the first block
  double attention_dropout = 0;  ///< of probabilities
  double residual_dropout = 0;   ///< of what each half of a block adds

  bool operator==(const ModelConfig&) const = default;
  Index head_size() const { return head_dim != 0 ? head_dim : num_heads == 0 ? 0 : hidden_size / num_heads; }  ///< HS
  Index kv_heads() const { return num_kv_heads == 0 ? num_heads : num_kv_heads; }
  Index q_size() const { return head_size() * num_heads; }    ///< columns of Q, and of what attention gives
  Index kv_size() const { return head_size() * kv_heads(); }  ///< columns of K (and of V)
  bool gated() const { return is_gated(activation); }
  bool has_qkv_bias() const { return bias || qkv_bias; }
  /// Ranks of a tensor axis that hold the same heads of keys and values: more than 1 where there are fewer than ranks.
  int kv_copies(int tensor) const {
    return kv_heads() > 0 && tensor > kv_heads() ? tensor / static_cast<int>(kv_heads()) : 1;
  }
  Index window_of(Index layer) const { return layer < full_layers ? 0 : window; }
  /// The sum over the layers of what `of` says of their windows.
  template <class F>
  double sum_over_windows(const F& of) const {
    const Index full = window == 0 ? num_layers : std::min(full_layers, num_layers);
    return static_cast<double>(full) * of(Index{0}) + static_cast<double>(num_layers - full) * of(window);
  }
  /// P, or 0 without a table.
  Index learned_positions() const { return positions == Positions::learned ? max_sequence_length : 0; }
  /// R, channels of a head that are rotated; 0 without rotary positions.
  Index rotary_size() const {
    return positions != Positions::rotary ? 0 : rotary.size == 0 ? head_size() : rotary.size;
  }
};

/// The same model, so that descriptions of one model compare equal: num_kv_heads and head_dim are 0 where they say what
/// 0 says. All that read or name a model give it in this spelling; kv_heads() and head_size() are numbers in any.
ModelConfig in_one_spelling(ModelConfig model);

/// Standard deviation of initial weights, before layers that end a residual branch scale theirs down.
inline constexpr double initial_weight_std = 0.02;

/// The rules that a shape breaks, each with the value got; empty when it can be built.
std::vector<BrokenRule> broken_rules(const ModelConfig& model);

/// The rule that the model's longest sequence breaks; none where it is long enough.
std::optional<BrokenRule> broken_length_rule(const ModelConfig& model, Index sequence_length);

/// What a model has that `train` cannot build yet.
struct UnsupportedPart {
  std::string words;   ///< "ALiBi"
  std::string key;     ///< of [model]: "position"
  std::string value;   ///< "\"alibi\""
  std::string wanted;  ///< values that `train` has: "\"rotary\" or \"learned\""
};
std::vector<UnsupportedPart> unsupported_parts(const ModelConfig& model);

/// Why `train` cannot build the model; empty when it can.
std::string why_not_trainable(const ModelConfig& model);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include "models/model_config.hpp"
#include "models/model_ranges.hpp"

namespace espalier {

/// Those that a config written by `train` has always had; the others are not in configs of older versions.
inline constexpr std::array<std::string_view, 6> model_size_keys{
    "vocab_size", "max_sequence_length", "num_layers", "hidden_size", "num_heads", "ffn_hidden_size"};

/// Does the key "section.key" describe the model?
inline bool is_model_key(std::string_view key) { return key.starts_with("model.") || key.starts_with("rotary."); }

/// The keys of [model] and [rotary] in a config: their places, ranges and meanings. `v` is a visitor of
/// training/config/config_visitors.hpp.
template <class Model, class Visitor>
void visit_model(Model& shape, Visitor& v) {
  v.integer("vocab_size", shape.vocab_size, ModelRange::vocabulary, "size of the vocabulary");
  v.integer("max_sequence_length", shape.max_sequence_length, ModelRange::positions,
            "longest sequence; learned positions: rows of their table");
  v.integer("num_layers", shape.num_layers, ModelRange::layers, "transformer blocks");
  v.integer("hidden_size", shape.hidden_size, ModelRange::channels, "channels of the residual stream");
  v.integer("num_heads", shape.num_heads, ModelRange::channels, "attention heads");
  v.integer("num_kv_heads", shape.num_kv_heads, or_zero(ModelRange::channels),
            "heads of keys and values (grouped-query attention); a divisor of num_heads; 0: num_heads");
  v.integer("head_dim", shape.head_dim, or_zero(ModelRange::channels),
            "channels of a head; 0: hidden_size / num_heads");
  v.integer("ffn_hidden_size", shape.ffn_hidden_size, ModelRange::ffn, "channels of the feed-forward layer");
  v.choice("activation", shape.activation, activation_names(),
           "of the feed-forward layer; swiglu and geglu have a gate");
  v.choice("norm", shape.norm, all_norms, "of the residual stream");
  v.number("norm_eps", shape.norm_eps, ModelRange::norm_eps, "added to the variance");
  v.choice("position", shape.positions, all_positions,
           "learned: a table; rotary (RoPE): see [rotary]; alibi: for plan only");
  v.boolean("tied_embeddings", shape.tied_embeddings, "the head is the token embedding");
  v.boolean("bias", shape.bias, "biases in all linear layers");
  v.boolean("qkv_bias", shape.qkv_bias, "biases in the Q, K and V projections, also if bias = false");
  v.boolean("qk_norm", shape.qk_norm, "RMSNorm of each head of Q and K");
  v.integer("window", shape.window, or_zero(ModelRange::positions),
            "sliding window: number of tokens that a token sees, with itself; 0: full attention");
  v.integer("full_layers", shape.full_layers, or_zero(ModelRange::layers),
            "number of first layers with full attention instead of the window");
  v.number("embedding_dropout", shape.embedding_dropout, ModelRange::dropout, "dropout rate of the embedding's output");
  v.number("attention_dropout", shape.attention_dropout, ModelRange::dropout,
           "dropout rate of attention's probabilities");
  v.number("residual_dropout", shape.residual_dropout, ModelRange::dropout,
           "dropout rate of the outputs of attention and feed-forward");

  v.section("rotary", "With position = \"rotary\": frequencies of rotary positions (RoPE).");
  auto& rotary = shape.rotary;
  v.integer("size", rotary.size, or_zero(ModelRange::channels), "channels of a head that are rotated; 0: all");
  v.number("theta", rotary.theta, ModelRange::rotary_theta, "base of the frequencies");
  v.choice("scaling", rotary.scaling, all_rotary_scalings, "for sequences longer than the model was trained on");
  v.number("factor", rotary.factor, ModelRange::rotary_factor,
           "with scaling: longer sequence divided by original_length");
  v.integer("original_length", rotary.original_length, or_zero(ModelRange::positions), "positions before scaling");
  v.number("low_frequency_factor", rotary.low_frequency_factor, ModelRange::rotary_bound,
           "llama3: a pair that rotates fewer times than this in original_length gets frequency / factor");
  v.number("high_frequency_factor", rotary.high_frequency_factor, ModelRange::rotary_bound,
           "llama3: pairs with more rotations keep their frequency");
  v.number("beta_slow", rotary.beta_slow, ModelRange::rotary_bound,
           "yarn: a pair that rotates fewer times than this in original_length gets frequency / factor");
  v.number("beta_fast", rotary.beta_fast, ModelRange::rotary_bound,
           "yarn: pairs with more rotations keep their frequency");
  v.boolean("truncate", rotary.truncate, "yarn: the ramp begins and ends at whole pairs");
  v.number("mscale", rotary.mscale, ModelRange::yarn_factor, "yarn: numerator of the attention factor; 0: not given");
  v.number("mscale_all_dim", rotary.mscale_all_dim, ModelRange::yarn_factor,
           "yarn: denominator of the attention factor; 0: not given");
  v.number("attention_factor", rotary.attention_factor, ModelRange::yarn_factor, "yarn; 0: from factor");
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "models/gpt_config.hpp"

namespace espalier {

/// Shape of a dense decoder that the planner prices: GPT-2 (LayerNorm, GELU, learned positions, tied head) or
/// Llama-like (grouped-query attention, gated feed-forward, RMSNorm, rotary positions, untied head). Wider than
/// GptConfig, which is what Espalier trains.
struct ModelShape {
  std::string name = "custom";
  Index num_layers = 0;           ///< L
  Index hidden_size = 0;          ///< C
  Index num_heads = 0;            ///< NH
  Index num_kv_heads = 0;         ///< NKV; equal to num_heads without grouped-query attention
  Index ffn_hidden_size = 0;      ///< F
  Index vocab_size = 0;           ///< V
  Index max_sequence_length = 0;  ///< rows of a learned position table; 0: rotary positions
  bool gated_ffn = false;         ///< SwiGLU: three matrices instead of two
  bool rms_norm = false;          ///< one vector a norm instead of two
  bool tied_embeddings = true;    ///< the head is the token table
  bool bias = true;               ///< of the linear layers
  bool dropout = false;           ///< masks are written, kept and read

  bool operator==(const ModelShape&) const = default;
  Index head_size() const { return num_heads == 0 ? 0 : hidden_size / num_heads; }  ///< HS
  Index kv_size() const { return head_size() * num_kv_heads; }                      ///< columns of K (and of V)
};

/// Elements of the weight matrices of one block: attention C (C + 2 NKV HS) + C^2, feed-forward 2 or 3 C F.
double matrix_parameters_per_layer(const ModelShape& model);

/// Elements of one block, norms and biases included.
double parameters_per_layer(const ModelShape& model);

/// Elements of token (and position) table.
double embedding_parameters(const ModelShape& model);

/// Elements behind the last block: final norm, and the head where it is not tied.
double head_parameters(const ModelShape& model);

/// All elements. For GPT: P = 12 L C^2 (1 + 13/(12 C) + (V + T)/(12 L C)) [Narayanan et al. 2021, eq. 2].
double num_parameters(const ModelShape& model);

/// Model FLOPs per token of a step, the convention that MFU is published in: 3 x (2 x matrix elements (blocks and head)
/// + 4 T C L) [Chowdhery et al. 2022, App. B; Korthikanti et al. 2022, eq. 7]; attention counted without causality.
double model_flops_per_token(const ModelShape& model, Index sequence_length);

/// Broken rules of a shape, one sentence each; empty when it can be priced.
std::vector<std::string> problems(const ModelShape& model);

/// A model that Espalier trains, as the planner sees it.
ModelShape model_shape(const GptConfig& config, const std::string& name);

/// A named shape. @throws Error (usage) with the names known and the nearest.
ModelShape model_preset(const std::string& name);
std::vector<std::string> model_preset_names();

/// The GptConfig that `train` builds for it. @throws Error (usage) with what it has that `train` has not.
GptConfig trainable_config(const ModelShape& model);

/// What a model has that `train` does not.
struct UntrainablePart {
  std::string words;   ///< "RMSNorm"
  std::string key;     ///< of [model]: "norm = \"rmsnorm\""
  std::string wanted;  ///< what `train` has instead: "norm = \"layernorm\""
};
std::vector<UntrainablePart> untrainable_parts(const ModelShape& model);

/// Why `train` cannot run the model; empty when it can.
std::string why_not_trainable(const ModelShape& model);

}  // namespace espalier

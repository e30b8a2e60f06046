// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

namespace espalier::test {

/// Config keys that make a tiny_config() a model of a family, with what it alone has. Eight tensor ranks can share
/// each.
inline const std::map<std::string, std::vector<std::string>>& families() {
  static const std::map<std::string, std::vector<std::string>> all = [] {
    const std::vector<std::string> llama = {
        "model.norm=rmsnorm",       "model.norm_eps=1e-6",        "model.activation=swiglu", "model.position=rotary",
        "rotary.theta=500",         "model.bias=false",           "model.num_heads=8",       "model.num_kv_heads=2",
        "model.ffn_hidden_size=88", "model.tied_embeddings=false"};
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), llama.begin(), llama.end());
      return more;
    };
    return std::map<std::string, std::vector<std::string>>{
        {"dropout",
         {"model.num_heads=8", "model.embedding_dropout=0.2", "model.attention_dropout=0.4",
          "model.residual_dropout=0.3"}},
        {"llama", with({"rotary.scaling=llama3", "rotary.factor=4", "rotary.original_length=8"})},
        {"mistral", with({"model.window=7"})},
        {"qwen2", with({"model.qkv_bias=true", "model.tied_embeddings=true", "model.window=5", "model.full_layers=1"})},
        {"qwen3", with({"model.qk_norm=true", "model.head_dim=6", "rotary.size=4", "model.tied_embeddings=true"})}};
  }();
  return all;
}

}  // namespace espalier::test

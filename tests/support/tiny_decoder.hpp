// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/decoder.hpp"
#include "tests/support/allclose.hpp"
#include "tests/support/reference_ops.hpp"

/// A model so small that plain loops and finite differences check all of it.
namespace espalier::test {

/// V=11, P=8, L=2, C=8, NH=2, F=20
inline ModelConfig tiny_config() { return {11, 8, 2, 8, 2, 20}; }

/// Of each family of models, with what it alone has; odd sizes.
inline std::vector<std::pair<std::string, ModelConfig>> tiny_models() {
  const ModelConfig llama{.vocab_size = 11,
                          .max_sequence_length = 8,
                          .num_layers = 2,
                          .hidden_size = 8,
                          .num_heads = 4,
                          .ffn_hidden_size = 12,
                          .num_kv_heads = 2,
                          .norm = Norm::rmsnorm,
                          .norm_eps = 1e-6,
                          .activation = "swiglu",
                          .positions = Positions::rotary,
                          .rotary = {.theta = 100},
                          .tied_embeddings = false,
                          .bias = false};
  ModelConfig mistral = llama, qwen2 = llama, qwen3 = llama, mixed = llama;
  mistral.window = 3;
  mistral.num_kv_heads = 1;
  qwen2.qkv_bias = qwen2.tied_embeddings = true;
  qwen2.window = 2;
  qwen2.full_layers = 1;
  qwen3.qk_norm = true;
  qwen3.head_dim = 6;
  qwen3.tied_embeddings = true;
  qwen3.rotary.size = 4;
  mixed.norm = Norm::layernorm;
  mixed.bias = mixed.qk_norm = true;
  mixed.positions = Positions::learned;
  mixed.head_dim = 4;  // norms of two channels would magnify rounding
  ModelConfig dropout = tiny_config();
  dropout.num_kv_heads = 1;
  dropout.embedding_dropout = 0.2;
  dropout.attention_dropout = 0.4;
  dropout.residual_dropout = 0.3;
  return {{"gpt2", tiny_config()}, {"llama", llama}, {"mistral", mistral}, {"qwen2", qwen2},
          {"qwen3", qwen3},        {"mixed", mixed}, {"dropout", dropout}};
}

/// Host tokens of one micro-batch.
struct Tokens {
  std::vector<TokenId> inputs;
  std::vector<TokenId> targets;
  TokenBatch batch(Index first_sample = 0) const { return {inputs.data(), targets.data(), first_sample}; }
  /// Rows [first, first + count) as a batch of their own.
  TokenBatch from(Index first, Index first_sample = 0) const {
    return {inputs.data() + first, targets.data() + first, first_sample};
  }
};

/// What evaluation and generation compute.
inline ModelConfig without_dropout(ModelConfig config) {
  config.embedding_dropout = config.attention_dropout = config.residual_dropout = 0;
  return config;
}

inline Tokens tiny_tokens(Index rows, const ModelConfig& config = tiny_config(), const std::string& name = "batch") {
  return {random_tokens(name + ".inputs", rows, config.vocab_size),
          random_tokens(name + ".targets", rows, config.vocab_size)};
}

/// Global elements of the declared tensors.
template <class T>
Index num_declared(const ParameterStore<T>& store) {
  Index total = 0;
  for (const Parameter& parameter : store.parameters())
    total += num_elements(parameter.spec.shape);
  return total;
}

/// A model with its parameters, initialised so that every gradient is well above rounding: all tensors random, norms
/// around 1.
template <class P>
struct TinyDecoder {
  ExecSpace exec;
  ModelConfig config;
  ParameterStore<Compute<P>> parameters;
  std::unique_ptr<Decoder<P>> model;

  TinyDecoder(Index batch, Index length, int slots, const ModelConfig& shape = tiny_config(),
              Recompute recompute = Recompute::none)
      : config(shape),
        model(std::make_unique<Decoder<P>>(parameters, config, one_chunk(config.num_layers, recompute),
                                           TensorParallel<Compute<P>>())) {
    parameters.allocate();
    for (const Parameter& parameter : parameters.parameters())
      set(parameter.spec.name, initial(parameter));
    model->plan_activations(batch, length, slots);
    reset();
  }

  static Values initial(const Parameter& parameter) {
    Values values = random_values(parameter.spec.name, parameter.size, 0.4);
    for (double& value : values)
      value += parameter.spec.init_mean;
    return rounded<float>(values);
  }

  /// Zeroes loss and gradients.
  void reset() {
    Kokkos::deep_copy(model->loss(), 0.0);
    Kokkos::deep_copy(parameters.flat_gradients(), 0);
    Kokkos::fence();
  }

  const Parameter& find(const std::string& name) const {
    for (const Parameter& parameter : parameters.parameters())
      if (parameter.spec.name == name)
        return parameter;
    throw std::logic_error("no parameter " + name);
  }
  void set(const std::string& name, const Values& values) {
    const Parameter& p = find(name);
    Kokkos::deep_copy(Kokkos::subview(parameters.flat_weights(), std::pair(p.offset, p.offset + p.size)),
                      on_device<Compute<P>>(values, p.size));
  }
  Values weight(const std::string& name) const { return part(parameters.flat_weights(), find(name)); }
  Values gradient(const std::string& name) const { return part(parameters.flat_gradients(), find(name)); }
  Values gradients() const { return on_host(parameters.flat_gradients()); }
  double loss() const { return on_host(model->loss())[0]; }

  std::map<std::string, Values> weights() const {
    std::map<std::string, Values> all;
    for (const Parameter& parameter : parameters.parameters())
      all[parameter.spec.name] = weight(parameter.spec.name);
    return all;
  }

 private:
  template <class View>
  static Values part(const View& flat, const Parameter& p) {
    const Values all = on_host(flat);
    return {all.begin() + p.offset, all.begin() + p.offset + p.size};
  }
};

namespace reference {

/// Logits (N, V) of a decoder in plain loops, of the samples from `first_sample` on, with seed 0.
inline Values decoder_logits(const std::map<std::string, Values>& w, const ModelConfig& config,
                             const std::vector<TokenId>& tokens, Index batch, Index length, Index first_sample = 0) {
  OpShape shape{batch, length, config.num_heads, config.head_size(), config.vocab_size, config.kv_heads()};
  const auto weight = [&](const std::string& name) { return w.at(name + ".weight"); };
  const auto bias = [&](const std::string& name) {  // zeros, where the layer has none
    const auto found = w.find(name + ".bias");
    const Index inputs = name.ends_with("mlp.down")         ? config.ffn_hidden_size
                         : name.ends_with("attention.proj") ? config.q_size()
                                                            : config.hidden_size;
    return found != w.end() ? found->second : Values(weight(name).size() / static_cast<std::size_t>(inputs), 0.0);
  };
  const auto norm = [&](const Values& x, const std::string& name) {
    return config.norm == Norm::rmsnorm ? rmsnorm(x, weight(name), config.norm_eps)
                                        : layernorm(x, weight(name), bias(name), config.norm_eps);
  };
  const auto apply = [&](const Values& x, const std::string& name) { return linear(x, weight(name), bias(name)); };
  // (N, Q + 2 KV) from the three parts
  const auto side_by_side = [&](const Values& q, const Values& k, const Values& v) {
    Values all;
    for (std::size_t n = 0; n < tokens.size(); ++n)
      for (const Values* const part : {&q, &k, &v}) {
        const auto width = static_cast<std::ptrdiff_t>(part->size() / tokens.size());
        const auto row = part->begin() + static_cast<std::ptrdiff_t>(n) * width;
        all.insert(all.end(), row, row + width);
      }
    return all;
  };
  const auto drop = [&](Values x, double rate, const std::string& place) {  // (N, C)
    for (std::size_t i = 0; rate > 0 && i < x.size(); ++i) {
      const Index row = static_cast<Index>(i) / config.hidden_size, column = static_cast<Index>(i) % config.hidden_size;
      x[i] *= dropout_factor(RandomStream(0, place).key(), rate, first_sample * length + row, column);
    }
    return x;
  };
  RotaryConfig rotary_config = config.rotary;
  rotary_config.size = config.rotary_size();
  const bool learned = config.positions == Positions::learned;
  const Values no_positions(static_cast<std::size_t>(length * config.hidden_size), 0.0);
  Values x = embedding(tokens, w.at("embedding.token"), learned ? w.at("embedding.position") : no_positions,
                       config.hidden_size, length);
  x = drop(x, config.embedding_dropout, "embedding");
  for (Index layer = 0; layer < config.num_layers; ++layer) {
    const std::string name = "h." + std::to_string(layer), attend = name + ".attention";
    shape.window = config.window_of(layer);
    const Values normed = norm(x, name + ".norm1");
    Values q = apply(normed, attend + ".query"), k = apply(normed, attend + ".key");
    if (config.qk_norm) {
      q = rmsnorm(q, weight(attend + ".query_norm"), config.norm_eps);
      k = rmsnorm(k, weight(attend + ".key_norm"), config.norm_eps);
    }
    Values qkv = side_by_side(q, k, apply(normed, attend + ".value"));
    if (rotary_config.size > 0) {
      const RotaryFrequencies frequencies = rotary_frequencies(rotary_config, length);
      qkv = rotary(qkv, shape.qkv_channels(), shape.heads + shape.kv_heads(), shape.head_size, frequencies.of_pairs,
                   frequencies.attention_factor, [&](Index n) { return n % length; });
    }
    ProbabilityFactor factor;
    if (config.attention_dropout > 0)
      factor = [&](Index b, Index h, Index t, Index key) {
        return dropout_factor(RandomStream(0, attend + ".probabilities").key(), config.attention_dropout,
                              ((first_sample + b) * config.num_heads + h) * length + t, key);
      };
    x = add(x, drop(apply(attention(qkv, shape, nullptr, factor), attend + ".proj"), config.residual_dropout, attend));
    const Values normed2 = norm(x, name + ".norm2");
    const Values up = apply(normed2, name + ".mlp.up");
    Values activated = up;
    if (config.gated()) {
      const Values gate = apply(normed2, name + ".mlp.gate");
      for (std::size_t i = 0; i < up.size(); ++i)
        activated[i] = up[i] * gate[i] / (1 + std::exp(-gate[i]));  // SwiGLU
    } else {
      activated = gelu(up);
    }
    x = add(x, drop(apply(activated, name + ".mlp.down"), config.residual_dropout, name + ".mlp"));
  }
  const Values zeros(static_cast<std::size_t>(config.vocab_size), 0.0);
  return linear(norm(x, "final_norm"), config.tied_embeddings ? w.at("embedding.token") : weight("head"), zeros);
}

/// Sum of the token losses.
inline double decoder_loss(const std::map<std::string, Values>& w, const ModelConfig& config, const Tokens& tokens,
                           Index batch, Index length, Index first_sample = 0) {
  double sum = 0;
  const Values logits = decoder_logits(w, config, tokens.inputs, batch, length, first_sample);  // (N, V)
  for (const double loss : cross_entropy(logits, tokens.targets))
    sum += loss;
  return sum;
}

}  // namespace reference
}  // namespace espalier::test

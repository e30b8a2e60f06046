// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/decoder.hpp"
#include "tests/support/allclose.hpp"
#include "tests/support/reference_ops.hpp"

/// A model so small that plain loops and finite differences check all of it.
namespace espalier::test {

/// V=11, P=8, L=2, C=8, NH=2, F=20
inline ModelConfig tiny_config() { return {11, 8, 2, 8, 2, 20}; }

/// Host tokens of one micro-batch.
struct Tokens {
  std::vector<TokenId> inputs;
  std::vector<TokenId> targets;
  TokenBatch batch() const { return {inputs.data(), targets.data()}; }
  /// Rows [first, first + count) as a batch of their own.
  TokenBatch from(Index first) const { return {inputs.data() + first, targets.data() + first}; }
};

inline Tokens tiny_tokens(Index rows, const ModelConfig& config = tiny_config(), const std::string& name = "batch") {
  return {random_tokens(name + ".inputs", rows, config.vocab_size),
          random_tokens(name + ".targets", rows, config.vocab_size)};
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
    parameters.zero_gradients(exec);
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

/// Logits (N, V) of a GPT-2 decoder in plain loops.
inline Values gpt_logits(const std::map<std::string, Values>& w, const ModelConfig& config,
                         const std::vector<TokenId>& tokens, Index batch, Index length) {
  const OpShape shape{batch, length, config.num_heads, config.head_size(), config.vocab_size};
  const auto norm = [&](const Values& x, const std::string& name) {
    return layernorm(x, w.at(name + ".weight"), w.at(name + ".bias"));
  };
  const auto apply = [&](const Values& x, const std::string& name) {
    return linear(x, w.at(name + ".weight"), w.at(name + ".bias"));
  };
  const auto joined = [&](const std::string& name, const std::string& what) {
    Values all;
    for (const char* const part : {".query.", ".key.", ".value."})
      all.insert(all.end(), w.at(name + part + what).begin(), w.at(name + part + what).end());
    return all;
  };
  Values x = embedding(tokens, w.at("embedding.token"), w.at("embedding.position"), config.hidden_size, length);
  for (Index layer = 0; layer < config.num_layers; ++layer) {
    const std::string name = "h." + std::to_string(layer);
    const std::string of_heads = name + ".attention";
    const Values qkv = linear(norm(x, name + ".norm1"), joined(of_heads, "weight"), joined(of_heads, "bias"));
    const Values heads = attention(qkv, shape);
    x = add(x, apply(heads, name + ".attention.proj"));
    x = add(x, apply(gelu(apply(norm(x, name + ".norm2"), name + ".mlp.up")), name + ".mlp.down"));
  }
  const Values no_bias(static_cast<std::size_t>(config.vocab_size), 0.0);
  return linear(norm(x, "final_norm"), w.at("embedding.token"), no_bias);
}

/// Sum of the token losses.
inline double gpt_loss(const std::map<std::string, Values>& w, const ModelConfig& config, const Tokens& tokens,
                       Index batch, Index length) {
  double sum = 0;
  for (const double loss : cross_entropy(gpt_logits(w, config, tokens.inputs, batch, length), tokens.targets))
    sum += loss;
  return sum;
}

}  // namespace reference
}  // namespace espalier::test

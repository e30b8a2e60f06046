// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "models/cost.hpp"
#include "models/decoder.hpp"
#include "tests/support/gradient_check.hpp"
#include "tests/support/tiny_decoder.hpp"

using namespace espalier;
using namespace espalier::test;

namespace decoder_tests {
namespace {

constexpr Index batch = 2, length = 5, rows = batch * length;

Tokens tokens_with_ignored() {
  Tokens tokens = tiny_tokens(rows);
  tokens.targets[2] = -1;
  tokens.targets[9] = -100;
  return tokens;
}

template <class P>
void compare_loss(double tolerance_of_loss, const ModelConfig& config) {
  const Tokens tokens = tokens_with_ignored();
  TinyDecoder<P> tiny(batch, length, 1, config);
  const double wanted = reference::decoder_loss(tiny.weights(), tiny.config, tokens, batch, length) / 8;
  tiny.model->forward(tiny.exec, 0, tokens.batch(), 1.0 / 8);
  EXPECT_NEAR(tiny.loss(), wanted, tolerance_of_loss * wanted);
  tiny.model->forward(tiny.exec, 0, tokens.batch(), 1.0 / 8);
  EXPECT_NEAR(tiny.loss(), 2 * wanted, 2 * tolerance_of_loss * wanted) << "losses are added";
  tiny.reset();
  const double evaluated = reference::decoder_loss(tiny.weights(), without_dropout(config), tokens, batch, length) / 8;
  tiny.model->evaluate(tiny.exec, 0, tokens.batch(), 1.0 / 8);
  EXPECT_NEAR(tiny.loss(), evaluated, tolerance_of_loss * evaluated) << "evaluate";
}

TEST(Decoder, loss_is_that_of_plain_loops) {
  for (const auto& [name, config] : tiny_models()) {
    SCOPED_TRACE(name);
    compare_loss<Fp32>(1e-6, config);
    compare_loss<Fp64>(1e-13, config);
  }
}

// One check where tokens enter, whoever brings them.
TEST(Decoder, tokens_beyond_the_vocabulary_are_refused) {
  TinyDecoder<Fp32> tiny(batch, length, 1);
  const auto expect_refused = [&](const auto& action) {
    try {
      action();
      ADD_FAILURE() << "a token beyond the table was used";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_NE(std::string(error.what()).find("beyond the model's vocabulary"), std::string::npos) << error.what();
    }
  };
  for (const TokenId wrong : {static_cast<TokenId>(tiny.config.vocab_size), std::numeric_limits<TokenId>::max()}) {
    Tokens inputs = tokens_with_ignored(), targets = tokens_with_ignored();
    inputs.inputs[3] = wrong;
    targets.targets[3] = wrong;
    for (const Tokens& tokens : {inputs, targets}) {
      expect_refused([&] { tiny.model->forward(tiny.exec, 0, tokens.batch(), 1.0 / 8); });
      expect_refused([&] { tiny.model->evaluate(tiny.exec, 0, tokens.batch(), 1.0 / 8); });
    }
  }
  Tokens negative = tokens_with_ignored();
  negative.inputs[3] = -1;
  expect_refused([&] { tiny.model->forward(tiny.exec, 0, negative.batch(), 1.0 / 8); });
  TinyDecoder<Fp32> one(1, length, 1);
  expect_refused([&] { one.model->evaluate(one.exec, {1, 2, static_cast<TokenId>(one.config.vocab_size)}); });
}

template <class P>
void compare_overwritten_gradients(const ModelConfig& config) {
  const Tokens first = tokens_with_ignored(), second = tiny_tokens(rows, tiny_config(), "second");
  TinyDecoder<P> tiny(batch, length, 1, config);
  tiny.model->use_graphs(true);  // recorded in the second step, played in the third
  tiny.model->plan_activations(batch, length, 1);
  const auto add = [&](const Tokens& tokens) {
    tiny.model->forward(tiny.exec, 0, tokens.batch(), 1.0 / 8);
    tiny.model->backward(tiny.exec, 0);
  };
  const auto gradients = [&] {
    std::map<std::string, Values> all;
    for (const Parameter& parameter : tiny.parameters.parameters())
      all[parameter.spec.name] = tiny.gradient(parameter.spec.name);
    return all;
  };
  add(first);
  add(second);
  const std::map<std::string, Values> wanted = gradients();
  for (int step = 0; step < 4; ++step) {
    Kokkos::deep_copy(tiny.parameters.flat_gradients(), State<Compute<P>>(NAN));
    tiny.model->begin_gradients(tiny.exec);
    add(first);
    add(second);
    for (const auto& [name, values] : gradients())
      EXPECT_TRUE(allclose(values, wanted.at(name), 1e-5)) << name << " in " << to_string(scalar_type_of<Compute<P>>());
  }
}

TEST(Decoder, the_first_micro_batch_of_a_step_overwrites_gradients) {
  for (const auto& [name, config] : tiny_models()) {
    SCOPED_TRACE(name);
    compare_overwritten_gradients<Fp64>(config);
    compare_overwritten_gradients<Fp32>(config);
    compare_overwritten_gradients<Bf16>(config);
    compare_overwritten_gradients<Bf16WithFp32Residual>(config);
  }
}

// It adds the same to all scores of a query, which softmax does not see: its gradient is zero, up to rounding.
bool is_key_bias(const std::string& name) { return name.ends_with("attention.key.bias"); }

double largest(const Values& values) {
  double most = 0;
  for (const double value : values)
    most = std::max(most, std::abs(value));
  return most;
}

void compare_with_finite_differences(const ModelConfig& config, std::size_t num_tensors) {
  const Tokens tokens = tokens_with_ignored();
  TinyDecoder<Fp64> tiny(batch, length, 1, config);
  tiny.model->forward(tiny.exec, 0, tokens.batch(), 1.0 / 8);
  tiny.model->backward(tiny.exec, 0);
  std::map<std::string, Values> weights = tiny.weights();
  EXPECT_EQ(weights.size(), num_tensors);
  for (const auto& [name, values] : tiny.weights()) {
    SCOPED_TRACE(name);
    if (is_key_bias(name) && config.positions == Positions::learned && !config.qk_norm) {
      EXPECT_LT(largest(tiny.gradient(name)), 1e-16);
      continue;
    }
    const Values before = values;
    EXPECT_TRUE(gradient_check(
        [&, &parameter = name](const Values& point) {
          weights[parameter] = point;
          return reference::decoder_loss(weights, tiny.config, tokens, batch, length) / 8;
        },
        before, tiny.gradient(name), 12, 2e-8));
    weights[name] = before;
  }
}

TEST(Decoder, gradient_of_every_parameter_is_that_of_finite_differences) {
  const std::map<std::string, std::size_t> num_tensors = {
      {"gpt2", 2 + 2 * 16 + 2},  {"llama", 1 + 2 * 9 + 2},  {"mistral", 1 + 2 * 9 + 2}, {"qwen2", 1 + 2 * 12 + 1},
      {"qwen3", 1 + 2 * 11 + 1}, {"mixed", 2 + 2 * 20 + 3}, {"dropout", 2 + 2 * 16 + 2}};
  for (const auto& [name, config] : tiny_models()) {
    SCOPED_TRACE(name);
    compare_with_finite_differences(config, num_tensors.at(name));
  }
}

TEST(Decoder, num_parameters_counts_what_the_layers_declare) {
  for (const auto& [name, config] : tiny_models())
    EXPECT_EQ(num_parameters(config), num_declared(TinyDecoder<Fp32>(1, 2, 1, config).parameters)) << name;
}

TEST(Decoder, fp32_gradients_are_those_of_fp64) {
  const Tokens tokens = tokens_with_ignored();
  for (const auto& [model, config] : tiny_models()) {
    TinyDecoder<Fp32> single(batch, length, 1, config);
    TinyDecoder<Fp64> twice(batch, length, 1, config);
    single.model->forward(single.exec, 0, tokens.batch(), 1.0 / 8);
    single.model->backward(single.exec, 0);
    twice.model->forward(twice.exec, 0, tokens.batch(), 1.0 / 8);
    twice.model->backward(twice.exec, 0);
    for (const Parameter& parameter : twice.parameters.parameters()) {
      const std::string& name = parameter.spec.name;
      if (largest(twice.gradient(name)) < 1e-12)  // of a bias of all keys, which softmax does not see
        EXPECT_LT(largest(single.gradient(name)), 1e-8) << model << ": " << name;
      else
        EXPECT_TRUE(allclose(single.gradient(name), twice.gradient(name), 1e-5)) << model << ": " << name;
    }
  }
}

// Two micro-batches through two slots in every order that a pipeline may choose. The token embedding, whose gradient
// grows in forward (head) and in backward (embedding), rounds by the order of both; all others by that of the
// backwards.
template <class P>
void compare_orders(double tolerance_of_gradients) {
  const Tokens first = tiny_tokens(rows, tiny_config(), "first"), second = tiny_tokens(rows, tiny_config(), "second");
  TinyDecoder<P> tiny(batch, length, 2);
  Decoder<P>& model = *tiny.model;
  const auto forward = [&](int slot, const Tokens& tokens) { model.forward(tiny.exec, slot, tokens.batch(), 0.05); };
  const auto backward = [&](int slot) { model.backward(tiny.exec, slot); };
  forward(0, first), backward(0), forward(0, second), backward(0);
  const auto without_table = [&] {
    Values gradients = tiny.gradients();
    const Parameter& table = tiny.find("embedding.token");
    std::fill_n(gradients.begin() + table.offset, table.size, 0.0);
    return gradients;
  };
  const Values one_after_the_other = tiny.gradients();
  const Values others = without_table();
  const double loss = tiny.loss();
  tiny.reset();
  forward(0, first), forward(1, second), backward(0), backward(1);
  EXPECT_TRUE(allclose(without_table(), others, 0)) << "the same order: the same bits";
  EXPECT_TRUE(allclose(tiny.gradients(), one_after_the_other, tolerance_of_gradients));
  const Values both_first = tiny.gradients();
  EXPECT_EQ(tiny.loss(), loss);
  tiny.reset();
  forward(0, first), forward(1, second), backward(1), backward(0);
  EXPECT_TRUE(allclose(tiny.gradients(), one_after_the_other, tolerance_of_gradients));
  tiny.reset();
  forward(1, first), forward(0, second), backward(1), backward(0);
  EXPECT_TRUE(allclose(tiny.gradients(), both_first, 0)) << "slots are alike";
}

TEST(Decoder, two_forwards_may_precede_their_backwards) {
  compare_orders<Fp32>(1e-5);
  compare_orders<Fp64>(1e-13);
}

TEST(Decoder, accumulated_gradients_are_those_of_one_larger_batch) {
  const Tokens tokens = tokens_with_ignored();
  for (const auto& [name, config] : tiny_models()) {
    SCOPED_TRACE(name);
    TinyDecoder<Fp64> whole(batch, length, 1, config);
    whole.model->forward(whole.exec, 0, tokens.batch(7), 1.0 / 8);
    whole.model->backward(whole.exec, 0);
    TinyDecoder<Fp64> parts(1, length, 1, config);
    for (Index b = 0; b < batch; ++b) {
      parts.model->forward(parts.exec, 0, tokens.from(b * length, 7 + b), 1.0 / 8);
      parts.model->backward(parts.exec, 0);
    }
    EXPECT_NEAR(parts.loss(), whole.loss(), 1e-13);
    EXPECT_TRUE(allclose(parts.gradients(), whole.gradients(), 1e-13));
  }
}

TEST(Decoder, dropout_depends_on_samples_and_seed) {
  const ModelConfig config = tiny_models().back().second;
  const Tokens tokens = tokens_with_ignored();
  TinyDecoder<Fp64> tiny(batch, length, 1, config);
  const auto loss = [&](Index first_sample) {
    tiny.reset();
    tiny.model->forward(tiny.exec, 0, tokens.batch(first_sample), 1.0 / 8);
    return tiny.loss();
  };
  const double first = loss(3);
  EXPECT_NEAR(first, reference::decoder_loss(tiny.weights(), config, tokens, batch, length, 3) / 8, 1e-12);
  EXPECT_NE(loss(4), first);
  EXPECT_EQ(loss(3), first);
  tiny.model->set_dropout_seed(1);
  EXPECT_NE(loss(3), first);
}

TEST(Decoder, a_batch_of_ignored_targets_has_no_loss_and_no_gradient) {
  Tokens tokens = tiny_tokens(rows);
  tokens.targets.assign(tokens.targets.size(), -1);
  TinyDecoder<Fp32> tiny(batch, length, 1);
  tiny.model->forward(tiny.exec, 0, tokens.batch(), 0.1);
  tiny.model->backward(tiny.exec, 0);
  EXPECT_EQ(tiny.loss(), 0);
  EXPECT_TRUE(allclose(tiny.gradients(), Values(tiny.gradients().size(), 0.0), 0));
}

TEST(Decoder, repeats_its_bits) {
  const Tokens tokens = tokens_with_ignored();
  TinyDecoder<Fp32> tiny(batch, length, 1);
  std::uint64_t bits = 0;
  for (int repetition = 0; repetition < 4; ++repetition) {
    tiny.reset();
    tiny.model->forward(tiny.exec, 0, tokens.batch(), 1.0 / 8);
    tiny.model->backward(tiny.exec, 0);
    if (repetition == 0)
      bits = fingerprint(tiny.parameters.flat_gradients());
    EXPECT_EQ(fingerprint(tiny.parameters.flat_gradients()), bits);
  }
}

Values logits(TinyDecoder<Fp32>& tiny, const std::vector<TokenId>& tokens) {
  tiny.model->evaluate(tiny.exec, tokens);
  const Matrix<float> window = tiny.model->evaluated_logits(tiny.exec, 0, static_cast<Index>(tokens.size()));
  EXPECT_EQ(window.rows, static_cast<Index>(tokens.size()));
  EXPECT_EQ(window.cols, tiny.config.vocab_size);
  const Tensor<float, 2> all(window.data, window.rows, window.stride);
  const Values padded = on_host(all);
  Values values;
  for (Index i = 0; i < window.rows; ++i)
    values.insert(values.end(), padded.begin() + i * window.stride, padded.begin() + i * window.stride + window.cols);
  return values;
}

void expect_logits_of_plain_loops(const ModelConfig& config) {
  TinyDecoder<Fp32> tiny(1, 8, 1, config);
  std::vector<TokenId> tokens = tiny_tokens(8).inputs;
  const Values all = logits(tiny, tokens);
  EXPECT_TRUE(
      allclose(all, reference::decoder_logits(tiny.weights(), without_dropout(config), tokens, 1, 8), 1e-5, {8, 11}));
  for (std::size_t t = 1; t < 8; ++t) {
    const Values of_prefix = logits(tiny, {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(t)});
    EXPECT_TRUE(allclose(of_prefix, {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(t * 11)}, 1e-6,
                         {static_cast<Index>(t), 11}))
        << "matmuls of fewer rows round otherwise";
    std::vector<TokenId> changed = tokens;
    changed[t] = (tokens[t] + 1) % 11;
    const Values after = logits(tiny, changed);
    EXPECT_TRUE(std::equal(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(t * 11), after.begin()));
    EXPECT_FALSE(std::equal(all.begin() + static_cast<std::ptrdiff_t>(t * 11), all.end(),
                            after.begin() + static_cast<std::ptrdiff_t>(t * 11)));
  }
}

TEST(Decoder, logits_are_those_of_plain_loops_and_see_no_later_token) {
  for (const auto& [name, config] : tiny_models()) {
    SCOPED_TRACE(name);
    expect_logits_of_plain_loops(config);
  }
}

TEST(Decoder, tells_when_the_gradients_of_a_block_are_final) {
  TinyDecoder<Fp64> tiny(batch, length, 1);
  tiny.model->forward(tiny.exec, 0, tiny_tokens(rows).batch(), 0.1);
  std::vector<int> order;
  std::map<int, Values> when_told;
  const auto of_block = [&](int block) {
    Values gradients;
    for (const Parameter& parameter : tiny.parameters.parameters())
      if (parameter.spec.block == block) {
        const Values part = tiny.gradient(parameter.spec.name);
        gradients.insert(gradients.end(), part.begin(), part.end());
      }
    return gradients;
  };
  tiny.model->backward(tiny.exec, 0, [&](int block) {
    order.push_back(block);
    when_told[block] = of_block(block);
  });
  constexpr int half = half_done;
  EXPECT_EQ(order, (std::vector<int>{half, 3, half, 2, half, 1, 0}));
  EXPECT_EQ(tiny.model->layers(0).num_positions(), 4);
  for (const int block : order)
    EXPECT_TRUE(allclose(when_told[block], of_block(block), 0)) << "block " << block;
}

}  // namespace

}  // namespace decoder_tests

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <set>

#include "tests/support/tiny_decoder.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

struct Spread {
  double mean, deviation;
};
Spread spread(const Values& values) {
  double mean = 0, square = 0;
  for (const double value : values)
    mean += value / static_cast<double>(values.size());
  for (const double value : values)
    square += (value - mean) * (value - mean) / static_cast<double>(values.size());
  return {mean, std::sqrt(square)};
}

// GPT-2: normal of 0.02, the layers that write to the residual stream smaller by sqrt(2 L), norms 1, biases 0.
TEST(Init, is_that_of_gpt2) {
  const ModelConfig config{200, 64, 3, 48, 4, 192};
  TinyDecoder<Fp32> tiny(1, 1, 1, config);
  tiny.parameters.initialize(tiny.exec, 42);
  std::set<std::string> names;
  for (const Parameter& parameter : tiny.parameters.parameters()) {
    const std::string& name = parameter.spec.name;
    SCOPED_TRACE(name);
    EXPECT_TRUE(names.insert(name).second) << "the name is taken twice";
    const Values weight = tiny.weight(name);
    const bool matrix = parameter.spec.shape.size() > 1 && !name.ends_with(".bias");
    EXPECT_EQ(parameter.spec.weight_decay, matrix) << "decay acts on matrices and embeddings alone";
    if (!matrix) {
      EXPECT_TRUE(allclose(
          weight,
          Values(weight.size(), name.ends_with("norm.weight") || name.find("norm1.weight") != std::string::npos ||
                                        name.find("norm2.weight") != std::string::npos
                                    ? 1.0
                                    : 0.0),
          0));
      continue;
    }
    const bool residual = name.ends_with("proj.weight") || name.ends_with("down.weight");
    const double wanted = residual ? 0.02 / std::sqrt(6.0) : 0.02;
    const Spread actual = spread(weight);
    const double error = wanted / std::sqrt(static_cast<double>(weight.size()));
    EXPECT_NEAR(actual.mean, 0, 5 * error);
    EXPECT_NEAR(actual.deviation, wanted, 5 * error);
  }
}

TEST(Init, differs_by_seed_and_repeats) {
  TinyDecoder<Fp32> tiny(1, 1, 1);
  tiny.parameters.initialize(tiny.exec, 1);
  const std::uint64_t first = fingerprint(tiny.parameters.flat_weights());
  tiny.parameters.initialize(tiny.exec, 2);
  EXPECT_NE(fingerprint(tiny.parameters.flat_weights()), first);
  tiny.parameters.initialize(tiny.exec, 1);
  EXPECT_EQ(fingerprint(tiny.parameters.flat_weights()), first);
}

TEST(Init, starts_at_the_loss_of_a_uniform_guess) {
  const ModelConfig config{200, 64, 2, 48, 4, 192};
  TinyDecoder<Fp32> tiny(2, 32, 1, config);
  tiny.parameters.initialize(tiny.exec, 42);
  tiny.model->forward(tiny.exec, 0, tiny_tokens(64, config).batch(), 1.0 / 64);
  EXPECT_NEAR(tiny.loss(), std::log(200.0), 0.05);
}

}  // namespace

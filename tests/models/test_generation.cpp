// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Sequences that grow in a cache have the logits that they have as a whole.
#include "models/decoder.hpp"
#include "tests/support/tiny_decoder.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

constexpr int num_sequences = 3;

// Three texts of eight tokens, by sequence.
std::vector<std::vector<TokenId>> texts_of(const ModelConfig& config) {
  std::vector<std::vector<TokenId>> texts;
  for (int i = 0; i < num_sequences; ++i)
    texts.emplace_back(random_tokens("text" + std::to_string(i), 8, config.vocab_size));
  return texts;
}

// Takes the tokens in. @returns their logits (count, V)
template <class P>
Values decode(const TinyDecoder<P>& tiny, const std::vector<SequenceToken>& tokens, Index count) {
  const Matrix<Compute<P>> logits = tiny.model->decode(tiny.exec, tokens, count);
  const Values padded = on_host(Tensor<Compute<P>, 2>(logits.data, logits.rows, logits.stride));
  Values values;
  for (Index row = 0; row < logits.rows; ++row)
    values.insert(values.end(), padded.begin() + row * logits.stride,
                  padded.begin() + row * logits.stride + logits.cols);
  return values;
}

template <class P>
void expect_logits(const std::string& name, const ModelConfig& config, double tolerance_of_logits) {
  SCOPED_TRACE(name);
  const auto texts = texts_of(config);
  TinyDecoder<P> tiny(1, 8, 1, config);
  std::vector<Values> wanted;  // (8, V) of each
  for (const auto& text : texts)
    wanted.push_back(reference::decoder_logits(tiny.weights(), without_dropout(config), text, 1, 8));
  tiny.model->plan_cache({.sequences = num_sequences, .length = 8, .rows = 8});
  const auto expect_rows = [&](const std::vector<SequenceToken>& tokens, Index count) {
    const Values got = decode(tiny, tokens, count);
    Values rows;
    for (const SequenceToken& token : std::span(tokens).last(static_cast<std::size_t>(count))) {
      const auto row = wanted[static_cast<std::size_t>(token.sequence)].begin() + token.position * config.vocab_size;
      rows.insert(rows.end(), row, row + config.vocab_size);
    }
    EXPECT_TRUE(allclose(got, rows, tolerance_of_logits, {count, config.vocab_size}));
    if (!exec_is_host)
      return;
    const Values alone = decode(tiny, {tokens.back()}, 1);
    EXPECT_TRUE(std::equal(alone.begin(), alone.end(), got.end() - config.vocab_size)) << "not the bits of one alone";
  };
  const auto token = [&](int sequence, int position) {
    return SequenceToken{texts[static_cast<std::size_t>(sequence)][static_cast<std::size_t>(position)], sequence,
                         position};
  };
  for (int round = 0; round < 2; ++round) {  // the second overwrites the first
    const std::vector<int> prompts = round == 0 ? std::vector{5, 1, 3} : std::vector{2, 4, 1};
    for (int i = 0; i < num_sequences; ++i) {
      std::vector<SequenceToken> prompt;
      for (int t = 0; t < prompts[static_cast<std::size_t>(i)]; ++t)
        prompt.push_back(token(i, t));
      expect_rows(prompt, i == 0 ? std::ssize(prompt) : 1);
    }
    for (int step = 0; step < 8; ++step) {
      std::vector<SequenceToken> grown;
      for (const int i : {1, 2, 0})
        if (const int t = prompts[static_cast<std::size_t>(i)] + step; t < 8)
          grown.push_back(token(i, t));
      if (!grown.empty())
        expect_rows(grown, std::ssize(grown));
    }
  }
}

TEST(Generation, SequencesThatGrowTogetherHaveTheLogitsOfEachAsAWhole) {
  for (const auto& [name, config] : tiny_models()) {
    expect_logits<Fp32>(name, config, 1e-5);
    expect_logits<Fp64>(name, config, 1e-12);
  }
}

// Every precision has the memory that its layers want.
TEST(Generation, SixteenBitsAreNear) {
  for (const auto& [name, config] : tiny_models()) {
    SCOPED_TRACE(name);
    const auto last_logits = [&, &config = config]<class P>() {
      TinyDecoder<P> tiny(1, 8, 1, config);
      tiny.model->plan_cache({.sequences = 1, .length = 8, .rows = 8});
      std::vector<SequenceToken> tokens;
      for (int t = 0; t < 8; ++t)
        tokens.push_back({texts_of(config)[0][static_cast<std::size_t>(t)], 0, t});
      return decode(tiny, tokens, 1);
    };
    const Values wanted = last_logits.template operator()<Fp32>();
    EXPECT_TRUE(allclose(last_logits.template operator()<Bf16WithFp32Residual>(), wanted, 0.1));
    EXPECT_TRUE(allclose(last_logits.template operator()<Bf16>(), wanted, 0.2));
  }
}

// Frequencies that depend on the length are those of the model's longest one, whatever there is room for.
TEST(Generation, RoomForFewerPositionsChangesNothing) {
  for (auto [name, config] : tiny_models()) {
    SCOPED_TRACE(name);
    if (config.positions == Positions::rotary && config.head_dim == 0)
      config.head_dim = 4;
    if (config.positions == Positions::rotary)
      config.rotary =
          RotaryConfig{.size = 4, .theta = 100, .scaling = RotaryScaling::dynamic, .factor = 2, .original_length = 4};
    std::vector<Values> rows;
    for (const Index length : {8, 3}) {
      TinyDecoder<Fp32> tiny(1, 8, 1, config);
      tiny.model->plan_cache({.sequences = 1, .length = length, .rows = 3});
      rows.push_back(decode(tiny, {{1, 0, 0}, {7, 0, 1}, {4, 0, 2}}, 3));
    }
    EXPECT_EQ(rows[0], rows[1]);
  }
}

}  // namespace

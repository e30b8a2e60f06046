// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A loaded model goes on with texts: together as alone, and on tensor ranks as on one.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/memory_ledger.hpp"
#include "tests/support/allclose.hpp"
#include "tests/training/families.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/checkpoint/training_state.hpp"
#include "training/pretrained/loaded_model.hpp"

namespace espalier::test {
namespace {

using Texts = std::vector<std::vector<TokenId>>;
using Logits = std::vector<std::vector<float>>;

// Prompts of 1, 3 and 9 tokens, one that is longer than what is taken in at a time, and more than go on together.
Texts prompts(Index vocab_size) {
  std::vector<Index> lengths = {1, 3, 9, 70};
  lengths.resize(20, 2);
  Texts texts;
  for (const Index length : lengths) {
    std::vector<TokenId> tokens;
    for (Index i = 0; i < length; ++i)
      tokens.push_back(static_cast<TokenId>((i * i + 5 * length + 3 * std::ssize(texts)) % vocab_size));
    texts.push_back(tokens);
  }
  return texts;
}

class Generation : public ::testing::Test {
 protected:
  // The checkpoint of a model that has learned a little; one for all ranks.
  Path train(const std::string& family, const std::vector<std::string>& keys) {
    const Communicator alone = world().split(world().rank(), 0, "alone");
    const RunConfig config = [&] {
      std::vector<std::string> overrides = {"model.num_heads=8", "model.max_sequence_length=80",
                                            "batch.sequence_length=24",
                                            fmt::format("run.directory=\"{}\"", (folder_ / family).string())};
      overrides.insert(overrides.end(), keys.begin(), keys.end());
      return tiny_config(folder_, 1, overrides);
    }();
    if (world().rank() == 0) {
      TrainerOn<Fp32> on(config, alone);
      for (int step = 0; step < 10; ++step)
        on.trainer.step();
      save_training_state(folder_ / family, on.trainer, config, on.mesh, "run", ownership_of(on.trainer));
    }
    barrier(world());
    return folder_ / family / "step-00000010";
  }

  // Greedy: the tokens, and the logits (V) of every step.
  static std::pair<Texts, Logits> grow(LoadedModel<Fp32>& model, Texts texts) {
    model.allocate_cache(std::ssize(texts), 76);
    Logits all;
    for (int step = 0; step < 6; ++step) {
      std::vector<TextSoFar> growing;
      for (std::size_t i = texts.size(); i-- > 0;)
        if (step < 3 || i != 1)  // one ends early
          growing.push_back({static_cast<int>(i), texts[i]});
      const Logits logits = model.next_logits(growing);
      for (std::size_t i = 0; i < growing.size(); ++i) {
        texts[static_cast<std::size_t>(growing[i].sequence)].push_back(
            static_cast<TokenId>(std::ranges::max_element(logits[i]) - logits[i].begin()));
        all.push_back(logits[i]);
      }
    }
    return {texts, all};
  }

  void expect_equal_texts(const std::string& family, const std::vector<std::string>& keys) {
    SCOPED_TRACE(family);
    const CheckpointReader checkpoint(train(family, keys));
    LoadedModel<Fp32> whole(checkpoint, 0);
    const auto [texts, logits] = grow(whole, prompts(61));
    const ProcessMesh mesh(world(), {.degrees = PerAxis::degrees(world().size(), 1, 1)});
    LoadedModel<Fp32> shared(checkpoint, 0, &mesh.tp());
    const auto [shared_texts, shared_logits] = grow(shared, prompts(61));
    EXPECT_EQ(shared_texts, texts) << world().size() << " ranks";
    ASSERT_EQ(shared_logits.size(), logits.size());
    for (std::size_t i = 0; i < logits.size(); ++i) {
      ASSERT_EQ(logits[i].size(), 61U);
      EXPECT_TRUE(allclose(Values(shared_logits[i].begin(), shared_logits[i].end()),
                           Values(logits[i].begin(), logits[i].end()), 1e-4))
          << "logits " << i;
    }
    for (std::size_t i = 0; exec_is_host && i < texts.size(); ++i) {
      const auto [alone, alone_logits] = grow(shared, {prompts(61)[i]});
      for (std::size_t t = 0; t < std::min(alone[0].size(), texts[i].size()); ++t)
        EXPECT_EQ(alone[0][t], texts[i][t]) << "text " << i << " alone, token " << t;
      const std::size_t steps = i == 1 ? 3 : alone_logits.size();
      for (std::size_t step = 0; step < steps; ++step)
        EXPECT_EQ(std::ranges::count(shared_logits, alone_logits[step]), 1)
            << "its bits are others alone, text " << i << ", step " << step;
    }
  }

  const SharedFolder folder_{"generation"};
};

TEST_F(Generation, BatchesAndTensorRanksGiveTheTextsOfOneRank) {
  expect_equal_texts("gpt2", {});
  for (const auto& [family, keys] : families())
    expect_equal_texts(family, keys);
}

// What a text finds in its place of the cache changes nothing.
TEST_F(Generation, ATextHasItsBitsAlsoAfterOneThatItBeginsWith) {
  if constexpr (!exec_is_host)
    GTEST_SKIP() << "GPUs promise nothing of the kind";
  const CheckpointReader checkpoint(train("nested", {}));
  const std::vector<TokenId> text = prompts(61)[3];
  const auto logits_after = [&](std::size_t shorter) {
    LoadedModel<Fp32> model(checkpoint, 0);
    model.allocate_cache(1, 76);
    if (shorter > 0) {
      model.next_logits({{0, std::span(text).first(shorter)}});
      model.forget(0);
    }
    return model.next_logits({{0, text}});
  };
  for (const std::size_t shorter : {1, 20, 45, 69})
    EXPECT_EQ(logits_after(shorter), logits_after(0)) << shorter;
}

TEST_F(Generation, TooFewHeadsAreRefused) {
  const CheckpointReader checkpoint(train("heads", {"model.num_heads=1"}));
  const ProcessMesh mesh(world(), {.degrees = PerAxis::degrees(world().size(), 1, 1)});
  try {
    LoadedModel<Fp32>(checkpoint, 0, &mesh.tp());
    EXPECT_EQ(world().size(), 1);
  } catch (const Error& error) {
    EXPECT_GT(world().size(), 1);
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_EQ(error.report().wanted, "1 ranks");
  }
}

TEST_F(Generation, AsManyAsMemoryHasRoomFor) {
  const CheckpointReader checkpoint(train("memory", {}));
  const auto weights_so_far = [] { return MemoryLedger::instance().current()[Category::weights]; };
  const std::size_t before = weights_so_far();
  LoadedModel<Fp32> model(checkpoint, 0);
  const std::size_t weights = weights_so_far() - before;
  EXPECT_EQ(model.sequences_that_fit(7, 40), 7) << "unknown memory";
  for (const Index count : {1, 2, 5}) {
    const std::size_t need =
        weights + static_cast<std::size_t>(model.decoder().cache_bytes({.sequences = count, .length = 40, .rows = 40}));
    LoadedModel<Fp32> tight(checkpoint, need);
    EXPECT_EQ(tight.sequences_that_fit(7, 40), count);
    EXPECT_NO_THROW(tight.allocate_cache(count, 40));
    EXPECT_THROW(tight.allocate_cache(count + 1, 40), Error);
    EXPECT_EQ(LoadedModel<Fp32>(checkpoint, need - 1).sequences_that_fit(7, 40), count - 1);
  }
}

}  // namespace
}  // namespace espalier::test

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// A model that is loaded to run forward computes what the trainer does that has saved it.
#include <gtest/gtest.h>

#include "core/memory_ledger.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/checkpoint/training_state.hpp"
#include "training/config/stored_config.hpp"
#include "training/loop/evaluation.hpp"

namespace espalier::test {
namespace {

class Evaluation : public ::testing::Test {
 protected:
  static bool go_on(Index, Index) { return false; }

  RunConfig config(const std::vector<std::string>& more) {
    std::vector<std::string> overrides = {"data.validation=[\"" + validation_ + "\"]"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return tiny_config(folder_, world().size(), overrides);
  }

  // Trains three steps and saves them.
  template <class P>
  Path train(TrainerOn<P>& on, const RunConfig& config) {
    for (int step = 0; step < 3; ++step)
      on.trainer.step();
    return save_training_state(folder_ / "checkpoints", on.trainer, config, on.mesh, "run", ownership_of(on.trainer));
  }

  // A token of the first sequence.
  TokenId document_end() const {
    std::vector<TokenId> token(1);
    TokenFile(Path(validation_)).read(5, token);
    return token.front();
  }

  SequentialLoader loader(Index micro_batch, Index length, Index most = 0, bool separate_documents = false) const {
    std::vector<TokenFile> files;
    files.emplace_back(Path(validation_));
    LoaderOptions options{.micro_batch_size = micro_batch,
                          .sequence_length = length,
                          .rank = world().rank(),
                          .size = world().size(),
                          .vocab_size = 61,
                          .separate_documents = separate_documents};
    if (separate_documents)
      options.document_end = document_end();
    return SequentialLoader(std::move(files), options, most);
  }

  template <class P>
  void expect_loss_of_the_trainer(const std::vector<std::string>& more, double tolerance) {
    const RunConfig config = this->config(more);
    TrainerOn<P> on(config, world());
    const CheckpointReader checkpoint(train(on, config));
    const double wanted = on.trainer.evaluate().value();
    LoadedModel<P> model(checkpoint, 0);
    for (const Index micro_batch : {1, 3, 8}) {
      model.allocate_activations(micro_batch, config.sequence_length);
      const std::optional<MeanLoss> mean =
          evaluate_loss(model, EvaluationData::of(loader(micro_batch, config.sequence_length)), world(), go_on);
      EXPECT_NEAR(mean.value().loss, wanted, tolerance * wanted) << "micro-batches of " << micro_batch;
    }
  }

  const SharedFolder folder_{"evaluation"};
  const std::string validation_ = write_tokens(folder_ / "validation.bin", 700, 61);
};

TEST_F(Evaluation, HasTheLossOfTheTrainer) {
  expect_loss_of_the_trainer<Fp64>({"precision.compute=fp64"}, 1e-13);
  expect_loss_of_the_trainer<Fp32>({}, 1e-6);
  expect_loss_of_the_trainer<Bf16>({"precision.compute=bf16"}, 1e-6);
  expect_loss_of_the_trainer<Bf16WithFp32Residual>({"precision.compute=bf16", "precision.residual=state"}, 1e-6);
}

// The checkpoint says how its run took documents.
TEST_F(Evaluation, SeparatesDocumentsAsTheRunDid) {
  const RunConfig config = this->config(
      {"precision.compute=fp64", "data.documents=separate", fmt::format("data.document_end={}", document_end())});
  TrainerOn<Fp64> on(config, world());
  const CheckpointReader checkpoint(train(on, config));
  const RunConfig stored = stored_forward(checkpoint, "");
  EXPECT_TRUE(stored.data.separates_documents());
  EXPECT_EQ(stored.data.document_end, document_end());
  LoadedModel<Fp64> model(checkpoint, 0);
  model.allocate_activations(2, 24, true);
  const MeanLoss mean = evaluate_loss(model, EvaluationData::of(loader(2, 24, 0, true)), world(), go_on).value();
  const double wanted = on.trainer.evaluate().value();
  EXPECT_NEAR(mean.loss, wanted, 1e-12 * wanted);
}

TEST_F(Evaluation, ARequestToStopGivesNoLoss) {
  const RunConfig config = this->config({});
  TrainerOn<Fp32> on(config, world());
  LoadedModel<Fp32> model(CheckpointReader(train(on, config)), 0);
  model.allocate_activations(1, 24);
  std::vector<Index> asked;
  const auto stop_at = [&](Index batch) {
    asked.clear();
    return evaluate_loss(model, EvaluationData::of(loader(1, 24)), world(), [&](Index done, Index) {
      asked.push_back(done);
      return done == batch;
    });
  };
  EXPECT_FALSE(stop_at(2).has_value());
  EXPECT_EQ(asked, (std::vector<Index>{0, 1, 2}));
  EXPECT_FALSE(stop_at(loader(1, 24).num_batches()).has_value()) << "it is asked once more behind the last batch";
  EXPECT_TRUE(stop_at(-1).has_value());
}

// Row by row: of the rows of one sequence, whole or in parts, and with room for a longer one.
TEST_F(Evaluation, LogitsGiveTheLossAgain) {
  const RunConfig config = this->config({"precision.compute=fp64"});
  TrainerOn<Fp64> on(config, world());
  LoadedModel<Fp64> model(CheckpointReader(train(on, config)), 0);
  for (const bool separate : {false, true}) {
    const SequentialLoader data = loader(1, 20, world().size(), separate);  // a sequence a rank
    model.allocate_activations(1, 20, separate);
    const MeanLoss wanted = evaluate_loss(model, EvaluationData::of(data), world(), go_on).value();
    EXPECT_EQ(wanted.valid_tokens < 20 * world().size(), separate) << "the sequence has an end of a document";
    const Batch batch = data.batch(0);
    for (const Index room : {20, 24}) {
      model.allocate_activations(1, room, separate);
      double sum = 0;
      Index row = 0;
      const auto add_losses = [&](std::span<const float> rows) {
        ASSERT_EQ(rows.size() % 61, 0U);
        for (std::size_t begin = 0; begin < rows.size(); begin += 61, ++row) {
          const TokenId target = batch.targets[static_cast<std::size_t>(row)];
          double total = 0;
          for (std::size_t i = 0; i < 61; ++i)
            total += std::exp(static_cast<double>(rows[begin + i]));
          sum += target < 0 ? 0 : std::log(total) - rows[begin + static_cast<std::size_t>(target)];
        }
      };
      model.visit_logits(batch.inputs, 20, add_losses, batch.positions);
      EXPECT_EQ(row, 20);
      EXPECT_NEAR(all_reduce(world(), sum) / static_cast<double>(wanted.valid_tokens), wanted.loss, 1e-6);
    }
  }
  model.allocate_activations(1, 24);
  const Batch batch = loader(1, 20, world().size()).batch(0);
  std::vector<float> last;
  model.visit_logits(batch.inputs, 3,
                     [&](std::span<const float> rows) { last.insert(last.end(), rows.begin(), rows.end()); });
  EXPECT_EQ(last.size(), 3U * 61) << "only so many of the last rows";
}

// More logits than exist at a time (models/logit_rows.hpp): each row is that of its own prefix all the same.
TEST_F(Evaluation, LogitsComeInPiecesWhereTheyAreMany) {
  const Index vocab = exec_is_host ? 300'000 : 2'500'000;
  const RunConfig config =
      this->config({fmt::format("model.vocab_size={}", vocab), "model.hidden_size=8", "model.num_heads=2",
                    "model.ffn_hidden_size=8", "model.num_layers=1", "model.max_sequence_length=130",
                    "batch.micro_batch_size=1", fmt::format("batch.global_batch_size={}", world().size())});
  TrainerOn<Fp32> on(config, world());
  LoadedModel<Fp32> model(CheckpointReader(train(on, config)), 0);
  model.allocate_activations(1, 130);
  const std::vector<TokenId> tokens = loader(1, 130).batch(0).inputs;
  Index pieces = 0;
  std::vector<float> all;
  Work work;
  counted_work = &work;
  model.visit_logits(tokens, 129, [&](std::span<const float> rows) {
    ++pieces;
    all.insert(all.end(), rows.begin(), rows.end());
  });
  counted_work = nullptr;
  EXPECT_GT(pieces, 1);
  EXPECT_EQ(work.attention.size(), 1U) << "one forward of one layer, whatever the pieces";
  ASSERT_EQ(std::ssize(all), 129 * vocab);
  for (const Index row : {0, 63, 64, 65, 128}) {  // of token row + 1
    const std::vector<TokenId> prefix(tokens.begin(), tokens.begin() + row + 2);
    model.visit_logits(prefix, 1, [&](std::span<const float> logits) {
      double largest = 0;
      for (Index i = 0; i < vocab; ++i)
        largest = std::max(largest, std::abs(static_cast<double>(logits[static_cast<std::size_t>(i)]) -
                                             all[static_cast<std::size_t>(row * vocab + i)]));
      EXPECT_LT(largest, 1e-5) << "row " << row;
    });
  }
}

TEST_F(Evaluation, HoldsNoGradientsAndRefusesWhatDoesNotFit) {
  const RunConfig config = this->config({});
  TrainerOn<Fp32> on(config, world());
  const CheckpointReader checkpoint(train(on, config));
  const MemoryByCategory before = MemoryLedger::instance().current();
  LoadedModel<Fp32> model(checkpoint, 0);
  model.allocate_activations(1, 24);
  const MemoryByCategory after = MemoryLedger::instance().current();
  EXPECT_EQ(after[Category::gradients], before[Category::gradients]);
  const std::size_t weights = after[Category::weights] - before[Category::weights];
  EXPECT_GT(weights, 0U);

  const auto code_of = [](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::ok;
  };
  EXPECT_EQ(code_of([&] { LoadedModel<Fp32>(checkpoint, weights - 1); }), ExitCode::memory);
  LoadedModel<Fp32> tight(checkpoint, weights);
  EXPECT_EQ(code_of([&] { tight.allocate_activations(1, 24); }), ExitCode::memory);
  LoadedModel<Fp32> fits(checkpoint, weights + after.total() - before.total() - weights);
  EXPECT_EQ(code_of([&] { fits.allocate_activations(1, 24); }), ExitCode::ok);
}

}  // namespace
}  // namespace espalier::test

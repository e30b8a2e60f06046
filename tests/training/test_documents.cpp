// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Separate documents train as if each had a row of its own, however the model is split.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/documents.hpp"
#include "tests/support/tensors.hpp"
#include "tests/training/families.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/verify/layouts_to_verify.hpp"
#include "training/verify/logical_tensors.hpp"
#include "training/verify/verify.hpp"

namespace espalier::test {
namespace {

using Overrides = std::vector<std::string>;

constexpr TokenId end_of_document = 60;

// Documents of 1 to `longest` tokens.
std::string write_documents(const std::filesystem::path& path, Index count, Index longest) {
  if (world().rank() == 0) {
    const RandomStream random(7, "documents");
    std::vector<TokenId> tokens;
    for (std::uint64_t document = 0; static_cast<Index>(tokens.size()) < count; ++document) {
      const auto length = static_cast<Index>(random.bits(document) % static_cast<std::uint64_t>(longest)) + 1;
      for (Index t = 1; t < length; ++t)
        tokens.push_back(static_cast<TokenId>((tokens.size() * 5 + document) % end_of_document));
      tokens.push_back(end_of_document);
    }
    TokenFileWriter writer(path, "byte", 61);
    writer.append(tokens);
    writer.finish();
  }
  barrier(world());
  return path.string();
}

RunConfig separate_config(const SharedFolder& folder, Index longest, Overrides more = {}) {
  const std::string file = write_documents(folder / fmt::format("documents{}.bin", longest), 3000, longest);
  Overrides overrides = {"model.num_layers=4",
                         "model.num_heads=8",
                         "batch.micro_batch_size=2",
                         "data.documents=separate",
                         fmt::format("data.document_end={}", end_of_document),
                         "data.train=[\"" + file + "\"]",
                         "data.validation=[\"" + file + "\"]",
                         "run.eval_samples=13"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return tiny_config(folder, 1, overrides);
}

struct LossAndNorm {
  double loss = 0, norm = 0;
};

// Of the first step, from each of its documents as a sequence of its own.
LossAndNorm of_documents_alone(const RunConfig& config) {
  const ExecSpace exec;
  const Communicator alone = world().split(world().rank(), 0, "alone");
  const TrainerOn<Fp64> on(config, alone);
  ParameterStore<double> parameters;
  Decoder<Fp64> model(parameters, config.model.shape);
  parameters.allocate();
  parameters.initialize(exec, static_cast<std::uint64_t>(config.run.seed));
  std::vector<Batch> batches;
  Index valid = 0;
  for (Index microbatch = 0; microbatch < on.trainer.loader().num_microbatches(); ++microbatch)
    valid += count_valid(batches.emplace_back(on.trainer.loader().batch(0, microbatch)));
  LossAndNorm sums;
  for (const Batch& batch : batches)
    for (const IndexRange& document : document_ranges(batch.positions)) {
      model.plan_activations(1, document.size(), 1);
      const auto from = static_cast<std::size_t>(document.begin);
      model.forward(exec, 0, {&batch.inputs[from], &batch.targets[from]}, 1.0 / static_cast<double>(valid));
      model.backward(exec, 0);
      sums.loss += on_host(Tensor<double, 1>(model.loss().data(), 1)).front();
    }
  for (const double gradient : on_host(parameters.flat_gradients()))
    sums.norm += gradient * gradient;
  sums.norm = std::sqrt(sums.norm);
  return sums;
}

std::vector<std::pair<std::string, Overrides>> some_families() {
  return {{"gpt2", {}}, {"llama", families().at("llama")}, {"mistral", families().at("mistral")}};
}

TEST(DocumentLayouts, EveryLayoutHasTheLossAndGradientsOfDocumentsAlone) {
  const SharedFolder folder("documents");
  const std::vector<std::pair<std::string, Overrides>> all = some_families();
  for (std::size_t f = 0; f < all.size(); ++f) {
    const auto& [family, keys] = all[f];
    const RunConfig base = separate_config(folder, 12, keys);
    const LossAndNorm wanted = of_documents_alone(base);
    const Curve curve = curve_of_one_rank<Fp64>(base, 3);  // whose later steps show each gradient
    const std::vector<Overrides> layouts = settings_to_verify(base, world().size());
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (world().size() > 2 && i % all.size() != f)
        continue;  // four ranks take turns on two cores: each layout with one of the families
      Overrides overrides = layouts[i];
      overrides.push_back(fmt::format("parallel.recompute={}", to_string(all_recompute_modes()[(i / 3 + i) % 3])));
      const RunConfig config = laid_out(base, overrides);
      const Curve got = train_curve<Fp64>(config, world(), 3);
      const std::string what = family + ": " + make_run_layout(config, world().size()).short_text();
      EXPECT_NEAR(got.losses.front(), wanted.loss, 1e-10 * wanted.loss) << what;
      EXPECT_NEAR(got.norms.front(), wanted.norm, 1e-10 * wanted.norm) << what;
      EXPECT_LT(largest_relative_error(got.losses, curve.losses), 1e-10) << what;
      EXPECT_LT(largest_relative_error(got.norms, curve.norms), 1e-10) << what;
    }
  }
}

// All axes at once: eight ranks take turns on two cores, so a few layouts.
TEST(DocumentsOfEightRanks, HaveTheLossAndGradientsOfDocumentsAlone) {
  const SharedFolder folder("documents_8");
  const RunConfig base = separate_config(folder, 12);
  const LossAndNorm wanted = of_documents_alone(base);
  const std::vector<Overrides> some = {{"tensor=2", "data=2", "pipeline=2", "sequence_parallel=true", "zero_stage=1"},
                                       {"tensor=2", "data=2", "pipeline=2", "schedule=interleaved", "virtual_stages=2"},
                                       {"tensor=2", "data=1", "pipeline=4", "schedule=zero_bubble"},
                                       {"tensor=8", "data=1", "sequence_parallel=true"},
                                       {"tensor=4", "data=2", "zero_stage=1"}};
  for (const Overrides& layout : some) {
    Overrides overrides;
    for (const std::string& key : layout)
      overrides.push_back("parallel." + key);
    const RunConfig config = laid_out(base, overrides);
    const Curve got = train_curve<Fp64>(config, world(), 1);
    const std::string what = make_run_layout(config, world().size()).short_text();
    EXPECT_NEAR(got.losses.front(), wanted.loss, 1e-10 * wanted.loss) << what;
    EXPECT_NEAR(got.norms.front(), wanted.norm, 1e-10 * wanted.norm) << what;
  }
}

TEST(DocumentLayouts, AreVerified) {
  const SharedFolder folder("documents_verified");
  const RunConfig config =
      laid_out(separate_config(folder, 12, {"precision.compute=fp64", "model.num_layers=2"}), Overrides{});
  VerifyOptions options;
  options.steps = 1;
  for (const VerifiedLayout& layout : verify(config, options, world(), [](const VerifiedLayout&) {}))
    EXPECT_LT(layout.errors.worst(), 1e-10) << layout.text;
}

TEST(DocumentLayouts, OtherLossesAreMeansOverTokensThatCount) {
  const SharedFolder folder("documents_losses");
  const RunConfig base = separate_config(folder, 12);
  const RunConfig config = laid_out(base, {fmt::format("parallel.data={}", world().size()), "parallel.tensor=1"});
  TrainerOn<Fp64> on(config, world());
  const double next = on.trainer.next_loss(8);
  const double validated = on.trainer.evaluate().value();
  const StepReport report = on.trainer.step();
  EXPECT_NEAR(next, report.loss, 1e-12 * report.loss) << "of the samples of a step";
  EXPECT_LT(report.counts.valid_tokens, 8 * 24);
  EXPECT_GT(report.counts.valid_tokens, 8 * 12);
  EXPECT_LT(report.counts.attention_share, 0.5);
  EXPECT_GT(report.counts.attention_share, 0.1);
  const Communicator alone = world().split(world().rank(), 0, "alone");
  EXPECT_NEAR(TrainerOn<Fp64>(base, alone).trainer.evaluate().value(), validated, 1e-12 * validated);
}

TEST(DocumentLayouts, AStepWithoutATokenThatCountsIsSkipped) {
  const SharedFolder folder("documents_empty");
  const RunConfig config = laid_out(separate_config(folder, 1), {});
  TrainerOn<Fp32> on(config, world());
  const std::vector<double> before = on_host(on.trainer.store().flat_weights());
  for (int i = 1; i <= 2; ++i) {
    const StepReport report = on.trainer.step();
    EXPECT_TRUE(report.skipped);
    EXPECT_EQ(report.skipped_steps, i);
    EXPECT_EQ(report.loss, 0);
    EXPECT_EQ(report.gradient_norm, 0);
  }
  EXPECT_EQ(on_host(on.trainer.store().flat_weights()), before);
  EXPECT_EQ(on.trainer.next_loss(8), 0);
  EXPECT_THROW(on.trainer.evaluate(), Error);
}

// Position by position, with and without windows.
TEST(TokenCounts, KeysAreThoseThatQueriesSee) {
  const std::vector<int> positions = document_positions(2, 9, {4, 1, 7});
  Batch batch{.batch_size = 2,
              .sequence_length = 9,
              .inputs = std::vector<TokenId>(18, 0),
              .targets = std::vector<TokenId>(18, 1),
              .positions = positions};
  batch.targets[3] = batch.targets[8] = -1;
  ModelConfig model{.num_layers = 3};
  const auto share = [&](Index window, Index full_layers) {
    double seen = 0, joined = 0;
    for (Index layer = 0; layer < model.num_layers; ++layer)
      for (Index n = 0; n < 18; ++n)
        for (Index key = 0; key <= n % 9; ++key) {
          const bool is_near = layer < full_layers || window == 0 || key + window > n % 9;
          joined += is_near ? 1 : 0;
          seen += is_near && key >= n % 9 - positions[static_cast<std::size_t>(n)] ? 1 : 0;
        }
    return seen / joined;
  };
  const Communicator alone = world().split(world().rank(), 0, "alone");
  for (const Index window : {0, 3})
    for (const Index full_layers : {0, 1}) {
      model.window = window;
      model.full_layers = full_layers;
      const TokenCounts counts = count_tokens({batch, batch}, model, alone);
      EXPECT_EQ(counts.valid_tokens, 32);
      EXPECT_DOUBLE_EQ(counts.attention_share, share(window, full_layers));
    }
  batch.positions.clear();
  EXPECT_EQ(count_tokens({batch}, model, alone).attention_share, 1);
}

}  // namespace
}  // namespace espalier::test

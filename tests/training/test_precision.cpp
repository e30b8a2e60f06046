// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Training in 16-bit types.
#include <gtest/gtest.h>

#include "core/ops/attention_library.hpp"
#include "io/records/metrics.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/loop/train_loop.hpp"
#include "training/prediction/gemm_rate.hpp"
#include "training/prediction/predict_memory.hpp"
#include "training/verify/verify.hpp"

namespace espalier::test {
namespace {

RunConfig config_of(const SharedFolder& folder, const std::string& type, std::vector<std::string> more = {}) {
  more.push_back("precision.compute=" + type);
  return tiny_config(folder, world().size(), more);
}

template <class View>
std::vector<double> on_host(const View& view) {
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), view);
  return std::vector<double>(host.data(), host.data() + host.size());
}

template <class P>
bool is_meant(const std::string& compute, NumberType residual) {
  RunConfig config;
  config.layout.precision = parse_precision(compute).value();
  config.precision.residual = residual;
  return with_precision(config, []<class Meant>() { return std::is_same_v<Meant, P>; });
}

TEST(Precision, ResidualIsOfTheStateTypeWhereThatIsAnother) {
  EXPECT_TRUE(is_meant<Fp32>("fp32", NumberType::compute) && is_meant<Fp32>("fp32", NumberType::state));
  EXPECT_TRUE(is_meant<Fp64>("fp64", NumberType::compute) && is_meant<Fp64>("fp64", NumberType::state));
  EXPECT_TRUE(is_meant<Bf16>("bf16", NumberType::compute) && is_meant<Bf16WithFp32Residual>("bf16", NumberType::state));
  EXPECT_TRUE(is_meant<Fp16>("fp16", NumberType::compute) && is_meant<Fp16WithFp32Residual>("fp16", NumberType::state));
}

TEST(Precision, SixteenBitsTrackFp32) {
  const SharedFolder folder("track");
  const Curve wanted = train_curve<Fp32>(config_of(folder, "fp32"), world(), 20);
  const Curve bf16 = train_curve<Bf16>(config_of(folder, "bf16"), world(), 20);
  const Curve fp16 = train_curve<Fp16>(config_of(folder, "fp16"), world(), 20);
  EXPECT_LT(wanted.losses.back(), wanted.losses.front() - 0.1) << "the model must learn, or closeness proves nothing";
  EXPECT_LT(largest_relative_error(bf16.losses, wanted.losses), 2e-3);
  EXPECT_LT(largest_relative_error(fp16.losses, wanted.losses), 2e-4);
  EXPECT_LT(largest_relative_error(bf16.norms, wanted.norms), 5e-2);
  EXPECT_LT(largest_relative_error(fp16.norms, wanted.norms), 5e-3);
  EXPECT_NE(bf16.losses, fp16.losses);
}

// With ZeRO-1 each rank has master weights of its part only, and hands round rounded weights.
TEST(Precision, ReplicasHoldTheSameWeightsUnderZero1) {
  const SharedFolder folder("zero");
  const RunConfig config =
      config_of(folder, "bf16", {fmt::format("parallel.zero_stage={}", world().size() > 1 ? 1 : 0)});
  const Curve wanted = train_curve<Bf16>(config_of(folder, "bf16"), world(), 10);
  TrainerOn<Bf16> on(config, world());
  for (int i = 0; i < 10; ++i)
    EXPECT_NEAR(on.trainer.step().loss, wanted.losses[static_cast<std::size_t>(i)], 2e-3);
  const AdamW<bfloat16>& optimizer = on.trainer.optimizer();
  const std::vector<double> weights = on_host(on.trainer.store().flat_weights());
  const std::vector<double> master_weights = on_host(optimizer.master_weights());
  for (std::size_t r = 0; r < optimizer.owned().size(); ++r)
    for (Index i = 0; i < optimizer.owned()[r].size(); ++i) {
      const auto master =
          static_cast<float>(master_weights[static_cast<std::size_t>(optimizer.moment_starts()[r] + i)]);
      ASSERT_EQ(weights[static_cast<std::size_t>(optimizer.owned()[r].begin + i)],
                static_cast<double>(static_cast<float>(bfloat16(master))));
    }
  std::vector<double> of_root = weights;
  broadcast(world(), std::span<double>(of_root), 0);
  EXPECT_EQ(weights, of_root);
}

TEST(Precision, AnOverflowIsSkippedByAllRanksAndTheRunRecovers) {
  const SharedFolder folder("overflow");
  const RunConfig config = config_of(folder, "fp16", {"precision.initial_loss_scale=536870912"});
  TrainerOn<Fp16> on(config, world());
  std::vector<double> before = on_host(on.trainer.store().flat_weights());
  double scale = 536870912;  // 2^29
  Index skipped = 0;
  StepReport report;
  for (int i = 0; i < 30; ++i) {
    report = on.trainer.step();
    ASSERT_EQ(report.loss_scale, scale) << "step " << report.step;
    const std::vector<double> after = on_host(on.trainer.store().flat_weights());
    EXPECT_EQ(before == after, report.skipped) << "step " << report.step;
    EXPECT_FALSE(std::signbit(report.gradient_norm)) << "\"norm -nan\" in step " << report.step;
    skipped += report.skipped ? 1 : 0;
    scale /= report.skipped ? 2 : 1;
    EXPECT_EQ(report.skipped_steps, skipped);
    EXPECT_EQ(all_reduce(world(), static_cast<double>(skipped), ReduceOp::max), static_cast<double>(skipped));
    before = after;
  }
  EXPECT_GT(skipped, 0) << "nothing overflowed";
  EXPECT_LT(skipped, 15);
  EXPECT_FALSE(report.skipped);
  EXPECT_LT(report.loss, std::log(61.0) - 0.05);
}

TEST(Precision, OverflowAtTheFloorEndsTheRun) {
  const SharedFolder folder("floor");
  const RunConfig config =
      config_of(folder, "fp16", {"precision.initial_loss_scale=536870912", "precision.minimum_loss_scale=536870912"});
  TrainerOn<Fp16> on(config, world());
  for (int i = 1; i < LossScaler::patience; ++i)
    EXPECT_TRUE(on.trainer.step().skipped);
  try {
    on.trainer.step();
    ADD_FAILURE() << "overflow goes on for ever";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::numerical);
    EXPECT_NE(std::string(error.what()).find("bf16"), std::string::npos) << error.what();
  }
}

std::vector<std::string> losses_of_run(const RunConfig& config, const std::vector<Index>& stops) {
  const Layout layout = make_run_layout(config, world().size());
  const ProcessMesh mesh(world(), layout.mesh());
  for (const Index stop : stops) {
    TrainOptions options;
    options.stop_after = stop;
    train(config, options, layout, mesh, {}, {});
    barrier(world());
  }
  std::vector<std::string> texts;
  for (const auto& line : read_metrics(Path(config.run.directory) / "metrics.jsonl"))
    texts.push_back(line.at("loss").dump() + " " + line.at("loss_scale").dump() + " " +
                    line.at("skipped_steps").dump());
  return texts;
}

// The second half of the run starts in the middle of backing off.
void expect_bits_after_a_stop(const std::string& type) {
  const SharedFolder folder("resume_" + type);
  const auto config = [&](const std::string& name) {
    return config_of(
        folder, type,
        {"run.directory=\"" + (folder / name).string() + "\"", "run.steps=8", "precision.initial_loss_scale=536870912",
         "precision.loss_scale_growth_interval=3", fmt::format("parallel.zero_stage={}", world().size() > 1 ? 1 : 0)});
  };
  const std::vector<std::string> wanted = losses_of_run(config("whole"), {0});
  EXPECT_EQ(wanted.size(), 8U);
  EXPECT_EQ(losses_of_run(config("stopped"), {4, 0}), wanted);
}

TEST(Precision, ResumeGivesTheBitsOfAnUninterruptedRun) {
  expect_bits_after_a_stop("bf16");
  expect_bits_after_a_stop("fp16");
}

template <class P>
void expect_predicted_memory(const std::string& type, const std::string& matmul, const std::string& types) {
  SCOPED_TRACE(type + " " + matmul + " " + types);
  const SharedFolder folder("memory_" + type);
  const RunConfig config =
      config_of(folder, type,
                {"model.hidden_size=64", "model.ffn_hidden_size=256", "model.max_sequence_length=64",
                 "run.matmul=" + matmul, "precision.residual=" + types, "precision.gradient_reduction=" + types,
                 fmt::format("parallel.zero_stage={}", world().size() > 1 ? 1 : 0)});
  set_matmul_library(wanted_matmul_library(config, scalar_type_of<Compute<P>>()));
  release_matmul_workspace();  // of tests before this one
  release_attention_workspace();
  MemoryLedger& ledger = MemoryLedger::instance();
  const auto own = [&] {
    MemoryByCategory memory = ledger.current();
    memory.bytes[static_cast<std::size_t>(Category::workspace)] -= ledger.library_scratch();
    return memory;
  };
  const MemoryByCategory before = own();
  TrainerOn<P> on(config, world());
  on.trainer.step();
  const MemoryByCategory after = own();
  const MemoryByCategory predicted = predict_memory(config, on.layout, types_of<P>()).front();
  EXPECT_NEAR(static_cast<double>(after.total() - before.total()) / static_cast<double>(predicted.total()), 1.0, 0.01);
  for (const Category category : {Category::weights, Category::gradients, Category::activations})
    EXPECT_EQ(after[category] - before[category], predicted[category]) << to_string(category);
}

TEST(Precision, MemoryIsWhatWasPredicted) {
  const MatmulLibrary chosen = matmul_library();
  for (const char* const matmul : {"tiled", "auto"}) {
    expect_predicted_memory<Bf16>("bf16", matmul, "compute");
    expect_predicted_memory<Bf16WithFp32Residual>("bf16", matmul, "state");
    expect_predicted_memory<Fp16>("fp16", matmul, "compute");
    expect_predicted_memory<Fp16WithFp32Residual>("fp16", matmul, "state");
  }
  set_matmul_library(chosen);
}

void expect_all_layouts_train_one_model(const std::string& type, std::vector<std::string> more) {
  const SharedFolder folder("layouts_" + type);
  more.insert(more.end(), {"model.num_layers=4", "model.num_heads=8"});
  const RunConfig config = config_of(folder, type, more);
  int compared = 0;
  for (const VerifiedLayout& layout : verify(config, {}, world(), [](const VerifiedLayout&) {})) {
    if (!layout.skipped.empty())
      continue;
    ++compared;
    EXPECT_LT(layout.errors.worst(), default_tolerance(config.layout.precision)) << type << ": " << layout.text;
  }
  EXPECT_GE(compared, 3 * world().size() - 3);
}

TEST(Precision, EveryLayoutTrainsTheModelOfOneRank) {
  expect_all_layouts_train_one_model("bf16", {});
  expect_all_layouts_train_one_model("fp16", {"precision.residual=state", "precision.gradient_reduction=compute"});
}

}  // namespace
}  // namespace espalier::test

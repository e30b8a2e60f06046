// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Bytes handed to the communicators equal the formulas exactly: no message is sent that nobody knows of.
#include <gtest/gtest.h>

#include <numeric>

#include "parallel/collectives/collective_traffic.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/prediction/predict_traffic.hpp"
#include "training/verify/layouts_to_verify.hpp"

namespace espalier::test {
namespace {

using Bytes = std::array<std::uint64_t, num_axes>;

std::uint64_t on(const Bytes& bytes, Axis axis) { return bytes[static_cast<std::size_t>(axis)]; }

// Of all ranks together.
Bytes sum_of(const Bytes& bytes) {
  std::array<std::int64_t, num_axes> sums{};
  for (std::size_t i = 0; i < num_axes; ++i)
    sums[i] = static_cast<std::int64_t>(bytes[i]);
  all_reduce(world(), std::span<std::int64_t>(sums));
  Bytes result{};
  for (std::size_t i = 0; i < num_axes; ++i)
    result[i] = static_cast<std::uint64_t>(sums[i]);
  return result;
}

struct Measured {
  Layout layout;
  Bytes bytes;
};

// Of the second step: the first might set something up.
template <class P>
Measured measure(const RunConfig& config) {
  TrainerOn<P> on(config, mesh_of(config));
  on.trainer.step();
  return {on.layout, on.trainer.step().bytes_sent};
}

RunConfig eight_layers(const SharedFolder& folder, std::vector<std::string> more = {}) {
  std::vector<std::string> overrides = {"model.num_layers=8", "model.num_heads=8", "batch.micro_batch_size=2"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return tiny_config(folder, 1, overrides);
}

template <class P>
void expect_predicted_bytes(const RunConfig& config) {
  const Measured measured = measure<P>(config);
  const Bytes predicted = predict_traffic(config, measured.layout, world().rank(), types_of<P>());
  for (const Axis axis : trained_axes) {
    EXPECT_EQ(on(measured.bytes, axis), on(predicted, axis))
        << to_string(axis) << " of rank " << world().rank() << ", " << measured.layout.text();
    if (measured.layout.mesh().degree(axis) > 1) {
      EXPECT_GT(on(measured.bytes, axis), 0U) << to_string(axis) << ", " << measured.layout.text();
    }
  }
}

TEST(Traffic, EveryLayoutSendsWhatTheFormulasSay) {
  const SharedFolder folder("traffic");
  const RunConfig base = eight_layers(folder);
  const std::vector<std::vector<std::string>> all = settings_to_verify(base, world().size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (world().size() == 8 && i % 2 == 1)
      continue;  // half of those of eight ranks
    std::vector<std::string> overrides = all[i];
    if (std::find(overrides.begin(), overrides.end(), "parallel.data=8") != overrides.end())
      overrides.emplace_back("batch.micro_batch_size=1");
    expect_predicted_bytes<Fp32>(laid_out(base, overrides));
    if (i % 8 == 0)
      expect_predicted_bytes<Fp64>(laid_out(base, overrides));
    if (i % 8 == 4) {
      for (const char* const key : {"compute=bf16", "residual=state", "gradient_reduction=compute"})
        overrides.push_back(std::string("precision.") + key);
      expect_predicted_bytes<Bf16WithFp32Residual>(laid_out(base, overrides));
    }
  }
}

TEST(Traffic, SumsInTwoLevelsSendWhatTheFormulasSay) {
  const SharedFolder folder("traffic_two_levels");
  for (const RunConfig& config : two_level_configs(eight_layers(folder)))
    expect_predicted_bytes<Fp32>(config);
}

// A table of more than one bucket, stages that differ in their layers.
TEST(Traffic, LargerAndUnevenModelsToo) {
  const SharedFolder folder("traffic_larger");
  const int half = world().size() / 2;
  const RunConfig base =
      eight_layers(folder, {"model.hidden_size=64", "model.vocab_size=110001", "model.max_sequence_length=48",
                            "batch.sequence_length=8", "batch.micro_batch_size=1"});
  for (const int tensor : {1, half, world().size()})
    expect_predicted_bytes<Fp32>(laid_out(base, {fmt::format("parallel.tensor={}", tensor)}));
  expect_predicted_bytes<Fp32>(
      laid_out(base, {"parallel.pipeline=2", "parallel.layers_per_stage=[1,7]", "parallel.zero_stage=1"}));
}

// The same by hand, for the whole world: m micro-batches of N tokens and C channels, L layers.
TEST(Traffic, FormulasByHand) {
  const SharedFolder folder("traffic_by_hand");
  const RunConfig base = eight_layers(folder);
  const auto p = static_cast<std::uint64_t>(world().size());
  constexpr std::uint64_t m = 4;
  constexpr std::uint64_t tokens = 2 * 24;
  constexpr std::uint64_t stream = tokens * 32 * 4;  // bytes of N x C floats
  constexpr std::uint64_t layers = 8;

  // Each micro-batch crosses p - 1 boundaries there and back.
  Measured run = measure<Fp32>(laid_out(base, {fmt::format("parallel.pipeline={}", p)}));
  EXPECT_EQ(on(sum_of(run.bytes), Axis::pp), m * 2 * (p - 1) * stream);
  EXPECT_EQ(on(run.bytes, Axis::tp), 0U);

  // Consecutive layers wins: dealt out one by one, they cross L - 1 boundaries.
  run = measure<Fp32>(
      laid_out(base, {"parallel.pipeline=2", fmt::format("parallel.data={}", p / 2), "parallel.assignment=round_robin",
                      "parallel.schedule=gpipe", p == 8 ? "batch.micro_batch_size=1" : "batch.micro_batch_size=2"}));
  EXPECT_EQ(on(sum_of(run.bytes), Axis::pp), 8 * (stream / 2) * 2 * (layers - 1)) << "8 sequences, whoever has them";

  // An all_reduce sends (p - 1) / p of the array twice from every rank: forward two a layer, the embedding's and the
  // head's, backward two a layer. The loss sends its statistics whole to all others.
  run = measure<Fp32>(laid_out(base, {fmt::format("parallel.tensor={}", p)}));
  const std::uint64_t statistics = 3 * tokens * 4 * (p - 1) * p;
  EXPECT_EQ(on(sum_of(run.bytes), Axis::tp), m * ((4 * layers + 2) * 2 * (p - 1) * stream + statistics));
  EXPECT_EQ(on(run.bytes, Axis::pp), 0U);
  EXPECT_EQ(on(run.bytes, Axis::dp), 0U);

  // Computed again: the all_reduce behind attention.
  run = measure<Fp32>(laid_out(base, {fmt::format("parallel.tensor={}", p), "parallel.recompute=full"}));
  EXPECT_EQ(on(sum_of(run.bytes), Axis::tp), m * ((5 * layers + 2) * 2 * (p - 1) * stream + statistics));

  // An all_gather or reduce_scatter sends (p - 1) / p of the array once from every rank. Forward four a layer, the
  // embedding's and the head's two, backward four a layer; rows are gathered again: four a layer and the embedding's.
  run = measure<Fp32>(laid_out(base, {fmt::format("parallel.tensor={}", p), "parallel.sequence_parallel=true"}));
  const std::uint64_t moves = (4 * layers + 3) + 4 * layers + (4 * layers + 1);
  EXPECT_EQ(on(sum_of(run.bytes), Axis::tp), m * (moves * (p - 1) * stream + statistics));
  run = measure<Fp32>(laid_out(
      base, {fmt::format("parallel.tensor={}", p), "parallel.sequence_parallel=true", "parallel.recompute=full"}));
  EXPECT_EQ(on(sum_of(run.bytes), Axis::tp), m * ((moves + 3 * layers) * (p - 1) * stream + statistics))
      << "computed again: into and out of attention, into the mlp";

  // Replicas send the gradients' (p - 1) / p twice, or with ZeRO-1 gradients and weights once: the same.
  const Bytes plain = sum_of(measure<Fp32>(laid_out(base, {"batch.micro_batch_size=1"})).bytes);
  const Bytes zero = sum_of(measure<Fp32>(laid_out(base, {"batch.micro_batch_size=1", "parallel.zero_stage=1"})).bytes);
  ParameterStore<float> store;
  const Decoder<Fp32> model(store, base.model.shape);
  store.lay_out();
  EXPECT_EQ(on(plain, Axis::dp), 2 * (p - 1) * static_cast<std::uint64_t>(store.flat_size()) * 4);
  EXPECT_EQ(on(zero, Axis::dp), on(plain, Axis::dp));
}

// Pure functions against the collectives themselves: short, uneven, and longer than a piece.
TEST(Traffic, OfACollective) {
  const ExecSpace exec;
  const Communicator communicator = world().duplicate("traffic");
  const int rank = world().rank();
  const int size = world().size();
  const auto sent_by = [&](const auto& collective) {
    const std::uint64_t before = communicator.traffic().bytes;
    collective();
    return communicator.traffic().bytes - before;
  };
  for (const Index count : {Index{1}, Index{1024}, Index{1025}, Index{5003}, (Index{8} << 20) + 3}) {
    const auto data = allocate<float>(Category::other, "data", count);
    EXPECT_EQ(sent_by([&] { all_reduce(exec, communicator, data); }), all_reduce_traffic(count, 4, rank, size))
        << count;
    if (count > 10000)
      continue;
    const auto all = allocate<float>(Category::other, "all", count * size);
    EXPECT_EQ(sent_by([&] { all_gather(exec, communicator, all, data); }), all_gather_traffic(count, 4, size)) << count;
    EXPECT_EQ(sent_by([&] { reduce_scatter(exec, communicator, data, all); }), reduce_scatter_traffic(count, 4, size))
        << count;
  }
  EXPECT_EQ(all_reduce_traffic(1000000, 4, 0, 1), 0U);
  EXPECT_EQ(all_reduce_traffic(1024, 4, 3, 8), 7U * 4096) << "short: all to all";
  EXPECT_EQ(all_reduce_traffic(8000, 4, 3, 8), 4U * (7000 + 7 * 1000)) << "long: a slice each";
  EXPECT_EQ(all_reduce_traffic(8001, 4, 7, 8), 4U * (8001 - 994 + 7 * 994)) << "the last slice is shorter";
}

}  // namespace
}  // namespace espalier::test

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Which layers lie on which stage: a run keeps what its directory has, as the bits depend on it.
#include <gtest/gtest.h>

#include "io/file.hpp"
#include "tests/training/tiny_run.hpp"
#include "training/prediction/measure_layers.hpp"

namespace espalier::test {
namespace {

using Overrides = std::vector<std::string>;

RunConfig with(const RunConfig& config, const Overrides& changes, int ranks) {
  Overrides overrides = {"parallel.layers_per_stage=[]"};
  overrides.insert(overrides.end(), changes.begin(), changes.end());
  return parse_run_config(to_toml(config), "another start", overrides, ranks);
}

TEST(StoredLayers, AreKeptForThePipelineThatTheyWereMadeFor) {
  const SharedFolder folder("stored_layers");
  const RunConfig first = tiny_config(
      folder, 4, {"model.num_layers=4", "parallel.pipeline=2", "parallel.data=2", "parallel.layers_per_stage=[3,1]"});
  EXPECT_TRUE(stored_layers(first).empty()) << "there is no run directory yet";
  barrier(world());
  if (world().rank() == 0) {
    std::filesystem::create_directories(first.run.directory);
    write_file_atomically(Path(first.run.directory) / "config.toml", to_toml(first));
  }
  barrier(world());
  const std::vector<Index> kept = {3, 1};
  for (const auto& [overrides, ranks] :
       std::vector<std::pair<Overrides, int>>{{{}, 4},
                                              {{"parallel.data=0"}, 4},
                                              {{"parallel.data=0"}, 2},
                                              {{"parallel.data=1"}, 2},
                                              {{"parallel.data=0"}, 8},
                                              {{"parallel.data=0", "parallel.tensor=2"}, 4}})
    EXPECT_EQ(stored_layers(with(first, overrides, ranks)), kept)
        << fmt::format("{}", fmt::join(overrides, " ")) << ranks;
  for (const Overrides& overrides :
       std::vector<Overrides>{{"parallel.data=1", "parallel.pipeline=4"},
                              {"parallel.virtual_stages=2", "parallel.schedule=gpipe"},
                              {"parallel.assignment=round_robin", "parallel.schedule=gpipe"},
                              {"model.num_layers=6"}})
    EXPECT_TRUE(stored_layers(with(first, overrides, 4)).empty()) << fmt::format("{}", fmt::join(overrides, " "));
}

TEST(StoredLayers, WinOverAMeasurement) {
  const SharedFolder folder("resolved_layers");
  const RunConfig first = tiny_config(folder, 2,
                                      {"model.num_layers=4", "parallel.pipeline=2", "parallel.layers_per_stage=[1,3]",
                                       "emulate.forward=1e-6"});  // nothing is measured then
  RunConfig again = with(first, {}, 2);
  resolve_layers_per_stage(again, world());
  EXPECT_EQ(again.layout.layers, (std::vector<Index>{2, 2}));
  if (world().rank() == 0) {
    std::filesystem::create_directories(first.run.directory);
    write_file_atomically(Path(first.run.directory) / "config.toml", to_toml(first));
  }
  barrier(world());
  again = with(first, {}, 2);
  resolve_layers_per_stage(again, world());
  EXPECT_EQ(again.layout.layers, first.layout.layers);
}

// Its operations are real ones: what their layers take is measured, and the head weighs.
TEST(BalancedLayers, AnInjectedFaultIsNoReasonNotToMeasure) {
  if (!exec_is_host)
    GTEST_SKIP() << "on a GPU the layers of a tiny model take as long as the launches of their kernels";
  const SharedFolder folder("layers_of_a_faulty_run");
  RunConfig config =
      with(tiny_config(folder, 2, {"model.num_layers=6", "model.vocab_size=8192", "parallel.pipeline=2"}),
           {"emulate.slow_rank=1", "emulate.slow_factor=1.5"}, 2);
  resolve_layers_per_stage(config, world());
  ASSERT_EQ(config.layout.layers.size(), 2U);
  EXPECT_GT(config.layout.layers.front(), 3);
}

TEST(BalancedLayers, AStageThatComputesAgainGetsFewer) {
  const SharedFolder folder("balanced_layers");
  const auto layers_with = [&](const std::string& modes) {
    const RunConfig config = tiny_config(
        folder, 2,
        {"model.num_layers=14", "model.vocab_size=61", "parallel.pipeline=2", "parallel.recompute_per_stage=" + modes});
    std::vector<Index> layers;
    for (const auto& chunks : make_run_layout(config, 2).chunks())
      layers.push_back(chunks.front().count);
    return layers;
  };
  EXPECT_EQ(layers_with("[\"none\", \"none\"]"), layers_with("[\"full\", \"full\"]"));
  // A block that is computed twice costs nearly four passes instead of three.
  EXPECT_EQ(layers_with("[\"full\", \"none\"]").front(), 6);
  EXPECT_EQ(layers_with("[\"none\", \"full\"]").front(), 8);
}

}  // namespace
}  // namespace espalier::test

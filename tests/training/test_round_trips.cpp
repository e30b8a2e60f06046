// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What any layout of 1, 2, 4 or 8 ranks has saved, any other loads and saves again bit for bit; the one that saved it
// goes on as if it had never stopped.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/training/tiny_run.hpp"
#include "training/checkpoint/checkpoint_saver.hpp"

namespace espalier::test {
namespace {

struct Placement {
  int ranks;
  std::vector<std::string> overrides;
  std::string text() const { return fmt::format("{} ranks {}", ranks, fmt::join(overrides, " ")); }
};

std::vector<Placement> all_layouts() {
  return {{1, {}},
          {2, {"parallel.data=2"}},
          {2, {"parallel.tensor=2", "parallel.sequence_parallel=true"}},
          {2, {"parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.schedule=interleaved"}},
          {4, {"parallel.data=4", "parallel.zero_stage=1"}},
          {4, {"parallel.tensor=4"}},
          {4, {"parallel.pipeline=4", "parallel.schedule=zero_bubble"}},
          {4, {"parallel.tensor=2", "parallel.pipeline=2"}},
          {4, {"parallel.data=2", "parallel.pipeline=2", "parallel.zero_stage=1"}},
          {2, {"parallel.data=2", "parallel.zero_stage=3"}},
          {4, {"parallel.data=2", "parallel.pipeline=2", "parallel.zero_stage=3", "parallel.keep_gathered=true"}},
          {4, {"parallel.data=2", "parallel.tensor=2", "parallel.sequence_parallel=true", "parallel.zero_stage=2"}},
          {8, {"parallel.data=8", "parallel.zero_stage=1"}},
          {8, {"parallel.tensor=2", "parallel.data=2", "parallel.pipeline=2", "parallel.zero_stage=1"}},
          {8, {"parallel.tensor=4", "parallel.data=2", "parallel.sequence_parallel=true"}}};
}

std::vector<Placement> round_trip_layouts() {
  std::vector<Placement> layouts = all_layouts();
  std::erase_if(layouts, [](const Placement& layout) { return layout.ranks > world().size(); });
  return layouts;
}

// Every second layout saves behind the training, every third has two ranks write one file.
RunConfig config_of(const RunConfig& base, const Placement& layout, std::size_t number) {
  std::vector<std::string> overrides = layout.overrides;
  overrides.push_back(fmt::format("checkpoint.async={}", number % 2 == 0));
  overrides.push_back(fmt::format("checkpoint.ranks_per_file={}", number % 3 == 0 ? 2 : 1));
  return parse_run_config(to_toml(base), "layout", overrides, layout.ranks);
}

Curve next_steps(Trainer& trainer, int steps) {
  Curve curve;
  for (int i = 0; i < steps; ++i) {
    const StepReport report = trainer.step();
    curve.losses.push_back(report.loss);
    curve.norms.push_back(report.gradient_norm);
  }
  return curve;
}

// All that a checkpoint holds, but for what depends on the layout that wrote it.
struct Content {
  std::map<std::string, std::vector<double>> tensors;
  nlohmann::json state;
  explicit Content(const Path& path) {
    const CheckpointReader reader(path);
    reader.verify();
    for (const TensorInfo& tensor : reader.tensors()) {
      std::vector<double>& values = tensors[tensor.name];
      values.resize(static_cast<std::size_t>(num_elements(tensor.global_shape)));
      reader.read(tensor.name, tensor.global_shape, ScalarType::fp64, values.data());
    }
    state = reader.state();
    state.erase("config");
    state.erase("next_loss");       // up to rounding: resume compares it
    state.erase("matmul_kernels");  // of a GPU: chosen by timing, for the shapes of the layout
  }
};

/// Pairs of the same layout, and of the others one in `every`, so that each layout reads and is read.
template <class P>
void check_pairs(const std::string& name, std::size_t every, const std::vector<std::string>& more = {}) {
  const SharedFolder folder(name);
  std::vector<std::string> overrides = {"model.num_layers=4", "batch.micro_batch_size=1"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  const RunConfig base = tiny_config(folder, 1, overrides);
  const std::vector<Placement> layouts = round_trip_layouts();
  const auto on_ranks_of = [](const Placement& layout, const auto& action) {
    static auto& shared = *new std::map<int, Communicator>;  // by their number, see shared_mesh()
    const bool takes_part = world().rank() < layout.ranks;
    if (!shared.contains(layout.ranks))
      shared.emplace(layout.ranks, world().split(takes_part ? 0 : 1, world().rank(), "layout"));
    if (takes_part)
      action(shared.at(layout.ranks));
    barrier(world());
  };
  for (std::size_t writer = 0; writer < layouts.size(); ++writer) {
    const RunConfig config = config_of(base, layouts[writer], writer);
    const Path saved = folder / fmt::format("saved-{}", writer);
    Curve wanted;
    on_ranks_of(layouts[writer], [&](const Communicator& ranks) {
      TrainerOn<P> on(config, mesh_of(config, ranks));
      CheckpointSaver saver(config, saved, on.mesh, on.trainer, [](const std::string&) {});
      next_steps(on.trainer, 2);
      saver.save();
      wanted = next_steps(on.trainer, 2);
      saver.drain();
    });
    const Path checkpoint = checkpoint_path(saved, 2);
    for (std::size_t reader = 0; reader < layouts.size(); ++reader) {
      if (reader != writer && (reader + writer) % every != 0)
        continue;
      on_ranks_of(layouts[reader], [&](const Communicator& ranks) {
        const std::string pair = layouts[reader].text() + " from " + layouts[writer].text();
        const RunConfig other = config_of(base, layouts[reader], reader);
        TrainerOn<P> on(other, mesh_of(other, ranks));
        load_training_state(CheckpointReader(checkpoint), on.trainer, model_tensors(ranks, on.trainer.parameters()));
        const Path again = folder / fmt::format("again-{}-{}", writer, reader);
        save_training_state(again, on.trainer, other, on.mesh, base.run.directory, ownership_of(on.trainer));
        if (ranks.rank() == 0) {
          const Content got(checkpoint_path(again, 2));
          const Content original(checkpoint);
          EXPECT_TRUE(got.tensors == original.tensors) << pair;
          EXPECT_EQ(got.state, original.state) << pair;
          std::filesystem::remove_all(again);
        }
        if (reader == writer) {
          EXPECT_EQ(next_steps(on.trainer, 2), wanted) << pair << ": the same layout gives the same bits";
        }
      });
    }
  }
}

// Of eight ranks, which take turns on two cores, every second pair.
TEST(RoundTrips, EveryPairOfLayoutsBitForBit) { check_pairs<Fp32>("round_trips", world().size() == 8 ? 2 : 1); }

TEST(RoundTrips, WithMastersAndLossScaleToo) {
  check_pairs<Fp16>("round_trips_fp16", world().size() == 8 ? 4 : 1,
                    {"precision.compute=fp16", "precision.initial_loss_scale=1024"});
}

}  // namespace
}  // namespace espalier::test

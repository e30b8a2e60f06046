// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "parallel/collectives/collectives.hpp"
#include "tests/support/shared_mesh.hpp"
#include "tests/support/world.hpp"
#include "training/rehearsal/step_pace.hpp"
#include "training/step/typed_trainer.hpp"
#include "training/verify/layouts_to_verify.hpp"

namespace espalier::test {

/// A folder of this test job, shared by its ranks, removed by rank 0.
class SharedFolder {
 public:
  explicit SharedFolder(const std::string& name) {
    auto id = static_cast<std::int64_t>(::getpid());
    broadcast(world(), std::span<std::int64_t>(&id, 1), 0);
    path_ = std::filesystem::temp_directory_path() / fmt::format("espalier-{}-{}", name, id);
    if (world().rank() == 0)
      std::filesystem::create_directories(path_);
    barrier(world());
  }
  ~SharedFolder() {
    barrier(world());
    std::error_code ignored;
    if (world().rank() == 0)
      std::filesystem::remove_all(path_, ignored);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// A token file with something to learn: each token mostly follows from the one before. What lies in one of the
/// `poisoned` ranges is one token over and over, which no model that has learned expects.
inline std::string write_tokens(const std::filesystem::path& path, Index count, Index vocab_size,
                                const std::vector<IndexRange>& poisoned = {}, const std::string& tokenizer = "byte") {
  if (world().rank() == 0) {
    const RandomStream random(7, "tiny_run");
    std::vector<TokenId> tokens(static_cast<std::size_t>(count));
    TokenId last = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto noise = static_cast<TokenId>(random.bits(i) % 4);
      last = tokens[i] = static_cast<TokenId>((last * 5 + 3 + noise) % vocab_size);
    }
    for (const IndexRange& range : poisoned)
      std::fill(tokens.begin() + range.begin, tokens.begin() + range.end, TokenId{17});
    TokenFileWriter writer(path, tokenizer, vocab_size);
    writer.append(tokens);
    writer.finish();
  }
  barrier(world());
  return path.string();
}

/// Two layers of 32 channels on 8 sequences a step; warm-up, clipping and a learning rate of 1e-3.
inline RunConfig tiny_config(const SharedFolder& folder, int world_size, const std::vector<std::string>& more = {}) {
  const std::string tokens = write_tokens(folder / "tokens.bin", 5000, 61);
  std::vector<std::string> overrides = {"model.vocab_size=61",
                                        "model.max_sequence_length=24",
                                        "model.num_layers=2",
                                        "model.hidden_size=32",
                                        "model.num_heads=4",
                                        "model.ffn_hidden_size=96",
                                        "batch.global_batch_size=8",
                                        fmt::format("batch.micro_batch_size={}", world_size > 4 ? 1 : 2),
                                        "optimizer.learning_rate=1e-3",
                                        "optimizer.minimum_learning_rate=1e-4",
                                        "optimizer.warmup_steps=5",
                                        "run.steps=20",
                                        "run.matmul=tiled",
                                        "data.train=[\"" + tokens + "\"]",
                                        "run.directory=\"" + (folder / "run").string() + "\""};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return parse_run_config("", "tiny", overrides, world_size);
}

/// A trainer with all that it stands on, on the ranks of `communicator`.
template <class P>
struct TrainerOn {
  Layout layout;
  std::optional<ProcessMesh> own_mesh;
  const ProcessMesh& mesh;
  StepPace pace;
  TypedTrainer<P> trainer;
  TrainerOn(const RunConfig& config, const Communicator& communicator)
      : layout(make_run_layout(config, communicator.size())),
        mesh(own_mesh.emplace(communicator, layout.mesh())),
        pace(config, layout, mesh),
        trainer(ExecSpace(), config, layout, mesh) {}
  TrainerOn(const RunConfig& config, const ProcessMesh& shared)
      : layout(make_run_layout(config, shared.world().size())),
        mesh(shared),
        pace(config, layout, mesh),
        trainer(ExecSpace(), config, layout, mesh) {}
};

/// The mesh of a config, shared with other trainers: where many layouts are trained, and memory is not measured.
inline const ProcessMesh& mesh_of(const RunConfig& config, const Communicator& communicator = world()) {
  return shared_mesh(make_run_layout(config, communicator.size()).mesh(), communicator);
}

/// Layouts to verify without those of these ZeRO stages, where what is tested does not depend on them.
inline std::vector<std::vector<std::string>> layouts_without_zero(const RunConfig& config, int world_size,
                                                                  std::initializer_list<int> stages) {
  std::vector<std::vector<std::string>> layouts = settings_to_verify(config, world_size);
  for (const int stage : stages)
    std::erase_if(layouts, [&](const std::vector<std::string>& overrides) {
      return std::ranges::count(overrides, fmt::format("parallel.zero_stage={}", stage)) > 0;
    });
  return layouts;
}

struct Curve {
  std::vector<double> losses;
  std::vector<double> norms;
  bool operator==(const Curve&) const = default;
};

template <class P>
Curve train_curve(const RunConfig& config, const Communicator& communicator, int steps) {
  TrainerOn<P> on =
      &communicator == &world() ? TrainerOn<P>(config, mesh_of(config)) : TrainerOn<P>(config, communicator);
  Curve curve;
  for (int i = 0; i < steps; ++i) {
    const StepReport report = on.trainer.step();
    curve.losses.push_back(report.loss);
    curve.norms.push_back(report.gradient_norm);
  }
  return curve;
}

/// The largest difference between two series, relative to `wanted`.
inline double largest_relative_error(const std::vector<double>& got, const std::vector<double>& wanted) {
  if (got.size() != wanted.size())
    return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    largest = std::max(largest, std::abs(got[i] - wanted[i]) / std::abs(wanted[i]));
  return largest;
}

/// The curve of one rank, trained on rank 0 alone: two cores are better not asked to train it eight times.
template <class P>
Curve curve_of_one_rank(const RunConfig& config, int steps) {
  const Communicator alone = world().split(world().rank(), 0, "alone");
  Curve curve;
  if (world().rank() == 0)
    curve = train_curve<P>(config, alone, steps);
  for (std::vector<double>* const series : {&curve.losses, &curve.norms}) {
    series->resize(static_cast<std::size_t>(steps));
    broadcast(world(), std::span<double>(*series), 0);
  }
  return curve;
}

/// The same run on all ranks of the world, laid out another way.
inline RunConfig laid_out(const RunConfig& config, const std::vector<std::string>& overrides) {
  return parse_run_config(to_toml(config), "layout", overrides, world().size());
}

/// Layouts with sums of gradients in two levels, in every ZeRO stage, with several micro-batches a step: of four and
/// eight ranks.
inline std::vector<RunConfig> two_level_configs(const RunConfig& base) {
  std::vector<RunConfig> configs;
  const int ranks = world().size();
  const auto degrees_of = [](int tensor, int data, int pipeline) {
    return std::vector<std::string>{fmt::format("parallel.tensor={}", tensor), fmt::format("parallel.data={}", data),
                                    fmt::format("parallel.pipeline={}", pipeline), "batch.micro_batch_size=1"};
  };
  std::vector<std::vector<std::string>> layouts;
  if (ranks == 4)
    layouts = {degrees_of(1, 4, 1)};
  if (ranks == 8)
    layouts = {degrees_of(1, 8, 1), degrees_of(1, 4, 2), degrees_of(2, 4, 1)};
  if (ranks == 8)
    layouts.back().emplace_back("parallel.sequence_parallel=true");
  for (const auto& layout : layouts)
    for (int stage = 0; stage <= 3; ++stage) {
      std::vector<std::string> overrides = layout;
      overrides.push_back(fmt::format("parallel.zero_stage={}", stage));
      configs.push_back(laid_out(base, overrides));
      configs.back().max_summed_at_once = 1;
    }
  return configs;
}

}  // namespace espalier::test

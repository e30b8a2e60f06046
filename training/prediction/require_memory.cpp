// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/prediction/require_memory.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/machine_memory.hpp"
#include "core/memory_text.hpp"
#include "io/config/config_diff.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/device/device.hpp"
#include "parallel/mesh/host_ranks.hpp"
#include "training/config/validate_config.hpp"
#include "training/prediction/predict_memory.hpp"

namespace espalier {
namespace {

MemoryNeed need_of(const RunConfig& config, int ranks) {
  const std::vector<MemoryByCategory> stages = predict_memory(config, make_run_layout(config, ranks));
  return {config, peak_bytes(stages)};
}

void sort_by_need(std::vector<MemoryNeed>& needs) { std::ranges::stable_sort(needs, {}, &MemoryNeed::bytes); }

void recompute_everywhere(RunConfig& config, Recompute mode) {
  config.layout.recompute = mode;
  config.layout.recompute_per_stage.clear();
}

void share_over_all(RunConfig& config, int zero_stage) {
  config.layout.zero_stage = zero_stage;
  config.layout.shard_over = ShardOver::all;
}

// "batch.micro_batch_size = 1, parallel.recompute = "full"": what to set in `config` to get `other`.
std::string settings_text(const RunConfig& config, const RunConfig& other) {
  std::vector<std::string> settings;
  for (const ConfigDifference& difference : diff_configs(to_toml(config), to_toml(other)))
    settings.push_back(fmt::format("{} = {}", difference.key, difference.new_value));
  return fmt::format("{}", fmt::join(settings, ", "));
}

// The configs that differ in one setting from this one and need less, the leanest first.
std::vector<MemoryNeed> leaner_settings(const RunConfig& config, int ranks) {
  using Change = void (*)(RunConfig&);
  constexpr Change changes[] = {
      [](RunConfig& c) { recompute_everywhere(c, Recompute::selective); },
      [](RunConfig& c) { recompute_everywhere(c, Recompute::full); },
      [](RunConfig& c) { c.layout.micro_batch = 1; },
      [](RunConfig& c) { share_over_all(c, std::max(c.layout.zero_stage, 1)); },
      [](RunConfig& c) { share_over_all(c, 3); },
      [](RunConfig& c) { c.layout.keep_gathered = false; },
      [](RunConfig& c) { c.layout.sequence_parallel = true; },
      [](RunConfig& c) { c.layout.precision = Precision::bf16; },
      [](RunConfig& c) { c.precision.residual = NumberType::compute; },
      [](RunConfig& c) { c.checkpoint.async = false; },
      [](RunConfig& c) { c.layout.schedule = ScheduleKind::one_f_one_b; },
      [](RunConfig& c) { c.layout.schedule = ScheduleKind::sequential; },
  };
  const std::size_t present = need_of(config, ranks).bytes;
  std::vector<MemoryNeed> leaner;
  for (const Change change : changes) {
    RunConfig other = config;
    change(other);
    if (is_valid_layout(other, ranks))
      if (MemoryNeed need = need_of(other, ranks); need.bytes < present)
        leaner.push_back(std::move(need));
  }
  sort_by_need(leaner);
  return leaner;
}

// The model on all meshes of so many ranks that it allows, 1f1b where there are stages; with ZeRO-1 where there are
// replicas, as it costs nothing.
std::vector<RunConfig> meshes(const RunConfig& config, int ranks) {
  std::vector<RunConfig> configs;
  for (int tensor = 1; tensor <= ranks; ++tensor)
    for (int pipeline = 1; tensor * pipeline <= ranks; ++pipeline) {
      if (ranks % (tensor * pipeline) != 0)
        continue;
      RunConfig other = config;
      const Layout& given = config.layout;
      other.layout = {.tensor = tensor,
                      .data = 0,
                      .pipeline = pipeline,
                      .micro_batch = given.micro_batch,
                      .global_batch = given.global_batch,
                      .recompute = given.recompute,
                      .zero_stage = tensor * pipeline < ranks ? 1 : 0,
                      .order = given.order,
                      .precision = given.precision};
      if (is_valid_layout(other, ranks))
        configs.push_back(other);
    }
  return configs;
}

constexpr int most_ranks_tried = 4096;

// A short choice: the leanest of the smallest worlds in which any fits. Empty: none of up to `most_ranks_tried` does.
std::string layouts_that_fit(const RunConfig& config, std::size_t budget) {
  constexpr int most_worlds = 2;
  constexpr std::size_t most_layouts = 3;
  // Weights, gradients and moments, shared by all; a world that is too small for them need not be predicted.
  const double state = all_state_bytes(config.model.shape, config.layout.precision);
  std::vector<std::string> layouts;
  int worlds = 0;
  for (int ranks = 1; ranks <= most_ranks_tried && worlds < most_worlds; ranks *= 2) {
    if (state / ranks > static_cast<double>(budget))
      continue;
    std::vector<MemoryNeed> found;
    for (const RunConfig& mesh : meshes(config, ranks))
      if (MemoryNeed need = need_of(mesh, ranks); need.bytes <= budget)
        found.push_back(std::move(need));
    sort_by_need(found);
    for (std::size_t i = 0; i < std::min(most_layouts, found.size()); ++i)
      layouts.push_back(fmt::format("{} ({} per rank)", make_run_layout(found[i].config, ranks).short_text(),
                                    budget_text(found[i].bytes)));
    worlds += found.empty() ? 0 : 1;
  }
  return fmt::format("{}", fmt::join(layouts, "; "));
}

// What to set instead, on as many ranks: what fits; else what helps, and the least that all of it together comes to.
std::string advice_for_these_ranks(const RunConfig& config, int ranks, std::size_t budget) {
  std::string fitting;
  std::vector<std::string> lowering;
  std::set<std::string> named;
  for (const MemoryNeed& need : leaner_settings(config, ranks)) {
    const std::string settings = settings_text(config, need.config);
    if (!named.insert(settings).second)
      continue;
    if (need.bytes <= budget)
      fitting += fmt::format("{} would fit ({} per rank); ", settings, budget_text(need.bytes));
    lowering.push_back(fmt::format("{} ({})", settings, budget_text(need.bytes)));
  }
  if (!fitting.empty())
    return fitting;
  const MemoryNeed least = least_memory(config, ranks);
  const std::string settings = settings_text(config, least.config);
  const std::string helping =
      lowering.empty() ? "" : fmt::format("to need less memory: {}; ", fmt::join(lowering, ", "));
  return fmt::format("{}the minimum for this model on {} is {} per rank{}{}; ", helping, counted(ranks, "rank"),
                     budget_text(least.bytes), least.bytes <= budget ? ", which fits" : "",
                     settings.empty() ? "" : ", with " + settings);
}

// " per rank (this GPU: 20 GB free of 141 GB; ...)"; on hosts the limit of the shell, if it has set one.
std::string device_memory_text() {
  if (const std::string limit = exec_is_host ? process_memory_left().name : ""; !limit.empty())
    return fmt::format(" ({} included)", limit);
  const DeviceMemory memory = device_memory();
  return memory.total_bytes == 0
             ? ""
             : fmt::format(" per rank (this GPU: {} free of {}; nvidia-smi shows who uses the rest)",
                           budget_text(memory.free_bytes), budget_text(memory.total_bytes));
}

}  // namespace

MemoryNeed least_memory(const RunConfig& config, int ranks) {
  struct Types {
    Precision compute;
    NumberType gradient_reduction;
  };
  const Precision half = config.layout.precision == Precision::fp16 ? Precision::fp16 : Precision::bf16;
  const Types all_types[] = {
      {half, NumberType::state}, {half, NumberType::compute}, {Precision::fp32, NumberType::state}};
  RunConfig lean = config;
  lean.layout.micro_batch = 1;
  lean.checkpoint.async = false;
  lean.precision.residual = NumberType::compute;
  MemoryNeed least = need_of(config, ranks);
  for (RunConfig other : meshes(lean, ranks)) {
    // 16-bit weights and fp32 gradients, shared evenly: where these are too much, the rest is.
    const auto shared = static_cast<double>(other.layout.tensor * other.layout.pipeline);
    if (6 * static_cast<double>(num_parameters(config.model.shape)) / shared > static_cast<double>(least.bytes))
      continue;
    const auto try_types = [&] {
      for (const Recompute mode : all_recompute_modes())
        for (const Types& types : all_types) {
          recompute_everywhere(other, mode);
          other.layout.precision = types.compute;
          other.precision.gradient_reduction = types.gradient_reduction;
          if (MemoryNeed need = need_of(other, ranks); need.bytes < least.bytes)
            least = std::move(need);
        }
    };
    for (const bool sequence_parallel : {false, true})
      for (const bool keeps_one : {false, true}) {  // micro-batch a stage, which waits the longer for it
        if ((sequence_parallel && other.layout.tensor == 1) || (keeps_one && other.layout.pipeline == 1))
          continue;
        other.layout.sequence_parallel = sequence_parallel;
        other.layout.schedule = keeps_one ? ScheduleKind::sequential : ScheduleKind::one_f_one_b;
        if (is_valid_layout(other, ranks))
          try_types();
      }
  }
  return least;
}

std::size_t memory_of_a_rank(const Communicator& world) {
  const auto ranks =
      static_cast<std::size_t>(exec_is_host ? host_ranks(world).size() : world.context().ranks_per_device);
  std::size_t bytes = (exec_is_host ? machine_memory_bytes() : device_memory().free_bytes) / ranks;
  if (const MemoryLimit limit = process_memory_left(); exec_is_host && !limit.name.empty())
    bytes = bytes == 0 ? limit.bytes : std::min(bytes, limit.bytes);
  const Index own = static_cast<Index>(bytes);
  return static_cast<std::size_t>(all_reduce(world, own, ReduceOp::min));
}

void require_memory(const RunConfig& config, const Layout& layout, std::size_t available) {
  const auto set = static_cast<std::size_t>(config.run.device_memory);
  // What others hold of a GPU is not to be had, whatever the config says.
  const bool is_set = set > 0 && (exec_is_host || available == 0 || set <= available);
  const std::size_t budget = is_set ? set : available;
  if (budget == 0)
    return;
  const std::vector<MemoryByCategory> stages = predict_memory(config, layout);
  const int stage = peak_stage(stages);
  const MemoryByCategory& need = stages[static_cast<std::size_t>(stage)];
  if (need.total() <= budget)
    return;
  const std::string fitting = layouts_that_fit(config, budget);
  throw Error(ExitCode::memory,
              {.what = is_set         ? "the model does not fit the memory budget of a rank"
                       : exec_is_host ? "the model does not fit the memory that this machine has for a rank"
                                      : "the model does not fit the memory that is free on a GPU",
               .where = fmt::format("stage {} of {} on {}", stage, stages.size(), layout.short_text()),
               .got = fmt::format("a need of {}: {}", budget_text(need.total()), biggest_categories(need)),
               .wanted = is_set ? fmt::format("at most run.device_memory = {}", bytes_text(budget))
                                : fmt::format("at most {}{}", bytes_text(budget), device_memory_text()),
               .todo = advice_for_these_ranks(config, layout.num_devices(), budget) +
                       (fitting.empty() ? fmt::format("no layout of up to {} ranks fits with these other settings{}",
                                                      most_ranks_tried, is_set ? "; or raise run.device_memory" : "")
                                        : "layouts that would fit: " + fitting)});
}

}  // namespace espalier

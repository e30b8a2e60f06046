// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/predict_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "models/gpt.hpp"
#include "parallel/reduction_plan.hpp"
#include "training/forward_backward.hpp"

namespace espalier {
namespace {

Index total(const std::vector<IndexRange>& ranges) {
  return std::accumulate(ranges.begin(), ranges.end(), Index{0},
                         [](Index sum, const IndexRange& range) { return sum + range.size(); });
}

std::string gib(std::size_t bytes) { return fmt::format("{:.3g} GB", static_cast<double>(bytes) * 1e-9); }

std::string biggest(const MemoryByCategory& memory) {
  std::vector<std::size_t> order(num_categories);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return memory.bytes[a] > memory.bytes[b]; });
  std::string text;
  for (std::size_t i = 0; i < 3 && memory.bytes[order[i]] > 0; ++i)
    text +=
        fmt::format("{}{} {}", i ? ", " : "", to_string(static_cast<Category>(order[i])), gib(memory.bytes[order[i]]));
  return text;
}

std::size_t fullest(const std::vector<MemoryByCategory>& stages) {
  std::size_t most = 0;
  for (const MemoryByCategory& stage : stages)
    most = std::max(most, stage.total());
  return most;
}

// Can the model be cut like this, and the batch?
bool divides(const RunConfig& config, int tensor, int data, int pipeline) {
  const GptConfig& shape = config.model.shape;
  return shape.num_heads % tensor == 0 && shape.ffn_hidden_size % tensor == 0 && shape.vocab_size >= tensor &&
         pipeline <= shape.num_layers && config.batch.global_batch_size % (config.batch.micro_batch_size * data) == 0;
}

// The three smallest worlds with a layout that fits, each with its leanest layout.
std::string layouts_that_fit(const RunConfig& config) {
  constexpr int most_ranks = 4096;
  std::string text;
  int found = 0;
  for (int ranks = 1; ranks <= most_ranks && found < 3; ranks *= 2) {
    std::size_t least = 0;
    std::string best;
    for (int tensor = 1; tensor <= ranks; tensor *= 2)
      for (int pipeline = 1; tensor * pipeline <= ranks; pipeline *= 2)
        for (const Index zero : {0, 1}) {
          const int data = ranks / tensor / pipeline;
          if ((zero == 1 && data == 1) || !divides(config, tensor, data, pipeline))
            continue;
          RunConfig other = config;
          other.parallel = {};
          other.parallel.tensor = tensor;
          other.parallel.pipeline = pipeline;
          other.parallel.zero_stage = zero;
          const RunLayout layout = make_run_layout(other, ranks);
          const std::size_t need = fullest(predict_memory(other, layout));
          if (need <= static_cast<std::size_t>(config.run.device_memory) && (best.empty() || need < least)) {
            least = need;
            best = fmt::format("{} ({} a rank)", layout.text(), gib(need));
          }
        }
    if (!best.empty()) {
      text += (found ? "; " : "") + best;
      ++found;
    }
  }
  return text;
}

}  // namespace

template <class T>
MemoryByCategory predict_memory(const RunConfig& config, const RunLayout& layout, int stage) {
  const std::vector<ChunkLayers>& chunks = layout.stages[static_cast<std::size_t>(stage)];
  ParameterStore<T> parameters;
  const TensorParallel<T> tensor(0, layout.mesh.degree(Axis::tp), layout.sequence_parallel);
  const Gpt<T> model(parameters, config.model.shape, chunks, tensor);
  parameters.lay_out();
  const auto activations = model.measure_activations(config.batch.micro_batch_size, config.batch.sequence_length,
                                                     chunk_memory(make_schedule(layout.pipeline, stage), chunks));
  PerAxis place{{0, 0, stage}};
  const auto places = layout.mesh.reduction_places(layout.mesh.rank_at(place));
  const ReducerOptions options = reducer_options(config, layout);
  const ReductionPlan plan =
      plan_reduction(parameters.segments(), parameters.parameters(), places, options, sizeof(State<T>));

  MemoryByCategory memory;
  const auto set = [&](Category category, std::uint64_t bytes) {
    memory.bytes[static_cast<std::size_t>(category)] = static_cast<std::size_t>(bytes);
  };
  const auto flat = static_cast<std::uint64_t>(parameters.flat_size());
  const auto moments = layout.zero_stage > 0 ? static_cast<std::uint64_t>(total(plan.owned)) : flat;
  const std::uint64_t masters = std::is_same_v<T, State<T>> ? 0 : flat;
  set(Category::weights, flat * sizeof(T));
  set(Category::gradients, flat * sizeof(State<T>));
  set(Category::optimizer, (2 * moments + masters) * sizeof(State<T>));
  set(Category::activations, static_cast<std::uint64_t>(activations.slots));
  set(Category::workspace, static_cast<std::uint64_t>(activations.workspace));
  set(Category::communication, reduction_memory(plan, places, options, sizeof(State<T>)));
  return memory;
}

std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const RunLayout& layout) {
  std::vector<MemoryByCategory> stages;
  for (int stage = 0; stage < layout.pipeline.stages; ++stage)
    stages.push_back(config.precision.compute == "fp64" ? predict_memory<double>(config, layout, stage)
                                                        : predict_memory<float>(config, layout, stage));
  return stages;
}

void require_memory(const RunConfig& config, const RunLayout& layout) {
  const auto budget = static_cast<std::size_t>(config.run.device_memory);
  if (budget == 0)
    return;
  const std::vector<MemoryByCategory> stages = predict_memory(config, layout);
  const auto fullest_stage =
      std::max_element(stages.begin(), stages.end(),
                       [](const MemoryByCategory& a, const MemoryByCategory& b) { return a.total() < b.total(); });
  if (fullest_stage->total() <= budget)
    return;
  const std::string fitting = layouts_that_fit(config);
  throw Error(
      ExitCode::memory,
      {.what = "the model does not fit the memory budget of a rank",
       .where = fmt::format("stage {} of {} on {}", fullest_stage - stages.begin(), stages.size(), layout.text()),
       .got = fmt::format("a need of {}: {}", gib(fullest_stage->total()), biggest(*fullest_stage)),
       .wanted = fmt::format("at most run.device_memory = {}", gib(budget)),
       .todo = fitting.empty() ? "lower batch.micro_batch_size or raise run.device_memory: no layout of up to "
                                 "4096 ranks fits"
                               : "layouts that would fit: " + fitting});
}

template MemoryByCategory predict_memory<float>(const RunConfig&, const RunLayout&, int);
template MemoryByCategory predict_memory<double>(const RunConfig&, const RunLayout&, int);

}  // namespace espalier

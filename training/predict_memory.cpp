// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/predict_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "core/machine_memory.hpp"
#include "core/ops/matmul.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "models/gpt.hpp"
#include "parallel/collectives.hpp"
#include "parallel/host_ranks.hpp"
#include "parallel/reduction_plan.hpp"
#include "training/counted_ranges.hpp"
#include "training/forward_backward.hpp"
#include "training/gemm_rate.hpp"
#include "training/with_compute_type.hpp"

namespace espalier {
namespace {

std::string biggest(const MemoryByCategory& memory) {
  std::vector<std::size_t> order(num_categories);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return memory.bytes[a] > memory.bytes[b]; });
  std::string text;
  for (std::size_t i = 0; i < 3 && memory.bytes[order[i]] > 0; ++i)
    text += fmt::format("{}{} {}", i ? ", " : "", to_string(static_cast<Category>(order[i])),
                        bytes_text(memory.bytes[order[i]]));
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

// The modes of recomputation with which the same layout fits, on all stages.
std::string recomputation_that_fits(const RunConfig& config, int ranks, std::size_t budget) {
  std::string text;
  for (const Recompute mode : all_recompute_modes()) {
    RunConfig other = config;
    other.parallel.recompute = to_string(mode);
    other.parallel.recompute_per_stage.clear();
    const std::size_t need = fullest(predict_memory(other, make_run_layout(other, ranks)));
    if (need <= budget)
      text += fmt::format("parallel.recompute = \"{}\" would fit ({} a rank); ", to_string(mode), bytes_text(need));
  }
  return text;
}

struct Fitting {
  std::string layout;
  std::size_t need = 0;
};

// The layouts of so many ranks that fit, the leanest first; with ZeRO-1 where there are replicas, as it costs nothing.
std::vector<Fitting> layouts_that_fit(const RunConfig& config, int ranks, std::size_t budget) {
  std::vector<Fitting> found;
  for (int tensor = 1; tensor <= ranks; tensor *= 2)
    for (int pipeline = 1; tensor * pipeline <= ranks; pipeline *= 2) {
      const int data = ranks / tensor / pipeline;
      if (!divides(config, tensor, data, pipeline))
        continue;
      RunConfig other = config;
      other.parallel = {};
      other.parallel.recompute = config.parallel.recompute;
      other.parallel.tensor = tensor;
      other.parallel.pipeline = pipeline;
      other.parallel.zero_stage = data > 1 ? 1 : 0;
      const RunLayout layout = make_run_layout(other, ranks);
      const std::size_t need = fullest(predict_memory(other, layout));
      if (need <= budget)
        found.push_back({layout.text(), need});
    }
  std::stable_sort(found.begin(), found.end(), [](const Fitting& a, const Fitting& b) { return a.need < b.need; });
  return found;
}

// A short choice: the leanest of the smallest worlds in which any fits. Empty: none of up to `most_ranks` does.
std::string layouts_that_fit(const RunConfig& config, std::size_t budget) {
  constexpr int most_ranks = 4096;
  constexpr int most_worlds = 2;
  constexpr std::size_t most_layouts = 3;
  // Weights, gradients and moments, shared by all; a world that is too small for them need not be predicted.
  const double state = static_cast<double>(num_parameters(config.model.shape)) * 4 * sizeof(float);
  std::string text;
  int worlds = 0;
  for (int ranks = 1; ranks <= most_ranks && worlds < most_worlds; ranks *= 2) {
    if (state / ranks > static_cast<double>(budget))
      continue;
    const std::vector<Fitting> found = layouts_that_fit(config, ranks, budget);
    for (std::size_t i = 0; i < std::min(most_layouts, found.size()); ++i)
      text += fmt::format("{}{} ({} a rank)", text.empty() ? "" : "; ", found[i].layout, bytes_text(found[i].need));
    worlds += found.empty() ? 0 : 1;
  }
  return text;
}

// What a save behind the training keeps on a rank: the weights (or masters) and moments that it writes.
template <class T>
std::uint64_t checkpoint_copy(const RunConfig& config, const RunLayout& layout, int rank,
                              const ParameterStore<T>& parameters) {
  if (!config.checkpoint.async)
    return 0;
  const bool is_shared = layout.zero_stage > 0;
  const std::vector<IndexRange> all = {{0, parameters.flat_size()}};
  const auto owned = [&] {
    return plan_reduction(parameters.segments(), parameters.parameters(), layout.mesh.reduction_places(rank),
                          reducer_options(config, layout), sizeof(State<T>))
        .owned;
  };
  const auto counted = [&](const std::vector<IndexRange>& ranges, bool by_slice) {
    return total_size(counted_ranges(parameters.parameters(), ranges, layout.mesh, rank, by_slice));
  };
  const Index moments = counted(is_shared ? owned() : all, is_shared);
  const Index weights = has_masters<T> ? moments : counted(all, false);
  return static_cast<std::uint64_t>(weights + 2 * moments) * sizeof(State<T>);
}

// Moments, buffers and copies of the replica that has most of them: slices end where rows do, so replicas differ.
template <class T>
void set_fullest_share(MemoryByCategory& memory, const RunConfig& config, const RunLayout& layout, PerAxis place,
                       const ParameterStore<T>& parameters) {
  const ReducerOptions options = reducer_options(config, layout);
  const auto places_of = [&](int replica) {
    place[Axis::dp] = replica;
    return layout.mesh.reduction_places(layout.mesh.rank_at(place));
  };
  // Replicas cut alike and own different slices.
  const ReductionPlan plan =
      plan_reduction(parameters.segments(), parameters.parameters(), places_of(0), options, sizeof(State<T>));
  const auto own_slices = [&](const PerGroup<GroupPlace>& places) {
    Index sum = 0;
    for (const Bucket& bucket : plan.buckets)
      sum += bucket.slice(places[bucket.group].rank).size();
    return sum;
  };
  const Index alone = total_size(plan.owned) - own_slices(places_of(0));  // reduced with nobody
  const auto flat = static_cast<std::uint64_t>(parameters.flat_size());
  std::uint64_t most = 0;
  for (int replica = 0; replica < layout.mesh.degree(Axis::dp); ++replica) {
    const PerGroup<GroupPlace> places = places_of(replica);
    const auto moments = layout.zero_stage > 0 ? static_cast<std::uint64_t>(alone + own_slices(places)) : flat;
    const std::uint64_t optimizer = (has_masters<T> ? 3 : 2) * moments * sizeof(State<T>);
    const std::uint64_t communication = reduction_memory(plan, places, options, sizeof(State<T>));
    const std::uint64_t copy = checkpoint_copy(config, layout, layout.mesh.rank_at(place), parameters);
    if (optimizer + communication + copy < most)
      continue;
    most = optimizer + communication + copy;
    memory.bytes[static_cast<std::size_t>(Category::other)] = static_cast<std::size_t>(copy);
    memory.bytes[static_cast<std::size_t>(Category::optimizer)] = static_cast<std::size_t>(optimizer);
    memory.bytes[static_cast<std::size_t>(Category::communication)] = static_cast<std::size_t>(communication);
  }
}

template <class T>
MemoryByCategory memory_of_tensor_rank(const RunConfig& config, const RunLayout& layout, int stage, int tensor_rank) {
  const std::vector<ChunkLayers>& chunks = layout.stages[static_cast<std::size_t>(stage)];
  ParameterStore<T> parameters;
  const TensorParallel<T> tensor(tensor_rank, layout.mesh.degree(Axis::tp), layout.sequence_parallel);
  const Gpt<T> model(parameters, config.model.shape, chunks, tensor, residual_type(config.precision));
  parameters.lay_out();
  const auto activations = model.measure_activations(config.batch.micro_batch_size, config.batch.sequence_length,
                                                     chunk_memory(make_schedule(layout.pipeline, stage), chunks));
  MemoryByCategory memory;
  const auto set = [&](Category category, std::uint64_t bytes) {
    memory.bytes[static_cast<std::size_t>(category)] = static_cast<std::size_t>(bytes);
  };
  const auto flat = static_cast<std::uint64_t>(parameters.flat_size());
  set(Category::weights, flat * sizeof(T));
  set(Category::gradients, flat * sizeof(State<T>));
  set(Category::activations, static_cast<std::uint64_t>(activations.slots));
  set(Category::workspace,
      static_cast<std::uint64_t>(activations.workspace) + matmul_workspace_bytes<T>(wanted_matmul_library<T>(config)));
  set_fullest_share(memory, config, layout, {{tensor_rank, 0, stage}}, parameters);
  return memory;
}

}  // namespace

template <class T>
MemoryByCategory predict_memory(const RunConfig& config, const RunLayout& layout, int stage) {
  // The first tensor rank has the most rows; under sequence parallelism the others share gradients with it, unevenly.
  MemoryByCategory fullest = memory_of_tensor_rank<T>(config, layout, stage, 0);
  for (int rank = 1; layout.sequence_parallel && rank < layout.mesh.degree(Axis::tp); ++rank)
    if (const MemoryByCategory memory = memory_of_tensor_rank<T>(config, layout, stage, rank);
        memory.total() > fullest.total())
      fullest = memory;
  return fullest;
}

std::vector<MemoryByCategory> predict_memory(const RunConfig& config, const RunLayout& layout) {
  std::vector<MemoryByCategory> stages;
  for (int stage = 0; stage < layout.pipeline.stages; ++stage)
    stages.push_back(with_compute_type(config.precision.compute,
                                       [&]<class T>() { return predict_memory<T>(config, layout, stage); }));
  return stages;
}

std::size_t memory_of_a_rank(const Communicator& world) {
  const auto ranks = static_cast<std::size_t>(host_ranks(world).size());
  const Index own = static_cast<Index>(machine_memory_bytes() / ranks);
  return static_cast<std::size_t>(all_reduce(world, own, ReduceOp::min));
}

void require_memory(const RunConfig& config, const RunLayout& layout, std::size_t available) {
  const bool is_set = config.run.device_memory > 0;
  const std::size_t budget = is_set ? static_cast<std::size_t>(config.run.device_memory) : available;
  if (budget == 0)
    return;
  const std::vector<MemoryByCategory> stages = predict_memory(config, layout);
  const auto fullest_stage =
      std::max_element(stages.begin(), stages.end(),
                       [](const MemoryByCategory& a, const MemoryByCategory& b) { return a.total() < b.total(); });
  if (fullest_stage->total() <= budget)
    return;
  const std::string fitting = layouts_that_fit(config, budget);
  throw Error(
      ExitCode::memory,
      {.what = is_set ? "the model does not fit the memory budget of a rank"
                      : "the model does not fit the memory that this machine has for a rank",
       .where = fmt::format("stage {} of {} on {}", fullest_stage - stages.begin(), stages.size(), layout.text()),
       .got = fmt::format("a need of {}: {}", bytes_text(fullest_stage->total()), biggest(*fullest_stage)),
       .wanted = is_set ? fmt::format("at most run.device_memory = {}", bytes_text(budget))
                        : fmt::format("at most {}", bytes_text(budget)),
       .todo = recomputation_that_fits(config, layout.mesh.size(), budget) +
               (fitting.empty() ? fmt::format("lower batch.micro_batch_size{}: no layout of up to 4096 ranks fits",
                                              is_set ? " or raise run.device_memory" : "")
                                : "layouts that would fit: " + fitting)});
}

#define ESPALIER_INSTANTIATE(T) template MemoryByCategory predict_memory<T>(const RunConfig&, const RunLayout&, int);
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier

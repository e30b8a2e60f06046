// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/prediction/predict_traffic.hpp"

#include <algorithm>

#include "models/cost.hpp"
#include "models/decoder.hpp"
#include "parallel/collectives/collective_traffic.hpp"
#include "parallel/reduction/reduction_plan.hpp"
#include "parallel/schedule/schedule_run.hpp"

namespace espalier {
namespace {

std::uint64_t bytes_sent(const Work& work, int rank, int size) {
  std::uint64_t sum = 0;
  for (const CollectiveWork& one : work.collectives) {
    const Index part = one.elements / size;
    const std::uint64_t each =
        one.kind == Collective::all_reduce   ? all_reduce_traffic(one.elements, one.element_bytes, rank, size)
        : one.kind == Collective::all_gather ? all_gather_traffic(part, one.element_bytes, size)
                                             : reduce_scatter_traffic(part, one.element_bytes, size);
    sum += static_cast<std::uint64_t>(one.count) * each;
  }
  return sum;
}

}  // namespace

TrafficByGroup predict_reduction_traffic(const RunConfig& config, const Layout& layout, int rank,
                                         const TrainingTypes& types, bool of_units) {
  const PerAxis coordinates = layout.mesh().coordinates(rank);
  ParameterStore<float> parameters;  // which lie alike in all types
  const TensorParallel<float> tensor(coordinates[Axis::tp], layout.tensor, layout.sequence_parallel);
  const Decoder<Fp32> model(parameters, config.model.shape,
                            layout.chunks().at(static_cast<std::size_t>(coordinates[Axis::pp])), tensor);
  parameters.lay_out();
  const GroupRanks ranks = layout.mesh().group_ranks(rank);
  const ReducerOptions options = reducer_options(config, layout, coordinates[Axis::pp]);
  const auto state_bytes = static_cast<Index>(size_of(types.state()));
  const ReductionPlan plan =
      plan_reduction(parameters.segments(), parameters.parameters(), ranks, options, state_bytes);
  const int num_units = static_cast<int>(plan.units.size());
  std::vector<UnitAction> actions;
  if (of_units)
    actions =
        unit_list(layout, coordinates[Axis::pp], make_schedule(layout.pipeline_shape(), coordinates[Axis::pp])).actions;
  const UnitUses uses{.sums = times_of_units(actions, UnitAction::Kind::reduce, num_units),
                      .gathers = times_of_units(actions, UnitAction::Kind::gather, num_units)};
  return reduction_traffic(plan, ranks, options, state_bytes, static_cast<Index>(size_of(types.compute)), uses);
}

std::array<std::uint64_t, num_axes> predict_traffic(const RunConfig& config, const Layout& layout, int rank,
                                                    const TrainingTypes& types) {
  const PerAxis coordinates = layout.mesh().coordinates(rank);
  const auto stage = static_cast<std::size_t>(coordinates[Axis::pp]);
  const int size = layout.tensor;
  const BlockShape shape = make_block_shape(config.model.shape, size, layout.sequence_parallel,
                                            config.layout.micro_batch, config.sequence_length, coordinates[Axis::tp]);
  const ModelWork work = model_work(config.model.shape, shape, types.compute, types.residual);
  std::array<std::uint64_t, num_axes> bytes{};
  const std::vector<PipelineSchedule> schedules = make_schedules(config, layout);
  const std::vector<std::vector<ChunkLayers>> chunks = layout.chunks();
  for (const Operation& operation : schedules[stage]) {
    const ChunkLayers& chunk = chunks[stage].at(static_cast<std::size_t>(operation.chunk));
    bytes[static_cast<std::size_t>(Axis::tp)] +=
        bytes_sent(operation_work(work, chunk, operation.kind), coordinates[Axis::tp], size);
    if (is_send(operation.kind))
      bytes[static_cast<std::size_t>(Axis::pp)] +=
          static_cast<std::uint64_t>(shape.rows * shape.channels) * size_of(types.residual);
  }
  for (const auto& [group, traffic] : predict_reduction_traffic(config, layout, rank, types))
    bytes[static_cast<std::size_t>(Axis::dp)] += traffic.bytes();
  return bytes;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/predict_traffic.hpp"

#include <algorithm>

#include "models/decoder.hpp"
#include "models/head.hpp"
#include "parallel/collective_traffic.hpp"
#include "parallel/reduction_plan.hpp"
#include "parallel/schedule_run.hpp"

namespace espalier {
namespace {

// The shapes that pass between ranks, of one micro-batch.
struct Shapes {
  Index tokens;      // N = B T
  Index rows;        // R = N, or N / tp under sequence parallelism
  Index channels;    // C
  Index logit_rows;  // K, of which the loss takes the logits at a time
};

// The loss, forward: of each chunk of rows the largest logit, then the sum and the target's logit.
std::uint64_t statistics_bytes(const Shapes& shapes, Index bytes, int rank, int size) {
  std::uint64_t sum = 0;
  for (Index first = 0; first < shapes.tokens; first += shapes.logit_rows) {
    const Index count = std::min(shapes.logit_rows, shapes.tokens - first);
    sum += all_reduce_traffic(count, bytes, rank, size) + all_reduce_traffic(2 * count, bytes, rank, size);
  }
  return sum;
}

// The collectives inside one operation of a chunk: all are of the residual stream but those of the loss.
template <class T>
std::uint64_t tensor_bytes(const Operation& operation, const ChunkLayers& chunk, const Shapes& shapes, int rank,
                           int size) {
  if (size == 1)
    return 0;
  constexpr Index bytes = sizeof(T);
  const TensorCollectives& inside = operation.tensor;
  const bool has_loss = chunk.head && operation.kind == OperationKind::forward;
  const auto times = [](int count, std::uint64_t each) { return static_cast<std::uint64_t>(count) * each; };
  const int logit_chunks = static_cast<int>((shapes.tokens + shapes.logit_rows - 1) / shapes.logit_rows);
  std::uint64_t sum = times(inside.all_reduce - (has_loss ? 2 * logit_chunks : 0),
                            all_reduce_traffic(shapes.tokens * shapes.channels, bytes, rank, size));
  if (has_loss)
    sum += statistics_bytes(shapes, sizeof(State<T>), rank, size);
  sum += times(inside.all_gather, all_gather_traffic(shapes.rows * shapes.channels, bytes, size));
  return sum + times(inside.reduce_scatter, reduce_scatter_traffic(shapes.rows * shapes.channels, bytes, size));
}

}  // namespace

template <class P>
PerGroup<ReductionTraffic> predict_reduction_traffic(const RunConfig& config, const RunLayout& layout, int rank) {
  const PerAxis place = layout.mesh.coordinates(rank);
  ParameterStore<Compute<P>> parameters;
  const TensorParallel<Compute<P>> tensor(place[Axis::tp], layout.mesh.degree(Axis::tp), layout.sequence_parallel);
  const Decoder<P> model(parameters, config.model.shape, layout.stages.at(static_cast<std::size_t>(place[Axis::pp])),
                         tensor);
  parameters.lay_out();
  const auto places = layout.mesh.reduction_places(rank);
  const ReductionPlan plan = plan_reduction(parameters.segments(), parameters.parameters(), places,
                                            reducer_options(config, layout), sizeof(State<Compute<P>>));
  return reduction_traffic(plan, places, reducer_options(config, layout), sizeof(State<Compute<P>>),
                           sizeof(Compute<P>));
}

template <class P>
std::array<std::uint64_t, num_axes> predict_traffic(const RunConfig& config, const RunLayout& layout, int rank) {
  const PerAxis place = layout.mesh.coordinates(rank);
  const auto stage = static_cast<std::size_t>(place[Axis::pp]);
  const int size = layout.mesh.degree(Axis::tp);
  const Index tokens = config.batch.micro_batch_size * config.batch.sequence_length;
  const Shapes shapes{.tokens = tokens,
                      .rows = layout.sequence_parallel ? tokens / size : tokens,
                      .channels = config.model.shape.hidden_size,
                      .logit_rows = logit_rows(tokens, config.model.shape.vocab_size, size, most_logits)};
  std::array<std::uint64_t, num_axes> bytes{};
  const std::vector<PipelineSchedule> schedules = make_schedules(layout);
  for (const Operation& operation : schedules[stage]) {
    const ChunkLayers& chunk = layout.stages[stage].at(static_cast<std::size_t>(operation.chunk));
    bytes[static_cast<std::size_t>(Axis::tp)] +=
        tensor_bytes<Compute<P>>(operation, chunk, shapes, place[Axis::tp], size);
    if (is_send(operation.kind))
      bytes[static_cast<std::size_t>(Axis::pp)] +=
          static_cast<std::uint64_t>(shapes.rows * shapes.channels) * sizeof(Residual<P>);
  }
  for (const ReductionTraffic& group : predict_reduction_traffic<P>(config, layout, rank).values)
    bytes[static_cast<std::size_t>(Axis::dp)] += group.reduce_bytes + group.gather_bytes;
  return bytes;
}

#define ESPALIER_INSTANTIATE(P)                                                                              \
  template PerGroup<ReductionTraffic> predict_reduction_traffic<P>(const RunConfig&, const RunLayout&, int); \
  template std::array<std::uint64_t, num_axes> predict_traffic<P>(const RunConfig&, const RunLayout&, int);
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/price_layout.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/scalars.hpp"
#include "models/part_layers.hpp"
#include "planning/collective_time.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/layer_time.hpp"
#include "planning/pipeline_time.hpp"

namespace espalier {
namespace {

// Adam reads gradient, master weight and two moments, writes three of them and the weight; the norm and the unscaling
// read the gradients once or twice more.
constexpr double adam_bytes = 40;
// With a kernel an operator: decay, two moments of two operators each, root, quotient, sum, step, norm and clipping.
constexpr double unfused_adam_bytes = 110;
constexpr double compiled_step = 0.3;  // of the overhead of a step, without an interpreter

struct Parts {
  BlockTime block;
  BlockTime head;
  BlockTime embedding;
};

// Blocks and ends of one chunk.
struct ChunkParts {
  double blocks = 0;
  bool embedding = false;
  bool head = false;
  bool operator==(const ChunkParts&) const = default;
};

// What a pass takes of the seconds of a chunk, and its collectives.
struct PassShare {
  double seconds = 0;
  double tensor = 0;
  double work() const { return seconds - tensor; }
};

struct ChunkTimes {
  ChunkSeconds seconds;
  PassShare forward;
  PassShare backward_input;
  PassShare backward_weight;
  PassShare recompute;
  double data = 0;          // of collectives with the other replicas that every micro-batch needs (ZeRO-2 and 3)
  double exposed_data = 0;  // of them, what does not overlap with its work
};

class Pricer {
 public:
  Pricer(const PlanProblem& problem, const Layout& layout)
      : problem_(problem),
        layout_(with_shards(layout, problem.cluster)),
        weight_bytes_(to_double(state_bytes(types_of_precision(layout.precision)).weights)),
        gradient_bytes_(sent_gradient_bytes(problem.implementation, layout.precision)),
        parts_{block_time(problem.model, problem.cluster, layout, problem.implementation, problem.sequence_length),
               head_time(problem.model, problem.cluster, layout, problem.implementation, problem.sequence_length),
               embedding_time(problem.model, problem.cluster, layout, problem.implementation, problem.sequence_length)},
        elements_(layer_elements(problem.model, layout_, problem.implementation)) {
    for (const std::vector<ChunkLayers>& stage : with_layers(problem, layout).chunks()) {
      std::vector<ChunkParts>& parts = stages_.emplace_back();
      for (const ChunkLayers& chunk : stage)
        parts.push_back({.blocks = to_double(chunk.count), .embedding = chunk.embedding, .head = chunk.head});
    }
  }

  LayoutPrice price(Effort effort) {
    LayoutPrice result{.layout = layout_};
    PipelineCosts costs{.schedule = layout_.schedule, .microbatches = layout_.num_microbatches(), .chunks = {}};
    std::vector<std::vector<ChunkTimes>> times;
    ChunkParts last_parts;
    ChunkTimes last_times = chunk_times(last_parts);
    for (const auto& stage : stages_) {
      times.emplace_back();
      costs.chunks.emplace_back();
      for (const ChunkParts& chunk : stage) {
        if (chunk != last_parts) {  // most chunks are like the one before
          last_parts = chunk;
          last_times = chunk_times(chunk);
        }
        times.back().push_back(last_times);
        costs.chunks.back().push_back(last_times.seconds);
      }
    }
    if (layout_.pipeline > 1)
      costs.message = stage_message();
    const auto run = [&](const PipelineCosts& each) {
      return effort == Effort::simulate ? pipeline_time(each) : estimate_pipeline_time(each);
    };
    const PipelineTime pipeline = run(costs);
    double window_without_messages = pipeline.window;
    if (layout_.pipeline > 1) {
      PipelineCosts free = costs;
      free.message = 0;
      window_without_messages = std::min(pipeline.window, run(free).window);
    }
    result.message_seconds = costs.message;
    const auto busiest = static_cast<std::size_t>(pipeline.busiest_stage);
    PhaseSeconds every_stage = data_and_optimizer(result, times[busiest]);
    every_stage[Phase::pipeline_comm] += pipeline.window - window_without_messages;
    every_stage[Phase::other] += cluster().device.step_seconds * (problem_.implementation.compiled ? compiled_step : 1);
    for (const auto& stage : times) {
      result.stages.push_back(stage_phases(stage, every_stage, window_without_messages));
      std::vector<ChunkPrice>& chunks = result.chunks.emplace_back();
      for (const ChunkTimes& chunk : stage)
        chunks.push_back(chunk_price(chunk));
    }
    result.seconds = result.stages[busiest];
    result.step_seconds = result.seconds.total();
    for (const ChunkTimes& chunk : times[busiest])
      result.recompute_seconds += to_double(layout_.num_microbatches()) * chunk.recompute.work();
    result.idle_share = pipeline.idle_share;
    finish(result);
    return result;
  }

 private:
  const Cluster& cluster() const { return problem_.cluster; }
  // Work with messages among replicas beside it.
  double with_messages(double work, double messages) const {
    return problem_.implementation.overlaps_reduction ? beside(cluster().device, work, messages) : work + messages;
  }

  double elements(const ChunkParts& chunk) const {
    return chunk.blocks * elements_.block + (chunk.embedding ? elements_.embedding : 0) +
           (chunk.head ? elements_.head : 0);
  }

  ChunkTimes chunk_times(const ChunkParts& chunk) const {
    ChunkTimes times;
    BlockTime all;
    const auto add = [&](double count, const BlockTime& part) {
      all.forward += count * part.forward;
      all.backward_input += count * part.backward_input;
      all.backward_weight += count * part.backward_weight;
      all.recompute += count * part.recompute;
      times.seconds.forward += count * part.forward.seconds();
      times.seconds.backward_input += count * (part.backward_input.seconds() + part.recompute.seconds());
      times.seconds.backward_weight += count * part.backward_weight.seconds();
    };
    add(chunk.blocks, parts_.block);
    if (chunk.embedding)
      add(1, parts_.embedding);
    if (chunk.head)
      add(1, parts_.head);
    if (layout_.zero_stage >= 2)
      exchange_each_microbatch(chunk, times);
    set_shares(times, all);
    return times;
  }

  // PassTime::seconds() of all layers together is not the sum of that of each, so passes are scaled to this sum.
  static void set_shares(ChunkTimes& times, const BlockTime& all) {
    const double of_layers = times.seconds.total() - times.exposed_data;
    const double together =
        all.forward.seconds() + all.backward_input.seconds() + all.backward_weight.seconds() + all.recompute.seconds();
    const auto share_of = [&](const PassTime& pass) -> PassShare {
      const double seconds = together > 0 ? of_layers / together * pass.seconds() : 0;
      const double on_device = pass.products + pass.elementwise + pass.tensor;
      return {seconds, on_device > 0 ? seconds * pass.tensor / on_device : 0};
    };
    times.forward = share_of(all.forward);
    times.backward_input = share_of(all.backward_input);
    times.backward_weight = share_of(all.backward_weight);
    times.recompute = share_of(all.recompute);
  }

  // From ZeRO-2 on no rank has room for all gradients: those of every micro-batch are scattered. ZeRO-3 also gathers
  // the weights of a block before each use. Both go on beside the work of the block before [Zhao et al. 2023].
  void exchange_each_microbatch(const ChunkParts& chunk, ChunkTimes& times) const {
    const double count = std::max(1.0, chunk.blocks);
    const double of_experts = expert_elements(chunk) / count;
    const double others = sharded_elements(chunk) / count - of_experts;
    const bool one_ring = problem_.implementation.one_ring;
    const auto seconds = [&](Collective kind, double bytes) {
      double each = collective_seconds(cluster(), kind, shard_axis(layout_), bytes * others, one_ring);
      if (of_experts > 0)
        each += collective_seconds(cluster(), kind, expert_axis(layout_, problem_.implementation.experts),
                                   bytes * of_experts, one_ring);
      return count * each;
    };
    double gather = layout_.zero_stage == 3 ? seconds(Collective::all_gather, weight_bytes_) : 0;
    const double scatter = seconds(Collective::reduce_scatter, gradient_bytes_);
    const double again = layout_.keep_gathered ? 0 : gather;  // in backward
    if (layout_.keep_gathered)
      gather /= to_double(layout_.num_microbatches());
    const double forward = with_messages(times.seconds.forward, gather);
    const double backward_work = times.seconds.backward_input + times.seconds.backward_weight;
    const double backward = with_messages(backward_work, again + scatter);
    times.data = gather + again + scatter;
    times.exposed_data = forward - times.seconds.forward + backward - backward_work;
    times.seconds.forward = forward;
    times.seconds.backward_input += backward - backward_work;
  }

  double expert_elements(const ChunkParts& chunk) const { return chunk.blocks * elements_.experts; }

  double sharded_elements(const ChunkParts& chunk) const {
    if (layout_.zero_stage < 2)
      return 0;
    return problem_.implementation.shards_tables ? elements(chunk) : elements({.blocks = chunk.blocks});
  }

  double stage_message() const {
    const double rows = to_double(layout_.micro_batch) * to_double(problem_.sequence_length) / layout_.context;
    const double bytes =
        stage_output_bytes(problem_.implementation, layout_.precision, rows, problem_.model.hidden_size);
    const AxisPlacement axis = pipeline_axis(layout_);
    if (layout_.tensor == 1 || (!problem_.implementation.splits_messages && !layout_.sequence_parallel))
      return message_seconds(cluster(), axis, bytes);
    const double part = message_seconds(cluster(), axis, bytes / layout_.tensor);
    return layout_.sequence_parallel
               ? part
               : part + collective_seconds(cluster(), Collective::all_gather, tensor_axis(layout_), bytes);
  }

  // The work of a stage, what all stages spend alike, and waiting for the rest of the window.
  PhaseSeconds stage_phases(const std::vector<ChunkTimes>& chunks, const PhaseSeconds& alike, double window) const {
    const double microbatches = to_double(layout_.num_microbatches());
    PhaseSeconds phases = alike;
    double busy = 0;
    for (const ChunkTimes& chunk : chunks) {
      account(phases, chunk, microbatches);
      busy += microbatches * chunk.seconds.total();
    }
    phases[Phase::bubble] = window - busy;
    return phases;
  }

  void account(PhaseSeconds& result, const ChunkTimes& chunk, double microbatches) const {
    for (const auto& [phase, pass] : {std::pair{Phase::forward, &chunk.forward},
                                      {Phase::backward, &chunk.backward_input},
                                      {Phase::backward, &chunk.backward_weight},
                                      {Phase::backward, &chunk.recompute}}) {
      result[Phase::tensor_comm] += microbatches * pass->tensor;
      result[phase] += microbatches * pass->work();
    }
    result[Phase::data_comm] += microbatches * chunk.exposed_data;
  }

  static ChunkPrice chunk_price(const ChunkTimes& chunk) {
    const double in_input = chunk.backward_input.tensor + chunk.recompute.tensor;
    ChunkSeconds work = chunk.seconds;
    work.forward -= chunk.forward.tensor;
    work.backward_input -= in_input;
    work.backward_weight -= chunk.backward_weight.tensor;
    return {.work = work,
            .tensor = chunk.forward.tensor + in_input + chunk.backward_weight.tensor,
            .with_collectives = chunk.seconds};
  }

  struct LargestStage {
    double elements = 0;
    double blocks = 0;
    double unsharded = 0;  // elements that ZeRO does not shard, but for the optimizer
  };

  LargestStage largest_stage() const {
    LargestStage largest;
    for (const auto& stage : stages_) {
      LargestStage mine;
      for (const ChunkParts& chunk : stage) {
        mine.elements += elements(chunk);
        mine.blocks += chunk.blocks;
        mine.unsharded += elements(chunk) - sharded_elements(chunk);
      }
      if (mine.elements > largest.elements)
        largest = mine;
    }
    return largest;
  }

  // What follows or goes beside the pipeline's work: the step waits for the largest stage.
  PhaseSeconds data_and_optimizer(LayoutPrice& price, const std::vector<ChunkTimes>& busiest) const {
    const LargestStage stage = largest_stage();
    const double own = stage.elements / (layout_.zero_stage > 0 ? layout_.shards() * layout_.context : 1);
    PhaseSeconds result;
    result[Phase::optimizer] += traffic_seconds(
        cluster().device, (problem_.implementation.fused_optimizer ? adam_bytes : unfused_adam_bytes) * own);
    if (problem_.model.tied_embeddings && !layout_.has_head(0)) {
      // The two ranks exchange halves, and each adds up one; then they gather the sums.
      price.tied_seconds =
          2 * message_seconds(cluster(), pipeline_axis(layout_), elements_.table * gradient_bytes_ / 2);
      price.reduction_seconds = price.tied_seconds;
      result[Phase::data_comm] += price.tied_seconds;
    }
    if (layout_.gradient_ranks() > 1)
      result[Phase::data_comm] += exchange_each_step(price, busiest, stage, own);
    return result;
  }

  // What shows of the collectives with the other replicas that go once a step.
  double exchange_each_step(LayoutPrice& price, const std::vector<ChunkTimes>& busiest, const LargestStage& stage,
                            double own) const {
    const AxisPlacement axis = shard_axis(layout_);
    double reduce = 0;
    double gather = 0;
    if (layout_.zero_stage == 0)
      reduce = collective_seconds(cluster(), Collective::all_reduce, axis, stage.elements * gradient_bytes_);
    if (layout_.zero_stage > 0 && stage.unsharded > 0)
      reduce = collective_seconds(
          cluster(), problem_.implementation.reduces_all ? Collective::all_reduce : Collective::reduce_scatter, axis,
          stage.unsharded * gradient_bytes_);
    // Copies of the shards are summed after the last micro-batch.
    reduce += collective_seconds(cluster(), Collective::all_reduce, copy_axis(layout_), own * gradient_bytes_);
    if (const double held = layout_.zero_stage == 3 ? stage.unsharded : stage.elements;
        layout_.zero_stage > 0 && held > 0)
      gather = collective_seconds(cluster(), Collective::all_gather, axis, held * weight_bytes_);
    const double microbatches = to_double(layout_.num_microbatches());
    double forward = 0;
    double backward = 0;
    for (const ChunkTimes& chunk : busiest) {
      forward += chunk.seconds.forward;
      backward += chunk.seconds.backward_input + chunk.seconds.backward_weight;
      price.reduction_seconds += microbatches * chunk.data;
      price.overlapped_data_seconds += microbatches * (chunk.data - chunk.exposed_data);
    }
    const double waited =
        exposed(backward, reduce) + (problem_.implementation.overlaps_gather ? exposed(forward, gather) : gather);
    price.gather_seconds = gather;
    price.reduction_seconds += reduce + gather;
    price.overlapped_data_seconds += reduce + gather - waited;
    const bool slices = problem_.implementation.slices_tensors && layout_.zero_stage > 0;
    const double slices_started = slices ? 2 * elements_.block_tensors * stage.blocks * axis.size : 0;
    return waited + slices_started * cluster().device.kernel_seconds;
  }

  // What of `messages` shows, beside the last pass of each micro-batch through the chunks of a stage, or the first:
  // `pass` seconds for all chunks. Interleaved, the last group of p micro-batches goes through one chunk after another;
  // while it goes through the others, the gradients of those that it has left are on their way, and so are before a
  // step the weights of those to come. Those of the last chunk have its own pass alone.
  double exposed(double pass, double messages) const {
    const auto beyond = [&](double work, double sent) { return with_messages(work, sent) - work; };
    const double chunks = layout_.schedule == ScheduleKind::interleaved ? layout_.virtual_stages : 1;
    const double group = std::min(to_double(layout_.pipeline), to_double(layout_.num_microbatches()));
    return std::max(beyond(pass * ((chunks - 1) * group + 1) / chunks, messages),
                    beyond(pass / chunks, messages / chunks));
  }

  void finish(LayoutPrice& result) const {
    result.memory = memory_of_stages(problem_, layout_);
    result.peak_stage = peak_stage(result.memory);
    result.memory_bytes = peak_bytes(result.memory);
    const double tokens = to_double(layout_.global_batch) * to_double(problem_.sequence_length);
    result.tokens_per_second = tokens / result.step_seconds;
    result.flops_shares = flops_shares(problem_, cluster().device.rate(layout_.precision), result.tokens_per_second,
                                       layout_.num_devices());
    result.step_interval = step_interval(problem_, result);
    result.memory_interval = memory_interval(problem_, result.memory_bytes);
    result.error_share = std::max(result.step_interval.high / result.step_seconds - 1,
                                  1 - result.step_interval.low / result.step_seconds);
  }

  const PlanProblem& problem_;
  Layout layout_;
  double weight_bytes_;    // of an element, as gathered
  double gradient_bytes_;  // as sent
  Parts parts_;
  LayerElements elements_;
  std::vector<std::vector<ChunkParts>> stages_;
};

}  // namespace

Layout with_layers(const PlanProblem& problem, Layout layout) {
  layout.layers = part_layers(problem.model, problem.sequence_length, layout);
  return layout;
}

std::string FlopsShares::text() const {
  std::string text = gemm_fraction ? fmt::format("GEMM fraction {:.1f} %", 100 * *gemm_fraction) : "";
  if (mfu)
    text += fmt::format("{}MFU {:.1f} %", text.empty() ? "" : ", ", 100 * *mfu);
  return text;
}

FlopsShares flops_shares(const PlanProblem& problem, const MatrixRate& rate, double tokens_per_second,
                         int num_devices) {
  const auto fraction = [&](const auto& formula, double rate_of_device) -> std::optional<double> {
    if (rate_of_device <= 0)
      return std::nullopt;
    return formula(problem.model, problem.sequence_length, tokens_per_second, rate_of_device * num_devices, 1);
  };
  return {.gemm_fraction = fraction(gemm_fraction, rate.is_measured ? rate.peak_flops : 0),
          .mfu = fraction(mfu, rate.peak())};
}

LayoutPrice price_layout(const PlanProblem& problem, const Layout& layout, Effort effort) {
  return Pricer(problem, layout).price(effort);
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/rehearsal/rehearsal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/scalars.hpp"
#include "io/config/toml_config.hpp"
#include "io/records/run_details.hpp"
#include "io/records/run_paths.hpp"
#include "io/tokens/token_file.hpp"
#include "io/units.hpp"
#include "models/part_layers.hpp"
#include "parallel/schedule/schedule_run.hpp"
#include "training/config/emulation.hpp"
#include "training/prediction/predict_time.hpp"
#include "training/prediction/predict_traffic.hpp"

namespace espalier {
namespace {

constexpr Index num_steps = 4;               // the first is not counted
constexpr Index microbatches_a_stage = 4;    // of many more each does what the one before did
constexpr Index min_microbatches = 8;        // of a replica, so that its reduction has work to overlap with
constexpr double seconds_a_block = 1.5e-3;   // of a core, for one micro-batch through one tiny block and back
constexpr double share_of_cores = 0.2;       // that the tiny model may need: else ranks wait for cores
constexpr double block_collectives = 40e-3;  // seconds of one block's, at least: shorter ones take this machine's time
constexpr std::size_t tokens_repeat = 4;     // after so few; learned in some steps, and each model has as many
constexpr double free_bandwidth = 1e15;      // bytes a second: what no scale makes longer takes no time
constexpr double percent_of_longest = 1e4;   // so that shorter parts are written to a ten-thousandth

// The layout with as many micro-batches as fill and empty its pipeline; a multiple of the stages, as `interleaved`
// wants.
Layout rehearsed_layout(Layout layout) {
  const Index most = std::max(min_microbatches, microbatches_a_stage * layout.pipeline);
  layout.global_batch = std::min(layout.num_microbatches(), most) * layout.micro_batch * layout.data;
  return layout;
}

// Blocks of each part, in the planned proportion: as many as the cores bear, and as have collectives of a length that
// this machine's own messages do not reach. Each then stands for those of several planned blocks.
std::vector<Index> tiny_blocks(const std::vector<Index>& planned, const Rehearsal& rehearsal, double seconds,
                               int cores) {
  const Layout& layout = rehearsal.price.layout;
  const double num_planned = to_double(std::accumulate(planned.begin(), planned.end(), Index{0}));
  const double passes = num_planned * to_double(layout.num_microbatches()) * layout.data * layout.tensor;
  double share = share_of_cores * cores * seconds / (seconds_a_block * to_double(num_steps)) / passes;
  if (layout.tensor > 1) {
    double collectives = 0;  // seconds of one micro-batch on its way through all parts
    for (const auto& stage : rehearsal.price.chunks)
      for (const ChunkPrice& chunk : stage)
        collectives += chunk.tensor;
    share = std::min(share, rehearsal.time_scale * collectives / num_planned / block_collectives);
  }
  std::vector<Index> blocks;
  for (const Index count : planned)
    blocks.push_back(std::max<Index>(1, std::llround(std::min(1.0, share) * to_double(count))));
  return blocks;
}

Index rounded_up(double value, Index multiple) {
  return multiple * std::max<Index>(1, static_cast<Index>(std::ceil(value / to_double(multiple))));
}

// The shape of the planned model in small: the tables of embedding and head weigh as much beside the blocks.
std::vector<std::string> tiny_model(const PlanProblem& problem, const Layout& layout, Index num_blocks) {
  const Index heads = layout.tensor;
  const Index hidden = heads * std::max<Index>(4, 16 / heads);
  const double smaller = to_double(hidden) / to_double(problem.model.hidden_size) * to_double(num_blocks) /
                         to_double(problem.model.num_layers);
  const Index sequence = rounded_up(8, layout.tensor);
  std::vector<std::string> keys =
      model_keys({.vocab_size = rounded_up(smaller * to_double(problem.model.vocab_size), 4 * heads),
                  .max_sequence_length = sequence,
                  .num_layers = num_blocks,
                  .hidden_size = hidden,
                  .num_heads = heads,
                  .ffn_hidden_size = 4 * hidden,
                  .tied_embeddings = problem.model.tied_embeddings});
  keys.push_back(fmt::format("batch.sequence_length={}", sequence));
  return keys;
}

RunConfig tiny_config(const PlanProblem& problem, const Layout& layout, const std::vector<Index>& blocks,
                      const std::string& token_file, const std::string& directory) {
  const Index num_blocks = std::accumulate(blocks.begin(), blocks.end(), Index{0});
  std::vector<std::string> keys = tiny_model(problem, layout, num_blocks);
  Layout tiny = layout;
  tiny.micro_batch = 1;
  tiny.global_batch = layout.num_microbatches() * layout.data;
  tiny.order = pipeline_first_order;  // see emulate_messages; times are estimated, wherever ranks lie
  tiny.precision = layout.precision == Precision::fp32 ? Precision::fp32 : Precision::bf16;
  tiny.layers = layout.pipeline > 1 ? blocks : std::vector<Index>();
  const std::vector<std::string> of_layout = settings_of(tiny);
  keys.insert(keys.end(), of_layout.begin(), of_layout.end());
  keys.insert(keys.end(),
              {override_text("data.train", token_file), "stability.straggler_window=0",
               override_text("run.directory", directory), fmt::format("run.steps={}", num_steps), "run.matmul=tiled"});
  return parse_run_config("", "rehearsal", keys, layout.num_devices());
}

// Seconds of passes and percentages of them, by part of the model in its order.
void emulate_work(RunConfig::Emulate& emulate, const LayoutPrice& price, double time_scale) {
  ChunkSeconds longest;
  const auto backward = [](const ChunkSeconds& work) { return work.backward_input + work.backward_weight; };
  for (const auto& stage : price.chunks)
    for (const ChunkPrice& chunk : stage) {
      longest.forward = std::max(longest.forward, chunk.work.forward);
      if (backward(chunk.work) > backward(longest)) {
        longest.backward_input = chunk.work.backward_input;
        longest.backward_weight = chunk.work.backward_weight;
      }
    }
  const double scale = 100 / percent_of_longest * time_scale;
  emulate.forward = scale * longest.forward;
  emulate.backward_input = scale * longest.backward_input;
  emulate.backward_weight = scale * longest.backward_weight;
  emulate.optimizer = time_scale * (price[Phase::optimizer] + price[Phase::other]);
  const auto percent = [](double seconds, double most) {
    return std::max<Index>(1, std::llround(percent_of_longest * seconds / most));
  };
  for (int chunk = 0; chunk < price.layout.virtual_stages; ++chunk)
    for (const auto& stage : price.chunks) {
      const ChunkSeconds& work = stage[static_cast<std::size_t>(chunk)].work;
      emulate.part_percent.push_back(percent(work.forward, longest.forward));
      emulate.backward_percent.push_back(percent(backward(work), backward(longest)));
    }
}

// What the tiny model sends, of the stage that sends most.
struct TinyTraffic {
  double seconds_a_tensor_byte = 0;  // estimated, on the cluster
  double message_bytes = 0;          // between stages
  double reduced_bytes = 0;          // of those that emulation scales
};

double reduced_bytes(const RunConfig& config, const Layout& layout, int rank) {
  const TrafficByGroup traffic = predict_reduction_traffic(config, layout, rank, types_of_run(config));
  std::uint64_t bytes = 0;
  for (const GroupKey& group : layout.mesh().groups())
    if (has_message_scale(group))
      bytes += traffic.at(group).bytes();
  return static_cast<double>(bytes);
}

TinyTraffic tiny_traffic(const RunConfig& config, const LayoutPrice& price) {
  const Layout layout = make_run_layout(config, price.layout.num_devices());
  const std::vector<PipelineSchedule> lists = make_schedules(config, layout);
  TinyTraffic most;
  for (int stage = 0; stage < layout.pipeline; ++stage) {
    const auto traffic =
        predict_traffic(config, layout, layout.mesh().first_rank_of_stage(stage), types_of_run(config));
    const auto bytes = [&](Axis axis) { return static_cast<double>(traffic[static_cast<std::size_t>(axis)]); };
    double tensor = 0;
    for (const ChunkPrice& chunk : price.chunks[static_cast<std::size_t>(stage)])
      tensor += to_double(price.layout.num_microbatches()) * chunk.tensor;
    if (bytes(Axis::tp) > 0)
      most.seconds_a_tensor_byte = std::max(most.seconds_a_tensor_byte, tensor / bytes(Axis::tp));
    const auto& list = lists[static_cast<std::size_t>(stage)];
    const auto sends = std::ranges::count_if(list, [](const Operation& o) { return is_send(o.kind); });
    if (sends > 0)
      most.message_bytes = std::max(most.message_bytes, bytes(Axis::pp) / static_cast<double>(sends));
    most.reduced_bytes =
        std::max(most.reduced_bytes, reduced_bytes(config, layout, layout.mesh().first_rank_of_stage(stage)));
  }
  return most;
}

// The bytes of tiny tensors count such that messages along each axis take the seconds that are estimated. A replica is
// a node of its own: a long reduction does not hold up its messages, which are short.
void emulate_messages(RunConfig& config, const LayoutPrice& price, double time_scale) {
  RunConfig::Emulate& emulate = config.emulate;
  emulate.ranks_per_node = price.layout.tensor * price.layout.pipeline;
  emulate.bandwidth = emulate.node_bandwidth = free_bandwidth;
  const TinyTraffic traffic = tiny_traffic(config, price);
  if (price.reduction_seconds > 0 && traffic.reduced_bytes > 0) {
    // As many buckets as there would be, or as many as show how they go beside backward: on few cores the messages of
    // a thousand take longer than what is estimated. What buckets are padded with is sent, too.
    const auto gradients =
        static_cast<double>(price.memory[static_cast<std::size_t>(price.peak_stage)][Category::gradients]);
    const ReducerOptions usual;
    const double stood_for = std::min(gradients, usual.buckets * to_double(usual.bucket_bytes));
    emulate.data_message_scale = std::max(1.0, stood_for / traffic.reduced_bytes);
    const double counted_bytes = tiny_traffic(config, price).reduced_bytes * emulate.data_message_scale;
    (price.layout.data > 1 ? emulate.node_bandwidth : emulate.bandwidth) =
        counted_bytes / (time_scale * price.reduction_seconds);
  }
  const auto scale = [&](double seconds_a_byte) {
    return std::max(1e-3, time_scale * seconds_a_byte * emulate.bandwidth);
  };
  emulate.tensor_message_scale = scale(traffic.seconds_a_tensor_byte);
  if (traffic.message_bytes > 0)
    emulate.pipeline_message_scale = scale(price.message_seconds / traffic.message_bytes);
}

}  // namespace

Rehearsal make_rehearsal(const PlanProblem& problem, const Layout& layout, const std::string& token_file,
                         const std::string& directory, double seconds, int cores) {
  Rehearsal rehearsal{.price = price_layout(problem, rehearsed_layout(layout)),
                      .planned_microbatches = layout.num_microbatches(),
                      .planned_blocks = problem.model.num_layers};
  const LayoutPrice& price = rehearsal.price;
  rehearsal.time_scale = seconds / to_double(num_steps) / price.step_seconds;
  const std::vector<Index> planned = part_layers(problem.model, problem.sequence_length, layout);
  const std::vector<Index> blocks = tiny_blocks(planned, rehearsal, seconds, cores);
  rehearsal.config = tiny_config(problem, price.layout, blocks, token_file, directory);
  emulate_work(rehearsal.config.emulate, price, rehearsal.time_scale);
  emulate_messages(rehearsal.config, price, rehearsal.time_scale);
  rehearsal.config.emulate.planned_microbatches = rehearsal.planned_microbatches;
  return rehearsal;
}

void write_rehearsal_tokens(const Rehearsal& rehearsal, const Path& token_file) {
  const Index vocabulary = rehearsal.config.model.shape.vocab_size;
  std::vector<TokenId> tokens(static_cast<std::size_t>((num_steps + 1) * rehearsal.config.tokens_per_step() + 1));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<TokenId>(i % tokens_repeat);
  TokenFileWriter writer(token_file, "rehearsal", vocabulary);
  writer.append(tokens);
  writer.finish();
}

RehearsedStep rehearsed_step(const Rehearsal& rehearsal, const nlohmann::json& details) {
  const LayoutPrice& price = rehearsal.price;
  RehearsedStep step{.predicted_seconds = price.step_seconds};
  try {
    const MeasuredTime time = time_in(details);
    if (time.stages.size() != price.stages.size())
      throw std::runtime_error(
          fmt::format("times of {}, wanted {}", counted(std::ssize(time.stages), "stage"), price.stages.size()));
    step.rehearsed_seconds = time.step_seconds / rehearsal.time_scale;
    step.num_steps = time.steps;
    double busiest = 0;
    for (std::size_t stage = 0; stage < price.stages.size(); ++stage) {
      PhaseSeconds planned = price.stages[stage];
      planned[Phase::optimizer] += planned[Phase::other];
      planned[Phase::other] = 0;
      const double work = planned[Phase::forward] + planned[Phase::backward] + planned[Phase::tensor_comm];
      if (work <= busiest)
        continue;
      busiest = work;
      step.stage = static_cast<int>(stage);
      step.predicted = planned;
      for (std::size_t i = 0; i < num_phases; ++i)
        step.rehearsed.seconds[i] = time.stages[stage].seconds[i] / rehearsal.time_scale;
    }
  } catch (const std::runtime_error& error) {
    throw Error(ExitCode::data, {.what = "the rehearsal has no times",
                                 .where = (Path(rehearsal.config.run.directory) / RunFile::record).string(),
                                 .got = error.what(),
                                 .wanted = "details.time, with step_seconds, steps and the phases of each stage",
                                 .todo = "rehearse it again with this version of espalier"});
  }
  return step;
}

}  // namespace espalier

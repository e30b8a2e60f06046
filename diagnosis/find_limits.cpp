// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "core/median.hpp"
#include "core/scalars.hpp"
#include "diagnosis/find_time.hpp"
#include "diagnosis/finding.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "models/layout_rules.hpp"
#include "training/config/emulation.hpp"
#include "training/config/run_layout.hpp"

namespace espalier {
namespace {

constexpr double uneven = 0.03;  // of the mean stage

// Seconds of work of each stage, the median over replicas, with every slow rank as fast as the others.
std::vector<double> healthy_stages(const RecordedRun& run, const StepProfile& profile) {
  const std::vector<std::vector<double>> replicas = work_of_replicas(run, without_slow_ranks(profile));
  std::vector<double> stages;
  for (std::size_t stage = 0; stage < replicas.front().size(); ++stage) {
    std::vector<double> of_stage;
    for (const std::vector<double>& replica : replicas)
      of_stage.push_back(replica[stage]);
    stages.push_back(median_of(of_stage));
  }
  return stages;
}

double window(const RecordedRun& run, const StepProfile& profile, const std::vector<double>& stages) {
  return pipeline_time(pipeline_of(run, profile, stages)).window;
}

std::vector<double> evened(const std::vector<double>& stages) {
  const double mean = std::accumulate(stages.begin(), stages.end(), 0.0) / to_double(static_cast<Index>(stages.size()));
  return std::vector<double>(stages.size(), mean);
}

// The layers as balance_layers() would cut them, a block costing what it was measured to. `at_best` is the window of
// equal stages: chunks of unlike lengths may fit together better by chance, which no cut is worth.
Change balanced(const RecordedRun& run, const StepProfile& profile, const std::vector<double>& stages, double at_best) {
  const RunConfig& config = run.config;
  const auto parts = static_cast<int>(config.layout.layers.size());
  std::vector<LayerCosts> costs(to_size(parts));  // of a layer on each part
  if (!config.emulates_operations())
    for (int part = 0; part < parts; ++part)
      costs[to_size(part)] = layer_flops(config.model.shape, config.sequence_length,
                                         config.layout.recompute_of(config.layout.stage_of_part(part)));
  double all = costs.front().embedding + costs.back().head;
  for (int part = 0; part < parts; ++part)
    all += to_double(config.layout.layers[to_size(part)]) * costs[to_size(part)].block;
  const double seconds_of_one = std::accumulate(stages.begin(), stages.end(), 0.0) / all;
  const std::vector<Index> wanted = balance_layers(config.model.shape.num_layers, costs);
  std::vector<double> after = stages;
  for (int part = 0; part < parts; ++part)
    after[to_size(config.layout.stage_of_part(part))] +=
        seconds_of_one * costs[to_size(part)].block *
        to_double(wanted[to_size(part)] - config.layout.layers[to_size(part)]);
  return {.setting = fmt::format("parallel.layers_per_stage = [{}]", fmt::join(wanted, ", ")),
          .gain_seconds = window(run, profile, stages) - std::max(window(run, profile, after), at_best),
          .estimated_by = "the simulated schedule with one layer moved"};
}

// Forward and backward alone, of the median rank of each stage.
std::vector<double> computing_of_stages(const StepProfile& profile, std::size_t num_stages) {
  std::vector<std::vector<double>> ranks(num_stages);
  for (const RankProfile& rank : profile.ranks)
    ranks[to_size(rank.coordinates[Axis::pp])].push_back(rank.compute());
  std::vector<double> stages;
  for (std::vector<double>& of_stage : ranks)
    stages.push_back(median_of(std::move(of_stage)));
  return stages;
}

void find_uneven_stages(const RecordedRun& run, const StepProfile& profile, const std::vector<double>& stages,
                        std::vector<Finding>& findings) {
  const std::vector<double> even = evened(stages);
  const auto slowest = std::max_element(stages.begin(), stages.end());
  if (stages.size() < 2 || *slowest < (1 + uneven) * even.front())
    return;
  const auto stage = slowest - stages.begin();
  // Exchanges of tensor ranks, which are in the work, have findings of their own.
  const std::vector<double> computing = computing_of_stages(without_slow_ranks(profile), stages.size());
  if (computing[to_size(stage)] < (1 + uneven) * evened(computing).front())
    return;
  const std::vector<Index> layers = run.config.layout.layers_of_stages();
  Finding finding{
      .cause = Cause::uneven_stages, .title = {}, .size = *slowest / even.front(), .unit = "times the mean"};
  const double at_best = window(run, profile, even);
  finding.seconds = window(run, profile, stages) - at_best;
  finding.title = fmt::format("stage {} works {:.0f} % more than the mean stage, and the others wait for it", stage,
                              100 * (finding.size - 1));
  std::vector<std::string> seconds;
  for (const double each : stages)
    seconds.push_back(fmt::format("{:.4g}", each));
  finding.evidence = {fmt::format("seconds of work a step by stage: {}", fmt::join(seconds, ", "))};
  for (int rank = 0; rank < static_cast<int>(profile.ranks.size()); ++rank)
    if (profile.ranks[to_size(rank)].coordinates[Axis::pp] == static_cast<int>(stage))
      finding.ranks.push_back(rank);
  if (!layers.empty()) {
    finding.evidence.push_back(fmt::format("layers by stage: {}", fmt::join(layers, ", ")));
    const Change change = balanced(run, profile, stages, at_best);
    if (change.gain_seconds > 0.01 * finding.seconds) {
      finding.changes.push_back(change);
      finding.is_fault = true;  // better cuts cost nothing
    }
  }
  if (finding.changes.empty()) {
    const bool can_chunk = run.config.layout.virtual_stages == 1 &&
                           has_layer_for_each_part(run.config.model.shape, run.config.layout.pipeline, 2);
    finding.changes.push_back(
        {.setting = fmt::format("no other split of whole layers is better{}",
                                can_chunk ? ": parallel.virtual_stages = 2 splits finer"
                                          : ", and there are too few layers to split finer: use fewer stages")});
  }
  findings.push_back(std::move(finding));
}

// Another way to fill the pipeline: its step, with as many tokens as now.
Change refilled(const RecordedRun& run, const std::string& setting, PipelineCosts costs, double tokens, double now) {
  return {.setting = setting,
          .gain_seconds = now - pipeline_time(costs).window / tokens,
          .estimated_by = fmt::format("the simulated schedule with the measured times{}",
                                      tokens > 1 ? "; gain for the same number of tokens"
                                      : costs.microbatches > run.config.layout.num_microbatches()
                                          ? "; half as long for half as many sequences"
                                          : ""),
          .grows_batch = tokens > 1};
}

// Without those that change the number of micro-batches where the run has only some of its plan's.
std::vector<Change> ways_to_fill(const RecordedRun& run, const PipelineCosts& costs) {
  const RunConfig& config = run.config;
  const double now = pipeline_time(costs).window;
  std::vector<Change> changes;
  if (config.layout.micro_batch % 2 == 0 && !is_part_of_a_step(config)) {
    PipelineCosts finer = costs;
    finer.microbatches *= 2;
    for (auto& stage : finer.chunks)
      for (ChunkSeconds& chunk : stage)
        chunk = {chunk.forward / 2, chunk.backward_input / 2, chunk.backward_weight / 2};
    changes.push_back(
        refilled(run, fmt::format("batch.micro_batch_size = {}", config.layout.micro_batch / 2), finer, 1, now));
  }
  if (!is_part_of_a_step(config)) {
    PipelineCosts longer = costs;
    longer.microbatches *= 2;
    changes.push_back(refilled(
        run,
        fmt::format("batch.global_batch_size = {} (other steps, other learning rate)", 2 * config.layout.global_batch),
        longer, 2, now));
  }
  if (costs.num_chunks() == 1 && costs.schedule == ScheduleKind::one_f_one_b) {
    PipelineCosts zero = costs;
    zero.schedule = ScheduleKind::zero_bubble;
    changes.push_back(refilled(run, "parallel.schedule = \"zero_bubble\"", zero, 1, now));
    if (has_layer_for_each_part(config.model.shape, config.layout.pipeline, 2)) {
      PipelineCosts chunked = costs;
      chunked.schedule = ScheduleKind::interleaved;
      for (auto& stage : chunked.chunks) {
        const ChunkSeconds& whole = stage.front();
        stage.assign(2, {whole.forward / 2, whole.backward_input / 2, whole.backward_weight / 2});
      }
      changes.push_back(
          refilled(run, "parallel.schedule = \"interleaved\", parallel.virtual_stages = 2", chunked, 1, now));
    }
  }
  if (costs.schedule == ScheduleKind::sequential) {
    PipelineCosts overlapped = costs;
    overlapped.schedule = ScheduleKind::one_f_one_b;
    changes.push_back(refilled(run, "parallel.schedule = \"1f1b\"", overlapped, 1, now));
  }
  std::erase_if(changes, [](const Change& change) { return change.gain_seconds <= 0; });
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.gain_seconds > b.gain_seconds; });
  return changes;
}

void find_bubble(const RecordedRun& run, const StepProfile& profile, const std::vector<double>& stages,
                 std::vector<Finding>& findings) {
  if (stages.size() < 2)
    return;
  const PipelineCosts costs = pipeline_of(run, profile, evened(stages));
  const PipelineTime time = pipeline_time(costs);
  std::vector<double> measured;
  for (const RankProfile& rank : profile.ranks)
    measured.push_back(rank.seconds[Phase::bubble]);
  Finding finding{.cause = Cause::bubble, .title = {}, .size = time.idle_share, .unit = "share idle"};
  finding.seconds = time.window - time.busiest;
  finding.title =
      fmt::format("{} per replica are too few to fill {} stages ({}): each is idle for {:.0f} % of the pipeline's time",
                  counted(costs.microbatches, "micro-batch"), stages.size(), to_string(run.config.layout.schedule),
                  100 * time.idle_share);
  finding.evidence = {
      fmt::format("with these times and equal stages the schedule idles {:.4g} s a step", finding.seconds),
      fmt::format("measured: stages wait {:.4g} s a step for work of others (median of the ranks)",
                  median_of(measured))};
  if (is_part_of_a_step(run.config)) {
    finding.title = "in the rehearsed part, " + finding.title;
    finding.evidence.insert(
        finding.evidence.begin(),
        fmt::format("only {} of the plan's {} micro-batches ran: in a whole step the same idle time is a smaller share",
                    costs.microbatches, run.config.emulate.planned_microbatches));
  }
  finding.changes = ways_to_fill(run, costs);
  findings.push_back(std::move(finding));
}

// Of a stage what the least of its replicas has: one slow link is a finding of its own.
void find_stage_messages(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings) {
  if (run.config.layout.pipeline < 2 || has_slow_stage_link(run, profile))
    return;
  Finding finding{.cause = Cause::stage_messages, .title = {}, .unit = "s a step"};
  finding.seconds = finding.size = exposed_seconds(run, profile, Axis::dp, Phase::pipeline_comm);
  finding.title = fmt::format("{:.4g} s of a step go into messages between stages, not overlapped", finding.seconds);
  finding.evidence = prediction_evidence(run, Phase::pipeline_comm);
  const Index chunks = run.config.layout.virtual_stages;
  if (const Index fewer = (chunks + 1) / 2; fewer < chunks)
    finding.changes = {
        {.setting = fmt::format("parallel.virtual_stages = {}", fewer),
         .gain_seconds = finding.seconds * (1 - to_double(fewer) / to_double(chunks)),
         .estimated_by = fmt::format("{} of {} messages remain; that the bubble grows is not counted", fewer, chunks)}};
  else
    finding.changes = {
        {.setting = "fewer stages, or an order of the ranks (parallel.order) with neighbouring stages on a node"}};
  findings.push_back(std::move(finding));
}

// What sends less than a ZeRO stage that exchanges messages for every micro-batch; it takes more memory.
std::vector<Change> less_sharding(const Layout& layout, double seconds) {
  const auto messages = [](const Layout& of) { return to_double(of.sums_per_step() + of.gathers_per_step()); };
  std::vector<Change> changes;
  const auto add = [&](const char* setting, const Layout& then) {
    if (messages(then) < messages(layout))
      changes.push_back({.setting = setting,
                         .gain_seconds = seconds * (1 - messages(then) / messages(layout)),
                         .estimated_by = fmt::format(
                             "{:g} instead of {:g} sums and gathers of a layer in a step; it takes more memory",
                             messages(then), messages(layout))});
  };
  Layout other = layout;
  other.keep_gathered = true;
  add("parallel.keep_gathered = true", other);
  other.zero_stage = 1;
  add("parallel.zero_stage = 1", other);
  return changes;
}

void find_reduction(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings) {
  const RunConfig& config = run.config;
  if (config.layout.data == 1)
    return;
  Finding finding{.cause = Cause::gradient_reduction, .title = {}, .unit = "s a step"};
  finding.seconds = finding.size = exposed_seconds(run, profile, Axis::dp, Phase::data_comm);
  finding.title = fmt::format("{:.4g} s of a step go into {}summing gradients over {} replicas{}, not overlapped",
                              finding.seconds, config.layout.zero_stage == 3 ? "gathering weights and " : "",
                              config.layout.data, config.layout.zero_stage >= 2 ? " in every micro-batch" : "");
  std::vector<double> bytes;
  for (const auto& rank : run.ranks)
    if (!rank.empty())
      bytes.push_back(static_cast<double>(rank.back().bytes_sent[static_cast<std::size_t>(Axis::dp)]));
  if (message_scale(config.emulate, Axis::dp) ==
      1)  // else how much they count depends on which groups they were sent in
    finding.evidence = {fmt::format("a rank sends {} of gradients and weights a step",
                                    bytes_text(static_cast<std::size_t>(median_of(bytes))))};
  for (std::string& line : prediction_evidence(run, Phase::data_comm))
    finding.evidence.push_back(std::move(line));
  if (config.layout.zero_stage >= 2)
    finding.changes = less_sharding(config.layout, finding.seconds);
  else if (!is_part_of_a_step(config))
    finding.changes = {{.setting = fmt::format("batch.global_batch_size = {} (twice the micro-batches for one "
                                               "reduction; other steps, other learning rate)",
                                               2 * config.layout.global_batch),
                        .gain_seconds = finding.seconds / 2,
                        .estimated_by = "one reduction for twice the tokens; gain for the same number of tokens",
                        .grows_batch = true}};
  if (!train_settings(config).rounds_gradients && is_16_bits(config.layout.precision)) {
    const double sums = to_double(config.layout.sums_per_step());
    const double share = 2 * sums / (4 * sums + 2 * to_double(config.layout.gathers_per_step()));
    finding.changes.push_back(
        {.setting = "precision.gradient_reduction = \"compute\"",
         .gain_seconds = finding.seconds * share,
         .estimated_by = config.layout.zero_stage == 0
                             ? "half the bytes"
                             : fmt::format("{:.0f} % fewer bytes: 2 instead of 4 per gradient, and the same 2 per "
                                           "gathered weight",
                                           100 * share)});
  }
  findings.push_back(std::move(finding));
}

void find_optimizer(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings) {
  Finding finding{.cause = Cause::optimizer, .title = {}, .unit = "s a step"};
  for (const RankProfile& rank : profile.ranks)
    finding.seconds = finding.size = std::max(finding.seconds, rank.seconds[Phase::optimizer]);
  finding.title = fmt::format("the optimizer takes {:.4g} s of a step", finding.seconds);
  finding.evidence = prediction_evidence(run, Phase::optimizer);
  const int replicas = run.config.layout.data;
  if (replicas > 1 && run.config.layout.zero_stage == 0)
    finding.changes = {{.setting = "parallel.zero_stage = 1",
                        .gain_seconds = finding.seconds * (1 - 1.0 / replicas),
                        .estimated_by = "each replica updates its share; gathering the weights is not counted"}};
  findings.push_back(std::move(finding));
}

void find_overhead(const StepProfile& profile, std::vector<Finding>& findings) {
  Finding finding{.cause = Cause::overhead, .title = {}, .unit = "s a step"};
  std::vector<double> other;
  for (const RankProfile& rank : profile.ranks)
    other.push_back(rank.seconds[Phase::other]);
  finding.seconds = finding.size = median_of(other);
  finding.title = fmt::format("{:.4g} s of a step are in no phase", finding.seconds);
  finding.evidence = {
      "hosts that are busy with other work, or steps that are so short that launching work takes a large part"};
  findings.push_back(std::move(finding));
}

}  // namespace

double exposed_seconds(const RecordedRun& run, const StepProfile& profile, Axis axis, Phase phase) {
  double longest = 0;
  for (int rank = 0; rank < static_cast<int>(profile.ranks.size()); ++rank) {
    const double slow = phase == Phase::pipeline_comm ? 0 : seconds_of_slow_links(run, profile, rank, axis);
    longest = std::max(longest, min_of_group(run, profile, rank, axis, phase) - slow);
  }
  return longest;
}

std::vector<std::string> prediction_evidence(const RecordedRun& run, Phase phase) {
  if (!run.predicted_time)
    return {};
  double most = 0;
  for (const PhaseSeconds& stage : run.predicted_time->stages)
    most = std::max(most, stage[phase]);
  return {fmt::format("predicted: {:.4g} s", most)};
}

std::vector<Finding> find_limits(const RecordedRun& run, const StepProfile& profile) {
  std::vector<Finding> findings;
  const std::vector<double> stages = healthy_stages(run, profile);
  find_uneven_stages(run, profile, stages, findings);
  find_bubble(run, profile, stages, findings);
  find_stage_messages(run, profile, findings);
  find_reduction(run, profile, findings);
  find_tensor(run, profile, findings);
  find_optimizer(run, profile, findings);
  find_overhead(profile, findings);
  return findings;
}

}  // namespace espalier

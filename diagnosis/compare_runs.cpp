// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/compare_runs.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "io/config/config_diff.hpp"

namespace espalier {
namespace {

constexpr double same_speed = 0.03;

void add_facts(const RunFacts& before, const RunFacts& after, std::vector<Difference>& differences) {
  const auto add = [&](const char* what, const std::string& old_text, const std::string& new_text) {
    if (old_text != new_text)
      differences.push_back(
          {what, old_text.empty() ? "not noted" : old_text, new_text.empty() ? "not noted" : new_text});
  };
  add("program", before.program, after.program);
  add("cpu", before.cpu, after.cpu);
  add("hosts", fmt::format("{}", fmt::join(before.hosts, ", ")), fmt::format("{}", fmt::join(after.hosts, ", ")));
  add("threads of a rank", fmt::format("{}", before.threads), fmt::format("{}", after.threads));
  add("GEMM library", before.gemm_library, after.gemm_library);
}

void add_setup(const RunConfig& before, const RunConfig& after, std::vector<Difference>& differences) {
  const auto add = [&](const char* what, const std::string& old_text, const std::string& new_text) {
    if (old_text != new_text)
      differences.push_back({what, old_text, new_text});
  };
  add("layout", before.layout.mesh().text(), after.layout.mesh().text());
  add("micro-batches of a replica", fmt::format("{}", before.layout.num_microbatches()),
      fmt::format("{}", after.layout.num_microbatches()));
  add("tokens of a step", fmt::format("{}", before.tokens_per_step()), fmt::format("{}", after.tokens_per_step()));
}

// The order of differences: the model first, then layout, batch, hardware and program; of the rest what may explain
// another loss, then all else.
std::size_t order_of(const Difference& difference) {
  constexpr std::array<std::pair<std::string_view, std::size_t>, 14> order{{{"model.", 0},
                                                                            {"rotary.", 0},
                                                                            {"layout", 1},
                                                                            {"parallel.", 1},
                                                                            {"micro-batches of a replica", 2},
                                                                            {"tokens of a step", 2},
                                                                            {"batch.", 2},
                                                                            {"cpu", 3},
                                                                            {"hosts", 3},
                                                                            {"threads of a rank", 3},
                                                                            {"program", 4},
                                                                            {"GEMM library", 4},
                                                                            {"optimizer.", 5},
                                                                            {"precision.", 5}}};
  for (const auto& [start, position] : order)
    if (difference.what.starts_with(start))
      return position;
  return order.size();
}

double tokens_of_a_rank(const RunConfig& config) {
  return static_cast<double>(config.tokens_per_step()) / static_cast<double>(config.layout.num_devices());
}

PhaseSeconds for_1000_tokens(const RecordedRun& run, const StepProfile& profile) {
  PhaseSeconds mean;
  for (const RankProfile& rank : profile.ranks)
    for (std::size_t i = 0; i < num_phases; ++i)
      mean.seconds[i] += rank.seconds.seconds[i] / static_cast<double>(profile.ranks.size());
  mean[Phase::checkpoint] = profile.checkpoint_seconds;  // of rank 0, whom the others wait for
  for (double& seconds : mean.seconds)
    seconds *= 1000 / tokens_of_a_rank(run.config);
  return mean;
}

// Seconds for 1000 tokens that each cause costs a rank: of several slow ranks the most expensive, as each is estimated
// as if it were the only one and replicas wait for each other.
std::map<Cause, double> costs_of(const RecordedRun& run, const std::vector<Finding>& findings) {
  std::map<Cause, double> costs;
  for (const Finding& finding : findings)
    if (concern_of(finding.cause) == Concern::time) {
      const double cost = 1000 * finding.seconds / tokens_of_a_rank(run.config);
      double& sum = costs[finding.cause];
      sum = finding.cause == Cause::slow_rank ? std::max(sum, cost) : sum + cost;
    }
  return costs;
}

Phase phase_that_grew_most(const Comparison& comparison) {
  std::size_t most = 0;
  const auto growth = [&](std::size_t i) {
    return comparison.phases_after.seconds[i] - comparison.phases_before.seconds[i];
  };
  for (std::size_t i = 1; i < num_phases; ++i)
    if (growth(i) > growth(most))
      most = i;
  return static_cast<Phase>(most);
}

void explain(Comparison& comparison, const std::map<Cause, double>& before, const std::map<Cause, double>& after) {
  const double ratio = comparison.after / comparison.before;
  if (std::abs(ratio - 1) < same_speed)
    return;
  const double slower_by = 1000 / comparison.after - 1000 / comparison.before;  // seconds for 1000 tokens
  comparison.explanation = fmt::format("a rank trains {:.0f} % {} tokens per second", 100 * std::abs(ratio - 1),
                                       ratio < 1 ? "fewer" : "more");
  if (ratio > 1)
    return;
  double most = 0;
  for (const auto& [cause, cost] : after) {
    const auto found = before.find(cause);
    const double growth = cost - (found == before.end() ? 0 : found->second);
    if (growth > most) {
      most = growth;
      comparison.explained_by = cause;
    }
  }
  const Phase phase = phase_that_grew_most(comparison);
  const double grown = comparison.phases_after[phase] - comparison.phases_before[phase];
  comparison.explanation +=
      fmt::format("; {} grew most, by {:.4g} s for 1000 tokens of a rank", to_string(phase), grown);
  if (comparison.explained_by)
    comparison.explanation += fmt::format("; the finding {} explains {:.0f} % of the loss",
                                          to_string(*comparison.explained_by), 100 * std::min(1.0, most / slower_by));
}

}  // namespace

std::vector<Difference> differences_between(const RecordedRun& before, const RecordedRun& after) {
  std::vector<Difference> differences;
  add_facts(before.facts, after.facts, differences);
  add_setup(before.config, after.config, differences);
  for (const ConfigDifference& difference : diff_configs(before.config_text, after.config_text))
    if (difference.key != "run.directory")
      differences.push_back({difference.key, difference.old_value.empty() ? "absent" : difference.old_value,
                             difference.new_value.empty() ? "absent" : difference.new_value});
  std::ranges::stable_sort(differences, {}, order_of);
  return differences;
}

Comparison compare_runs(const RecordedRun& before, const StepProfile& profile_before,
                        const std::vector<Finding>& findings_before, const RecordedRun& after,
                        const StepProfile& profile_after, const std::vector<Finding>& findings_after) {
  Comparison comparison;
  comparison.against = before.directory;
  comparison.differences = differences_between(before, after);
  comparison.before = tokens_of_a_rank(before.config) / profile_before.total_seconds();
  comparison.after = tokens_of_a_rank(after.config) / profile_after.total_seconds();
  comparison.phases_before = for_1000_tokens(before, profile_before);
  comparison.phases_after = for_1000_tokens(after, profile_after);
  explain(comparison, costs_of(before, findings_before), costs_of(after, findings_after));
  return comparison;
}

std::vector<Finding> find_effective_batch(const RecordedRun& before, const RecordedRun& after, bool after_spikes) {
  const RunConfig& old_config = before.config;
  const RunConfig& new_config = after.config;
  const double batch_ratio =
      static_cast<double>(new_config.layout.global_batch) / static_cast<double>(old_config.layout.global_batch);
  if (batch_ratio == 1 || old_config.optimizer.learning_rate <= 0)
    return {};
  const double rate_ratio = new_config.optimizer.learning_rate / old_config.optimizer.learning_rate;
  Finding finding{.cause = Cause::effective_batch, .title = {}, .size = batch_ratio, .unit = "times the batch"};
  finding.title =
      fmt::format("the effective batch is {:.3g} times that of {} ({} sequences, it was {})", batch_ratio,
                  before.directory.string(), new_config.layout.global_batch, old_config.layout.global_batch);
  const double root = std::sqrt(batch_ratio);
  const bool scaled =
      rate_ratio >= 0.95 * std::min(root, batch_ratio) && rate_ratio <= 1.05 * std::max(root, batch_ratio);
  finding.risk = (after_spikes ? 0.95 : 0.5) * (scaled ? 0.5 : 1);
  finding.evidence = {
      fmt::format("replicas {} (was {}) x micro-batches {} (was {}) x {} sequences (was {})", new_config.layout.data,
                  old_config.layout.data, new_config.layout.num_microbatches(), old_config.layout.num_microbatches(),
                  new_config.layout.micro_batch, old_config.layout.micro_batch),
      fmt::format(
          "the peak learning rate is {:.3g} times that of before ({:g}, it was {:g}); this batch needs a "
          "rate between {:.3g} times (the square root of the ratio of the batches) and {:.3g} times (the ratio)",
          rate_ratio, new_config.optimizer.learning_rate, old_config.optimizer.learning_rate, root, batch_ratio),
      fmt::format("warm-up: {} steps, {:.4g} M tokens (it was {} steps, {:.4g} M tokens)",
                  new_config.optimizer.warmup_steps,
                  1e-6 * static_cast<double>(new_config.optimizer.warmup_steps * new_config.tokens_per_step()),
                  old_config.optimizer.warmup_steps,
                  1e-6 * static_cast<double>(old_config.optimizer.warmup_steps * old_config.tokens_per_step()))};
  if (!scaled)
    finding.changes.push_back(
        {.setting = fmt::format("optimizer.learning_rate = {:.3g}, with optimizer.warmup_steps = {} or more",
                                old_config.optimizer.learning_rate * root,
                                std::max(old_config.optimizer.warmup_steps, new_config.optimizer.warmup_steps))});
  finding.changes.push_back(
      {.setting = fmt::format("batch.global_batch_size = {}, as before: {} micro-batches of each "
                              "replica",
                              old_config.layout.global_batch, batch_ratio > 1 ? "fewer" : "more")});
  return {finding};
}

}  // namespace espalier

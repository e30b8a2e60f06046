// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <sstream>

#include "diagnosis/diagnose.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

constexpr std::size_t columns = 118;

// Words of `text` in lines of `columns`; lines after the first start with `indent` spaces.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string result;
  std::size_t column = indent;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > columns) {
      result += fmt::format("\n{:{}}", "", indent);
      column = indent;
    }
    if (column > indent)
      word.insert(word.begin(), ' ');
    result += word;
    column += word.size();
  }
  return result;
}

std::string item(const char* head, const std::string& text) {
  const std::size_t indent = 8 + std::string_view(head).size();
  return fmt::format("        {}{}\n", head, wrapped(text, indent));
}

std::string run_text(const RecordedRun& run, const Diagnosis& diagnosis) {
  const Finding* const grave = gravest(diagnosis);
  const RunConfig& config = run.config;
  std::string text = fmt::format("{}: {}{}{}, {}, {}\n", run.directory.string(), to_string(run.record.state),
                                 run.life == Life::gone     ? " (its process is gone)"
                                 : run.life == Life::silent ? " (its process cannot be seen from here)"
                                                            : "",
                                 grave != nullptr ? fmt::format(", {}", grave->verdict) : "",
                                 config.layout.mesh().text(), counted(config.layout.num_microbatches(), "micro-batch"));
  for (const std::string& gap : run.gaps)
    text += fmt::format("  note: {}\n", wrapped(gap, 8));
  return text;
}

constexpr Index few_steps = 3;
constexpr double too_short = 5e-4;  // of a step: not worth a line

// Mean of the ranks that are on `stage`; -1: of all.
double mean_seconds(const StepProfile& profile, Phase phase, int stage = -1) {
  double sum = 0;
  int count = 0;
  for (const RankProfile& rank : profile.ranks)
    if (stage < 0 || rank.coordinates[Axis::pp] == stage) {
      sum += rank.seconds[phase];
      ++count;
    }
  return count > 0 ? sum / count : 0;
}

// Empty without a prediction. All stages have as many ranks.
std::string predicted_text(const RecordedRun& run, Phase phase, int stage = -1) {
  if (!run.predicted_time || stage >= static_cast<int>(run.predicted_time->stages.size()))
    return "";
  double sum = 0;
  for (const PhaseSeconds& each : run.predicted_time->stages)
    sum += each[phase];
  return fmt::format("{:.4g}", stage < 0 ? sum / static_cast<double>(run.predicted_time->stages.size())
                                         : run.predicted_time->stages[static_cast<std::size_t>(stage)][phase]);
}

std::string phase_table(const RecordedRun& run, const StepProfile& profile) {
  std::string text = fmt::format("\n  {:<14}{:>11}{:>9}{:>12}{:>11}{:>11}{:>9}\n", "phase", "mean s", "share",
                                 run.predicted_time ? "predicted" : "", "least s", "most s", "on rank");
  for (std::size_t i = 0; i < num_phases; ++i) {
    const auto phase = static_cast<Phase>(i);
    const double mean = mean_seconds(profile, phase);
    if (mean <= too_short * profile.total_seconds())
      continue;
    const auto [least, most] = std::minmax_element(
        profile.ranks.begin(), profile.ranks.end(),
        [&](const RankProfile& a, const RankProfile& b) { return a.seconds[phase] < b.seconds[phase]; });
    text += fmt::format("  {:<14}{:>11.4g}{:>7.1f} %{:>12}{:>11.4g}{:>11.4g}{:>9}\n", to_string(phase), mean,
                        100 * mean / profile.total_seconds(), predicted_text(run, phase), least->seconds[phase],
                        most->seconds[phase], most - profile.ranks.begin());
  }
  return text + "  (the median step of each rank, then the mean of the ranks: the shares need not add up to 100 %)\n";
}

std::string stage_table(const RecordedRun& run, const StepProfile& profile) {
  constexpr std::array shown = {Phase::forward,       Phase::backward,  Phase::bubble,   Phase::tensor_comm,
                                Phase::pipeline_comm, Phase::data_comm, Phase::optimizer};
  std::string text = fmt::format("\n  seconds by stage, mean of its ranks{}\n  {:<7}",
                                 run.predicted_time ? "; predicted below" : "", "stage");
  for (const Phase phase : shown)
    text += fmt::format("{:>14}", to_string(phase));
  text += '\n';
  for (int stage = 0; stage < run.config.layout.pipeline; ++stage) {
    text += fmt::format("  {:<7}", stage);
    for (const Phase phase : shown)
      text += fmt::format("{:>14.4g}", mean_seconds(profile, phase, stage));
    text += '\n';
    if (!run.predicted_time)
      continue;
    text += fmt::format("  {:<7}", "");
    for (const Phase phase : shown)
      text += fmt::format("{:>14}", predicted_text(run, phase, stage));
    text += '\n';
  }
  return text;
}

std::string share_of_rate(const char* name, double share) {
  return share > 0 ? fmt::format("{} {:.0f} %", name, 100 * share) : "";
}

std::string profile_text(const RecordedRun& run, const StepProfile& profile) {
  std::string text = fmt::format(
      "a step takes {:.4g} s{} ({} looked at: {} to {})\n", profile.step_seconds,
      profile.checkpoint_seconds > 0 ? fmt::format(" and {:.4g} s of saving", profile.checkpoint_seconds) : "",
      counted(profile.num_steps, "step"), profile.first_step, profile.last_step);
  if (profile.tokens_per_second > 0)
    text += fmt::format("  {} tokens/s{}{}\n", count_text(profile.tokens_per_second),
                        share_of_rate(", GEMM fraction", profile.gemm_fraction), share_of_rate(", MFU", profile.mfu));
  if (profile.num_steps < few_steps)
    text += "  note: so few steps show little: the times of steps vary\n";
  if (run.predicted_time)
    text +=
        fmt::format("  predicted: {:.4g} s ({:+.0f} %), by {}\n", run.predicted_time->step_seconds,
                    100 * (profile.step_seconds / run.predicted_time->step_seconds - 1), run.predicted_time->source);
  text += phase_table(run, profile);
  if (run.config.layout.pipeline > 1)
    text += stage_table(run, profile);
  return text;
}

std::string finding_text(const Finding& finding, std::size_t number) {
  std::string text = fmt::format("  {:>2}. {}\n", number, wrapped(finding.title, 6));
  if (finding.seconds > 0)
    text += fmt::format("        costs {:.4g} s of a step, {:.0f} %\n", finding.seconds, 100 * finding.share);
  for (const std::string& evidence : finding.evidence)
    text += item("- ", evidence);
  for (const Change& change : finding.changes) {
    text += item("> ", change.setting);
    if (!change.estimated_by.empty())
      text += item("  ", fmt::format("gains {:.4g} s a step ({})", change.gain_seconds, change.estimated_by));
  }
  return text;
}

constexpr std::size_t max_differences = 12;  // those that explain most come first

std::string differences_text(const std::vector<Difference>& differences) {
  if (differences.empty())
    return "\n  nothing else differs\n";
  std::string text = "\n  what differs\n";
  const std::size_t shown = std::min(max_differences, differences.size());
  for (const Difference& each : std::span(differences).first(shown))
    text += fmt::format("    {}\n", wrapped(fmt::format("{}: {} (was {})", each.what, each.after, each.before), 6));
  if (shown < differences.size())
    text += fmt::format("    and {} more (--json has all)\n", differences.size() - shown);
  return text;
}

std::string comparison_text(const Comparison& comparison) {
  std::string text = fmt::format("\nagainst {}\n", comparison.against.string());
  if (comparison.before > 0)
    text += fmt::format("  tokens per second and rank: {:.4g}, it was {:.4g}\n", comparison.after, comparison.before);
  if (!comparison.explanation.empty())
    text += fmt::format("  {}\n", wrapped(comparison.explanation, 2));
  if (comparison.before > 0) {
    text +=
        fmt::format("\n  {:<14}{:>12}{:>12}{:>12}   s for 1000 tokens of a rank\n", "phase", "before", "now", "more");
    for (std::size_t i = 0; i < num_phases; ++i)
      if (comparison.phases_before.seconds[i] + comparison.phases_after.seconds[i] > 0)
        text += fmt::format("  {:<14}{:>12.4g}{:>12.4g}{:>12.4g}\n", to_string(static_cast<Phase>(i)),
                            comparison.phases_before.seconds[i], comparison.phases_after.seconds[i],
                            comparison.phases_after.seconds[i] - comparison.phases_before.seconds[i]);
  }
  return text + differences_text(comparison.differences);
}

}  // namespace

std::string diagnosis_text(const RecordedRun& run, const Diagnosis& diagnosis) {
  std::string text = run_text(run, diagnosis);
  if (diagnosis.profile)
    text += profile_text(run, *diagnosis.profile);
  std::optional<Concern> last;
  for (std::size_t i = 0; i < diagnosis.findings.size(); ++i) {
    const Concern concern = concern_of(diagnosis.findings[i].cause);
    if (last != concern)
      text += fmt::format("\n{}\n", heading(concern));
    last = concern;
    text += finding_text(diagnosis.findings[i], i + 1);
  }
  if (diagnosis.findings.empty() && !run.steps.empty())
    text += diagnosis.profile ? "\nno problem was found\n" : "\nno problem was found in the existing records\n";
  if (diagnosis.comparison)
    text += comparison_text(*diagnosis.comparison);
  return text;
}

}  // namespace espalier

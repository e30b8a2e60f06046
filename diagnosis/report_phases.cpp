// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "diagnosis/chart.hpp"
#include "diagnosis/report_cards.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

constexpr std::size_t most_columns = 300;  // of a stacked chart
constexpr std::size_t most_rows = 64;      // ranks that one looks at together

// Above this multiple of the median a step would make all others small.
constexpr double longest_shown = 3;

// The phases of a step; a checkpoint lies between two.
std::vector<Phase> phases_of_a_step() {
  std::vector<Phase> phases;
  for (std::size_t i = 0; i < num_phases; ++i)
    if (static_cast<Phase>(i) != Phase::checkpoint)
      phases.push_back(static_cast<Phase>(i));
  return phases;
}

// "tensor_comm" -> "tensor comm": the words of docs/running.md, legible.
std::string name_of(Phase phase) {
  std::string name = to_string(phase);
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

double finite(double value) { return is_drawable(value) ? value : 0; }

// Mean seconds by phase of the typical steps of a rank.
PhaseSeconds mean_seconds(const std::vector<StepTimes>& steps) {
  PhaseSeconds mean;
  const std::size_t first = first_typical_step(steps.size());
  for (std::size_t i = first; i < steps.size(); ++i)
    for (std::size_t phase = 0; phase < num_phases; ++phase)
      mean.seconds[phase] += finite(steps[i].seconds.seconds[phase]) / static_cast<double>(steps.size() - first);
  return mean;
}

std::vector<double> in_order(const PhaseSeconds& seconds, const std::vector<Phase>& phases) {
  std::vector<double> values;
  for (const Phase phase : phases)
    values.push_back(seconds[phase]);
  return values;
}

// Less than this share of a step nobody could see.
constexpr double visible_share = 2e-3;

// Those that can be seen somewhere.
std::vector<Phase> phases_in(const std::vector<PhaseSeconds>& all) {
  std::vector<Phase> phases = phases_of_a_step();
  std::erase_if(phases, [&](Phase phase) {
    return std::none_of(all.begin(), all.end(),
                        [&](const PhaseSeconds& seconds) { return seconds[phase] > visible_share * seconds.total(); });
  });
  return phases;
}

std::string saves_note(const RecordedRun& run) {
  Index saves = 0;
  double seconds = 0;
  for (const RecordedStep& step : run.steps)
    if (const double save = finite(step.times.seconds[Phase::checkpoint]); save > 0) {
      ++saves;
      seconds += save;
    }
  return saves == 0 ? ""
                    : fmt::format(" Between steps: {}, {} together.", counted(saves, "save"), seconds_text(seconds));
}

// Work of a rank itself: the rank with most of it is the one that others wait for.
double work(const PhaseSeconds& seconds) {
  return seconds[Phase::forward] + seconds[Phase::backward] + seconds[Phase::optimizer] + seconds[Phase::data];
}

// At most most_rows ranks, those with most work, by rank.
std::vector<std::size_t> ranks_to_show(const std::vector<PhaseSeconds>& ranks) {
  std::vector<std::size_t> chosen(ranks.size());
  std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  if (chosen.size() <= most_rows)
    return chosen;
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](std::size_t a, std::size_t b) { return work(ranks[a]) > work(ranks[b]); });
  chosen.resize(most_rows);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

// Each stage as predicted, then its ranks.
std::vector<BarRow> rows_of(const RecordedRun& run, const std::vector<PhaseSeconds>& ranks,
                            const std::vector<std::size_t>& shown, const std::vector<Phase>& phases) {
  std::vector<BarRow> rows;
  const std::size_t num_stages = run.is_predicted() ? run.prediction->stages.size() : 0;
  const auto stage_of = [&](std::size_t rank) { return run.setup.mesh.coordinates(static_cast<int>(rank))[Axis::pp]; };
  for (int stage = 0; stage < run.setup.stages(); ++stage) {
    if (static_cast<std::size_t>(stage) < num_stages)
      rows.push_back({.label = num_stages == 1 ? "predicted" : fmt::format("stage {} predicted", stage),
                      .values = in_order(run.prediction->stages[static_cast<std::size_t>(stage)].seconds, phases),
                      .is_predicted = true});
    for (const std::size_t rank : shown)
      if (stage_of(rank) == stage)
        rows.push_back({.label = fmt::format("rank {}", rank), .values = in_order(ranks[rank], phases)});
  }
  return rows;
}

}  // namespace

std::optional<ReportCard> phases_card(const RecordedRun& run) {
  if (run.steps.empty())
    return std::nullopt;
  std::vector<PhaseSeconds> all;
  for (const RecordedStep& step : run.steps)
    all.push_back(step.times.seconds);
  const std::vector<Phase> phases = phases_in(all);
  StackedChart chart;
  for (const RecordedStep& step : run.steps)
    chart.columns.x.push_back(static_cast<double>(step.times.step));
  double longest = 0;
  for (const Phase phase : phases) {
    std::vector<double>& column = chart.columns.columns.emplace_back();
    for (const PhaseSeconds& seconds : all)
      column.push_back(seconds[phase]);
    chart.names.push_back(name_of(phase));
    chart.colours.emplace_back(to_string(phase));
  }
  chart.columns = average_out(chart.columns, most_columns);
  for (std::size_t i = 0; i < chart.columns.x.size(); ++i) {
    double sum = 0;
    for (const std::vector<double>& column : chart.columns.columns)
      sum += column[i];
    longest = std::max(longest, sum);
  }
  const double typical = finite(typical_step_seconds(run).value_or(0));
  if (typical > 0 && longest > longest_shown * typical)
    chart.top = longest_shown * typical;
  chart.unit = unit_of_seconds(chart.top > 0 ? chart.top : longest);
  chart.label = fmt::format("Time of a step by phase, rank 0, from step {} to {}", run.steps.front().times.step,
                            run.steps.back().times.step);
  ReportCard card{
      .id = "phases",
      .title = "Time by phase",
      .subtitle = fmt::format("{} a step, rank 0", chart.unit.name),
      .note = fmt::format(
          "{}{}", chart.top > 0 ? fmt::format("The longest reaches {}, beyond the top.", seconds_text(longest)) : "",
          saves_note(run))};
  for (const Phase phase : phases)
    card.legend.push_back({name_of(phase), to_string(phase)});
  card.views = {{"linear", draw(chart)}};
  return card;
}

std::optional<ReportCard> ranks_card(const RecordedRun& run) {
  std::vector<PhaseSeconds> ranks;
  for (const std::vector<StepTimes>& steps : run.ranks)
    ranks.push_back(mean_seconds(steps));
  if (run.steps.empty() || ranks.empty())
    return std::nullopt;
  std::vector<PhaseSeconds> all = ranks;
  if (run.is_predicted())
    for (const RunPrediction::Stage& stage : run.prediction->stages)
      all.push_back(stage.seconds);
  const std::vector<Phase> phases = phases_in(all);
  std::vector<std::size_t> shown = ranks_to_show(ranks);
  std::erase_if(shown, [&](std::size_t rank) { return run.ranks[rank].empty(); });
  BarChart chart{
      .label = fmt::format("Mean time of a step by phase, of {}{}", counted(static_cast<Index>(ranks.size()), "rank"),
                           run.is_predicted() ? ", and predicted" : ""),
      .rows = rows_of(run, ranks, shown, phases)};
  double longest = 0;
  for (const BarRow& row : chart.rows)
    longest = std::max(longest, std::accumulate(row.values.begin(), row.values.end(), 0.0));
  chart.unit = unit_of_seconds(longest);
  ReportCard card{
      .id = "ranks",
      .title = "Time of a typical step",
      .subtitle = fmt::format("{}, mean without the first tenth of the steps{}", chart.unit.name,
                              run.is_predicted() ? ", and as predicted (pale)" : ""),
      .left = run.is_predicted() ? "7.4rem" : "4.4rem",
      .note = shown.size() < ranks.size()
                  ? fmt::format("{} of {} ranks: those with most work of their own.", shown.size(), ranks.size())
                  : ""};
  for (const Phase phase : phases) {
    chart.names.push_back(name_of(phase));
    chart.colours.emplace_back(to_string(phase));
    card.legend.push_back({name_of(phase), to_string(phase)});
  }
  card.is_wide = chart.rows.size() > 12;
  card.views = {{"linear", draw(chart)}};
  return card;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "diagnosis/report_data.hpp"
#include "diagnosis/thin_out.hpp"
#include "io/json_by_name.hpp"

namespace espalier {
namespace {

constexpr std::size_t max_points = 3000;  // of a curve
constexpr std::size_t max_columns = 300;  // of the phases over steps
constexpr std::size_t max_ranks = 64;     // that one looks at together
constexpr std::size_t max_stages = 32;

// Less than this share of a step nobody could see.
constexpr double visible_share = 2e-3;

using Value = std::optional<double> (*)(const StepRecord&);

ReportJson curve(const RecordedRun& run, Value value) {
  std::vector<CurvePoint> points;
  for (const StepRecord& step : run.steps)
    if (const auto y = value(step))
      points.push_back({static_cast<double>(step.times.step), *y});
  ReportJson curve = ReportJson::array();
  for (const CurvePoint& point : thin_out(points, max_points))
    curve.push_back({point.x, number_data(point.y)});
  return curve;
}

double finite(double value) { return is_drawable(value) ? value : 0; }

ReportJson numbers(const std::vector<double>& values) {
  ReportJson all = ReportJson::array();
  for (const double value : values)
    all.push_back(number_data(value));
  return all;
}

// Mean seconds by phase of the typical steps of a rank.
PhaseSeconds mean_seconds(const std::vector<StepTimes>& steps) {
  PhaseSeconds mean;
  const std::size_t first = first_typical_step(steps.size());
  for (std::size_t i = first; i < steps.size(); ++i)
    for (std::size_t phase = 0; phase < num_phases; ++phase)
      mean.seconds[phase] += finite(steps[i].seconds.seconds[phase]) / static_cast<double>(steps.size() - first);
  mean[Phase::checkpoint] = 0;  // lies between two steps
  return mean;
}

ReportJson phase_seconds(const PhaseSeconds& seconds) {
  ReportJson json = ReportJson::object();
  for (std::size_t i = 0; i < num_phases; ++i)
    if (const auto phase = static_cast<Phase>(i); phase != Phase::checkpoint)
      json[to_string(phase)] = number_data(seconds[phase]);
  return json;
}

// Of rank 0: a save lies between two steps.
ReportJson saves(const RecordedRun& run) {
  Index count = 0;
  double seconds = 0;
  for (const StepRecord& step : run.steps)
    if (const double save = finite(step.times.seconds[Phase::checkpoint]); save > 0) {
      ++count;
      seconds += save;
    }
  return {{"count", count}, {"seconds", number_data(seconds)}};
}

// Work of a rank itself: the rank with most of it is the one that others wait for.
double work(const PhaseSeconds& seconds) {
  return seconds[Phase::forward] + seconds[Phase::backward] + seconds[Phase::optimizer] + seconds[Phase::data];
}

// At most max_ranks, those with most work, by rank.
std::vector<std::size_t> ranks_to_show(const std::vector<PhaseSeconds>& ranks) {
  std::vector<std::size_t> chosen(ranks.size());
  std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  if (chosen.size() <= max_ranks)
    return chosen;
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](std::size_t a, std::size_t b) { return work(ranks[a]) > work(ranks[b]); });
  chosen.resize(max_ranks);
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

}  // namespace

ReportJson series_data(const RecordedRun& run) {
  if (run.steps.empty())
    return {};
  using Maybe = std::optional<double>;
  ReportJson series{
      {"loss", curve(run, [](const StepRecord& step) -> Maybe { return step.loss; })},
      {"validation_loss", curve(run, [](const StepRecord& step) { return step.validation_loss; })},
      {"learning_rate", curve(run, [](const StepRecord& step) -> Maybe { return step.learning_rate; })},
      {"gradient_norm", curve(run, [](const StepRecord& step) -> Maybe { return step.gradient_norm; })},
      {"tokens_per_second", curve(run, [](const StepRecord& step) -> Maybe { return step.tokens_per_second; })}};
  if (std::any_of(run.steps.begin(), run.steps.end(), [](const StepRecord& step) { return step.loss_scale != 1; }))
    series["loss_scale"] = curve(run, [](const StepRecord& step) -> Maybe { return step.loss_scale; });
  return series;
}

ReportJson phases_data(const RecordedRun& run) {
  if (run.steps.empty())
    return {};
  CurveColumns columns;
  std::vector<Phase> shown;
  for (const StepRecord& step : run.steps)
    columns.x.push_back(static_cast<double>(step.times.step));
  for (std::size_t i = 0; i < num_phases; ++i) {
    const auto phase = static_cast<Phase>(i);
    const bool visible = std::any_of(run.steps.begin(), run.steps.end(), [&](const StepRecord& step) {
      return step.times.seconds[phase] > visible_share * step.times.seconds.total();
    });
    if (!visible || phase == Phase::checkpoint)
      continue;
    shown.push_back(phase);
    std::vector<double>& column = columns.columns.emplace_back();
    for (const StepRecord& step : run.steps)
      column.push_back(step.times.seconds[phase]);
  }
  const CurveColumns means = average_out(columns, max_columns);
  ReportJson seconds = ReportJson::object();
  for (std::size_t i = 0; i < shown.size(); ++i)
    seconds[to_string(shown[i])] = numbers(means.columns[i]);
  return {{"steps", numbers(means.x)}, {"seconds", seconds}, {"saves", saves(run)}};
}

ReportJson ranks_data(const RecordedRun& run) {
  std::vector<PhaseSeconds> ranks;
  for (const std::vector<StepTimes>& steps : run.ranks)
    ranks.push_back(mean_seconds(steps));
  if (run.steps.empty() || ranks.empty())
    return {};
  ReportJson rows = ReportJson::array();
  for (const std::size_t rank : ranks_to_show(ranks))
    if (!run.ranks[rank].empty())
      rows.push_back({{"rank", rank},
                      {"stage", run.config.layout.mesh().coordinates(static_cast<int>(rank))[Axis::pp]},
                      {"seconds", phase_seconds(ranks[rank])}});
  return {{"num_ranks", ranks.size()}, {"rows", rows}};
}

// From the trainer, at its end; zeros where it did not come to that, or the record is damaged.
MeasuredMemory measured_memory(const RecordedRun& run) {
  try {
    return memory_in(run.record.details).value_or(MeasuredMemory());
  } catch (const std::runtime_error&) {
    return {};
  }
}

// What libraries keep is counted as workspace, but nobody can predict it: it is a number of its own.
ReportJson memory_data(const RecordedRun& run) {
  if (run.steps.empty())
    return {};
  const MeasuredMemory compared = measured_memory(run);
  MemoryByCategory measured = run.steps.back().memory_peak;
  std::size_t& workspace = measured.bytes[static_cast<std::size_t>(Category::workspace)];
  workspace -= std::min(workspace, compared.library_bytes_of_rank_0);
  ReportJson predicted = ReportJson::array();
  for (const MemoryByCategory& stage : run.predicted_memory)
    if (stage.total() > 0 && predicted.size() < max_stages)
      predicted.push_back(json_by_name<Category>(stage.bytes));
  return {{"rank_0", json_by_name<Category>(measured.bytes)},
          {"rank_0_total", run.steps.back().memory_peak.total()},
          {"predicted", predicted},
          {"peak_bytes", compared.peak.total()},
          {"predicted_bytes", compared.predicted.total()},
          {"library_bytes", compared.library_bytes}};
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "diagnosis/chart.hpp"
#include "diagnosis/report_cards.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

constexpr std::size_t most_points = 1500;

// Curves that span more than this factor are easier to read on a logarithmic scale.
constexpr double wide_range = 50;

using Value = std::optional<double> (*)(const RecordedStep&);

std::vector<ChartPoint> points_of(const RecordedRun& run, Value value) {
  std::vector<ChartPoint> points;
  for (const RecordedStep& step : run.steps)
    if (const auto y = value(step))
      points.push_back({static_cast<double>(step.times.step), *y});
  return points;
}

struct Range {
  double low = INFINITY;
  double high = -INFINITY;
  Index num_missing = 0;  // that no axis could hold
};

Range range_of(const std::vector<ChartPoint>& points) {
  Range range;
  for (const ChartPoint& point : points) {
    if (!is_drawable(point.y)) {
      ++range.num_missing;
      continue;
    }
    range.low = std::min(range.low, point.y);
    range.high = std::max(range.high, point.y);
  }
  return range;
}

std::string missing_note(const Range& range) {
  return range.num_missing == 0 ? "" : fmt::format("Not finite at {}: red marks.", counted(range.num_missing, "step"));
}

// "Gradient norm from step 1 to 1400: between 0.5 and 6."
std::string spoken(const std::string& title, const std::vector<ChartPoint>& points, const Range& range) {
  if (range.low > range.high)
    return fmt::format("{}: no finite value", title);
  return fmt::format("{} from step {} to {}: first {}, last {}, between {} and {}", title,
                     number_text(points.front().x, 10), number_text(points.back().x, 10), number_text(points.front().y),
                     number_text(points.back().y), number_text(range.low), number_text(range.high));
}

std::string start_text(const RecordedStart& start) {
  std::string text = fmt::format("step {}: a new start", start.first_step);
  if (!start.changes.empty())
    text += fmt::format(", {}", fmt::join(start.changes, ", "));
  return text;
}

// Behind the first, which is where the curves begin.
std::vector<ChartMark> start_marks(const RecordedRun& run) {
  std::vector<ChartMark> marks;
  for (const RecordedStart& start : run.starts)
    if (start.first_step > 1)
      marks.push_back({static_cast<double>(start.first_step), start_text(start)});
  return marks;
}

// The newest of them, below the loss.
std::string starts_note(const RecordedRun& run) {
  constexpr std::size_t most = 8;
  const std::vector<ChartMark> marks = start_marks(run);
  std::string note;
  for (std::size_t i = marks.size() - std::min(most, marks.size()); i < marks.size(); ++i)
    note += fmt::format("{}{}", note.empty() ? "Dashed lines: " : "; ", marks[i].text);
  return note.empty() ? note : note + ".";
}

ReportCard loss_card(const RecordedRun& run) {
  const std::vector<ChartPoint> train =
      points_of(run, [](const RecordedStep& step) -> std::optional<double> { return step.loss; });
  const std::vector<ChartPoint> validation =
      points_of(run, [](const RecordedStep& step) { return step.validation_loss; });
  const Range range = range_of(train);
  LineChart chart{.label = spoken("Training loss", train, range),
                  .series = {{.name = "training", .colour = "train", .points = thin_out(train, most_points)}},
                  .marks = start_marks(run)};
  ReportCard card{.id = "loss",
                  .title = "Loss",
                  .subtitle = "nats a token, before the update of the step",
                  .legend = {{"training", "train"}},
                  .note = missing_note(range),
                  .is_wide = true};
  if (const std::string starts = starts_note(run); !starts.empty())
    card.note += (card.note.empty() ? "" : " ") + starts;
  if (!validation.empty()) {
    card.legend.push_back({"validation", "validation"});
    chart.series.push_back({.name = "validation",
                            .colour = "validation",
                            .points = thin_out(validation, most_points / 5),
                            .has_dots = true});
  }
  card.views.push_back({"linear", draw(chart)});
  if (range.low > 0 && range.low < range.high) {
    chart.kind = ScaleKind::logarithmic;
    card.views.push_back({"logarithmic", draw(chart)});
  }
  return card;
}

struct Curve {
  const char* id;
  const char* title;
  const char* subtitle;
  const char* colour;
  Value value;
  bool may_be_logarithmic;
};

ReportCard curve_card(const RecordedRun& run, const Curve& curve) {
  const std::vector<ChartPoint> points = points_of(run, curve.value);
  const Range range = range_of(points);
  const bool logarithmic =
      curve.may_be_logarithmic && range.low > 0 && range.high > wide_range * range.low && range.low < range.high;
  LineChart chart{.label = spoken(curve.title, points, range),
                  .series = {{.name = curve.title, .colour = curve.colour, .points = thin_out(points, most_points)}},
                  .marks = start_marks(run),
                  .unit = range.high > 1 ? unit_of_counts(range.high) : ChartUnit{},
                  .kind = logarithmic ? ScaleKind::logarithmic : ScaleKind::linear,
                  .from_zero = !logarithmic};
  const std::string unit = chart.unit.name.empty() ? "" : fmt::format(", {}", chart.unit.name);
  return {.id = curve.id,
          .title = curve.title,
          .subtitle = fmt::format("{}{}{}", curve.subtitle, logarithmic ? ", logarithmic" : "", unit),
          .views = {{"linear", draw(chart)}},
          .note = missing_note(range)};
}

}  // namespace

std::vector<ReportCard> curve_cards(const RecordedRun& run) {
  if (run.steps.empty())
    return {};
  using Maybe = std::optional<double>;
  std::vector<ReportCard> cards = {loss_card(run)};
  std::vector<Curve> curves = {{"learning-rate", "Learning rate", "of the update of the step", "rate",
                                [](const RecordedStep& step) -> Maybe { return step.learning_rate; }, false},
                               {"gradient-norm", "Gradient norm", "global, before clipping", "norm",
                                [](const RecordedStep& step) -> Maybe { return step.gradient_norm; }, true},
                               {"throughput", "Throughput", "tokens per second, all ranks together", "throughput",
                                [](const RecordedStep& step) -> Maybe { return step.tokens_per_second; }, false}};
  const bool scales_loss =
      std::any_of(run.steps.begin(), run.steps.end(), [](const RecordedStep& step) { return step.loss_scale != 1; });
  if (scales_loss)
    curves.push_back({"loss-scale", "Loss scale", "of fp16", "other",
                      [](const RecordedStep& step) -> Maybe { return step.loss_scale; }, true});
  for (const Curve& curve : curves)
    cards.push_back(curve_card(run, curve));
  return cards;
}

}  // namespace espalier

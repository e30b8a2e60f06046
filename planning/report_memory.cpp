// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "planning/chart.hpp"
#include "planning/report_cards.hpp"

namespace espalier {
namespace {

constexpr std::size_t most_stages = 32;

BarRow row_of(const std::string& label, const MemoryByCategory& memory, bool is_predicted) {
  BarRow row{.label = label, .is_predicted = is_predicted};
  for (const std::size_t bytes : memory.bytes)
    row.values.push_back(static_cast<double>(bytes));
  return row;
}

// What libraries keep is counted as workspace, but nobody can predict it: it is shown beside.
BarRow measured_row(const RecordedRun& run, double library_bytes) {
  BarRow row = row_of("rank 0", run.steps.back().memory_peak, false);
  double& workspace = row.values[static_cast<std::size_t>(Category::workspace)];
  row.values.push_back(std::min(workspace, library_bytes));
  workspace -= row.values.back();
  return row;
}

// From run.json, where the trainer compared them at its end.
std::string fullest_note(const nlohmann::json& details) {
  const nlohmann::json memory = details.value("memory", nlohmann::json::object());
  const double peak = memory.value("peak_bytes", 0.0);
  const double predicted = memory.value("predicted_bytes", 0.0);
  if (peak <= 0 || predicted <= 0)
    return {};
  return fmt::format("Fullest rank: {} at its peak, predicted {} ({}), without {} that libraries keep.",
                     size_text(peak), size_text(predicted), difference_text(peak, predicted),
                     size_text(memory.value("library_bytes", 0.0)));
}

}  // namespace

std::optional<ReportCard> memory_card(const RecordedRun& run) {
  if (run.steps.empty())
    return std::nullopt;
  BarChart chart{.label = "Memory by category: the peak of rank 0", .rows = {}};
  const nlohmann::json noted = run.record.details.value("memory", nlohmann::json::object());
  chart.rows.push_back(measured_row(run, noted.value("library_bytes", 0.0)));
  double largest = static_cast<double>(run.steps.back().memory_peak.total());
  if (run.prediction) {
    chart.label += ", and predicted by stage";
    const std::vector<RunPrediction::Stage>& stages = run.prediction->stages;
    for (std::size_t stage = 0; stage < std::min(stages.size(), most_stages); ++stage) {
      const MemoryByCategory& memory = stages[stage].memory;
      if (memory.total() == 0)
        continue;
      chart.rows.push_back(
          row_of(stages.size() == 1 ? "predicted" : fmt::format("stage {} predicted", stage), memory, true));
      largest = std::max(largest, static_cast<double>(memory.total()));
    }
  }
  chart.unit = unit_of_bytes(largest);
  ReportCard card{.id = "memory",
                  .title = "Memory by category",
                  .subtitle = fmt::format(
                      "{}, {}", chart.unit.name,
                      chart.rows.size() > 1 ? "the peak of rank 0, and as predicted (pale)" : "the peak of rank 0"),
                  .left = chart.rows.size() > 1 ? "7.4rem" : "4.4rem",
                  .note = fullest_note(run.record.details)};
  for (std::size_t i = 0; i <= num_categories; ++i) {
    const std::string name = i < num_categories ? to_string(static_cast<Category>(i)) : "libraries";
    chart.names.push_back(i < num_categories ? name : "kept by libraries");
    chart.colours.push_back(name);
    const bool used = std::any_of(chart.rows.begin(), chart.rows.end(),
                                  [&](const BarRow& row) { return i < row.values.size() && row.values[i] > 0; });
    if (used)
      card.legend.push_back({chart.names.back(), name});
  }
  card.views = {{"linear", draw(chart)}};
  return card;
}

}  // namespace espalier

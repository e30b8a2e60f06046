// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/memory_text.hpp"
#include "diagnosis/chart.hpp"
#include "diagnosis/report_cards.hpp"

namespace espalier {
namespace {

constexpr std::size_t most_stages = 32;

BarRow row_of(const std::string& label, const MemoryByCategory& memory, bool is_predicted) {
  BarRow row{.label = label, .is_predicted = is_predicted};
  for (const std::size_t bytes : memory.bytes)
    row.values.push_back(static_cast<double>(bytes));
  return row;
}

// What libraries keep is counted as workspace, but nobody can predict it: it is told, not drawn.
BarRow measured_row(const RecordedRun& run, double library_bytes) {
  BarRow row = row_of("rank 0", run.steps.back().memory_peak, false);
  double& workspace = row.values[static_cast<std::size_t>(Category::workspace)];
  workspace -= std::min(workspace, library_bytes);
  return row;
}

// From run.json, where the trainer compared them at its end.
std::string fullest_note(const nlohmann::json& memory) {
  const double peak = noted_number(memory, "peak_bytes");
  const double predicted = noted_number(memory, "predicted_bytes");
  if (peak <= 0 || predicted <= 0)
    return {};
  return fmt::format("Fullest rank: {} at its peak, predicted {} ({}), without {} that libraries keep.",
                     bytes_text(static_cast<std::size_t>(peak)), bytes_text(static_cast<std::size_t>(predicted)),
                     difference_text(peak, predicted),
                     bytes_text(static_cast<std::size_t>(noted_number(memory, "library_bytes"))));
}

}  // namespace

std::optional<ReportCard> memory_card(const RecordedRun& run) {
  if (run.steps.empty())
    return std::nullopt;
  BarChart chart{.label = "Memory by category: the peak of rank 0", .rows = {}};
  const nlohmann::json compared = noted(run, "memory");
  chart.rows.push_back(measured_row(run, noted_number(compared, "library_bytes_of_rank_0")));
  double largest = std::accumulate(chart.rows[0].values.begin(), chart.rows[0].values.end(), 0.0);
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
                  .note = fullest_note(compared)};
  for (std::size_t i = 0; i < num_categories; ++i) {
    const char* const name = to_string(static_cast<Category>(i));
    chart.names.emplace_back(name);
    chart.colours.emplace_back(name);
    const bool used =
        std::any_of(chart.rows.begin(), chart.rows.end(), [&](const BarRow& row) { return row.values[i] > 0; });
    if (used)
      card.legend.push_back({name, name});
  }
  card.views = {{"linear", draw(chart)}};
  return card;
}

}  // namespace espalier

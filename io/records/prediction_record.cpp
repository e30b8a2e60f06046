// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/prediction_record.hpp"

#include "io/json_by_name.hpp"
#include "io/json_fields.hpp"

namespace espalier {
namespace {

using nlohmann::json, nlohmann::ordered_json;

constexpr const char* format = "espalier-prediction";
constexpr Index format_version = 1;

}  // namespace

ordered_json to_json(const PredictionRecord& prediction) {
  ordered_json all = {{"format", format}, {"format_version", format_version}};
  const std::optional<TimePrediction>& time = prediction.outlook.time;
  if (time) {
    all["step_seconds"] = time->step_seconds;
    if (time->error_share > 0)
      all["error_share"] = time->error_share;
    all["calibrated"] = time->calibrated;
    all["source"] = time->source;
    if (!time->note.empty())
      all["note"] = time->note;
  } else {
    all["why_no_times"] = prediction.outlook.why_not;
  }
  for (std::size_t stage = 0; stage < prediction.memory.size(); ++stage) {
    ordered_json one = {{"stage", stage}};
    if (time)
      one["seconds"] = json_by_name<Phase>(time->stages[stage].seconds);
    one["memory_bytes"] = json_by_name<Category>(prediction.memory[stage].bytes);
    all["stages"].push_back(one);
  }
  return all;
}

std::optional<PredictionRecord> prediction_from_json(const json& json) {
  if (field<std::string>(json, "format") != format || field<Index>(json, "format_version") != format_version)
    return std::nullopt;
  PredictionRecord prediction;
  prediction.outlook.why_not = field_or(json, "why_no_times", std::string());
  // Else of memory alone: fp64, say, has no estimate.
  if (const double seconds = field_or(json, "step_seconds", 0.0, seconds_range); seconds > 0)
    prediction.outlook.time = TimePrediction{.step_seconds = seconds,
                                             .error_share = field_or(json, "error_share", 0.0, seconds_range),
                                             .calibrated = field_or(json, "calibrated", false),
                                             .source = field_or(json, "source", std::string()),
                                             .note = field_or(json, "note", std::string())};
  for (const nlohmann::json& stage : list_field(json, "stages")) {
    prediction.memory.push_back(
        {counts_by_name<Category, num_categories>(object_field_or_empty(stage, "memory_bytes"))});
    const PhaseSeconds seconds{numbers_by_name<Phase, num_phases>(object_field_or_empty(stage, "seconds"))};
    if (prediction.outlook.time)
      prediction.outlook.time->stages.push_back(seconds);
  }
  return prediction;
}

}  // namespace espalier

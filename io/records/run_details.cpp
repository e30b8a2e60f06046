// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/run_details.hpp"

#include "io/json_by_name.hpp"
#include "io/json_fields.hpp"

namespace espalier {
namespace {

using nlohmann::json;

constexpr const char* facts_key = "facts";
constexpr const char* history_key = "history";
constexpr const char* restarts_key = "restarts";
constexpr const char* steps_done_key = "steps_done";
constexpr const char* memory_key = "memory";
constexpr const char* time_key = "time";

}  // namespace

json details_of(const RunFacts& facts) { return {{facts_key, to_json(facts)}}; }

RunFacts facts_in(const json& details) { return run_facts_from_json(object_field_or_empty(details, facts_key)); }

json details_of(const std::vector<LaunchRecord>& history) {
  json launches = json::array();
  for (const LaunchRecord& launch : history)
    launches.push_back({{"first_step", launch.first_step}, {"started", launch.started}, {"changes", launch.changes}});
  return {{history_key, launches}};
}

std::vector<LaunchRecord> history_in(const json& details) {
  std::vector<LaunchRecord> history;
  if (details.contains(history_key))
    for (const json& launch : list_field(details, history_key))
      history.push_back({.first_step = field<Index>(launch, "first_step", steps_range),
                         .started = field_or(launch, "started", std::string()),
                         .changes = values_field<std::string>(launch, "changes")});
  return history;
}

json details_of(const Restarts& restarts) {
  return {{restarts_key, {{"from_step", restarts.from_step}, {"fruitless", restarts.num_without_progress}}}};
}

Restarts restarts_in(const json& details) {
  const json& restarts = object_field(details, restarts_key);
  return {.from_step = field<Index>(restarts, "from_step", count_range),
          .num_without_progress = field<Index>(restarts, "fruitless", count_range)};
}

json details_of_steps_done(Index steps) { return {{steps_done_key, steps}}; }

std::optional<Index> steps_done_in(const json& details) {
  return details.contains(steps_done_key) ? std::optional(field<Index>(details, steps_done_key, steps_range))
                                          : std::nullopt;
}

json details_of(const MeasuredMemory& memory) {
  return {{memory_key,
           {{"peak_bytes", memory.peak.total()},
            {"predicted_bytes", memory.predicted.total()},
            {"library_bytes", memory.library_bytes},
            {"library_bytes_of_rank_0", memory.library_bytes_of_rank_0},
            {"peak_by_category", json_by_name<Category>(memory.peak.bytes)},
            {"predicted_by_category", json_by_name<Category>(memory.predicted.bytes)}}}};
}

std::optional<MeasuredMemory> memory_in(const json& details) {
  const json& memory = object_field_or_empty(details, memory_key);
  if (memory.empty())
    return std::nullopt;
  const auto by_category = [&](const char* key) {
    return MemoryByCategory{counts_by_name<Category, num_categories>(object_field(memory, key))};
  };
  return MeasuredMemory{
      .peak = by_category("peak_by_category"),
      .predicted = by_category("predicted_by_category"),
      .library_bytes = field<std::size_t>(memory, "library_bytes", count_range),
      .library_bytes_of_rank_0 = field_or(memory, "library_bytes_of_rank_0", std::size_t{0}, count_range)};
}

json details_of(const MeasuredTime& time) {
  json stages = json::array();
  for (const PhaseSeconds& stage : time.stages)
    stages.push_back(json(json_by_name<Phase>(stage.seconds)));
  json all = {{"step_seconds", time.step_seconds}, {"steps", time.steps}, {"stages", stages}};
  if (time.predicted_seconds)
    all["predicted_step_seconds"] = *time.predicted_seconds;
  return {{time_key, all}};
}

MeasuredTime time_in(const json& details) {
  const json& all = object_field(details, time_key);
  MeasuredTime time{.step_seconds = field<double>(all, "step_seconds", FloatRange{.min = 0}),
                    .steps = field<Index>(all, "steps", count_range)};
  for (const json& stage : list_field(all, "stages"))
    time.stages.push_back({numbers_by_name<Phase, num_phases>(stage)});
  if (all.contains("predicted_step_seconds"))
    time.predicted_seconds = field<double>(all, "predicted_step_seconds", FloatRange{.min = 0});
  return time;
}

}  // namespace espalier

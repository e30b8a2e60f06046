// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/recorded_steps.hpp"

#include <fmt/format.h>

#include "diagnosis/damaged_file.hpp"
#include "io/pack/json_text.hpp"
#include "io/records/metrics.hpp"

namespace espalier {
namespace {

using Json = nlohmann::json;

const StepTimes& times_of(const StepTimes& times) { return times; }
const StepTimes& times_of(const StepRecord& step) { return step.times; }

// The name of a time below 0, which no stopwatch gives; "" where there is none. `other` is what the phases leave of
// the step, and may be a rounding error below.
std::string negative_time(const StepTimes& times) {
  if (times.step_seconds < 0)
    return fmt::format("\"step_seconds\": {}", times.step_seconds);
  for (std::size_t i = 0; i < num_phases; ++i)
    if (const auto phase = static_cast<Phase>(i); phase != Phase::other && times.seconds[phase] < 0)
      return fmt::format("\"{}\": {}", to_string(phase), times.seconds[phase]);
  return "";
}

constexpr const char* without_the_line =
    "restore the file from a copy, or remove this line (then its step is left out); if another version of Espalier "
    "wrote it, use that version";

template <class Value>
std::vector<Value> read_lines(const Path& path, Value (*read)(const Json&)) {
  std::vector<Value> values;
  std::size_t number = 0;
  for (const Json& line : read_metrics(path)) {
    const std::string where = fmt::format("{}:{}", path.string(), ++number);
    if (!line.is_object())
      throw_damaged(where, "a line is not a step", "text that is not a JSON object",
                    "one object per line, as train writes it", without_the_line);
    try {
      values.push_back(read(line));
    } catch (const std::exception& error) {
      throw_damaged(where, "a line does not have the fields of a step",
                    fmt::format("{} in {:.80}", error.what(), json_text(line)),
                    "the fields of this version (docs/running.md)", without_the_line);
    }
    if (values.size() > 1 && times_of(values.back()).step <= times_of(values[values.size() - 2]).step)
      throw_damaged(
          where, "steps are not in order",
          fmt::format("step {} after step {}", times_of(values.back()).step, times_of(values[values.size() - 2]).step),
          "each step once, in the order of training", without_the_line);
    if (const std::string negative = negative_time(times_of(values.back())); !negative.empty())
      throw_damaged(where, "a step has a time below 0", negative, "seconds, 0 or more", without_the_line);
  }
  return values;
}

}  // namespace

std::vector<StepRecord> read_step_records(const Path& path) { return read_lines(path, step_record_from_json); }

std::vector<StepTimes> read_step_times(const Path& path) { return read_lines(path, step_times_from_json); }

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/recorded_steps.hpp"

#include <fmt/format.h>

#include "io/json_numbers.hpp"
#include "io/metrics.hpp"
#include "planning/damaged_file.hpp"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

StepTimes times_from(const Json& line) {
  StepTimes times;
  times.step = line.at("step");
  times.step_seconds = number_from(line.at("step_seconds"));
  times.seconds = phases_from(line.at("seconds"));
  for (std::size_t i = 0; i < num_axes; ++i)
    times.bytes_sent[i] = line.at("bytes_sent").at(to_string(static_cast<Axis>(i)));
  if (const auto transit = line.find("transit_seconds"); transit != line.end()) {
    times.activation_transit = transit->value("activations", 0.0);
    times.gradient_transit = transit->value("gradients", 0.0);
  }
  return times;
}

RecordedStep step_from(const Json& line) {
  RecordedStep step{.loss = number_from(line.at("loss")),
                    .learning_rate = number_from(line.at("learning_rate")),
                    .gradient_norm = number_from(line.at("gradient_norm")),
                    .loss_scale = number_from(line.at("loss_scale")),
                    .skipped_steps = line.at("skipped_steps"),
                    .is_anomaly = line.contains("anomaly"),
                    .tokens = line.at("tokens"),
                    .tokens_per_second = number_from(line.at("tokens_per_second")),
                    .mfu = number_from(line.at("mfu")),
                    .times = times_from(line),
                    .memory_peak = memory_from(line.at("memory_peak_bytes"))};
  if (const auto found = line.find("validation_loss"); found != line.end())
    step.validation_loss = number_from(*found);
  return step;
}

const StepTimes& times_of(const StepTimes& times) { return times; }
const StepTimes& times_of(const RecordedStep& step) { return step.times; }

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
    "take the file from a copy, or remove this line: its step is then left out; one of another version of Espalier: "
    "read it with that version";

template <class Value>
std::vector<Value> read_lines(const Path& path, Value (*read)(const Json&)) {
  std::vector<Value> values;
  std::size_t number = 0;
  for (const Json& line : read_metrics(path)) {
    const std::string where = fmt::format("{}:{}", path.string(), ++number);
    if (!line.is_object())
      throw_damaged(where, "a line is no step", "what is no JSON object", "one object a line, as train writes it",
                    without_the_line);
    try {
      values.push_back(read(line));
    } catch (const std::exception& error) {
      throw_damaged(where, "a line has not the fields of a step",
                    fmt::format("{} in {:.80}", error.what(), line.dump()),
                    "the fields of this version (docs/running.md)", without_the_line);
    }
    if (const std::string negative = negative_time(times_of(values.back())); !negative.empty())
      throw_damaged(where, "a step has a time below 0", negative, "seconds, 0 or more", without_the_line);
  }
  return values;
}

}  // namespace

PhaseSeconds phases_from(const Json& json) {
  PhaseSeconds seconds;
  for (std::size_t i = 0; i < num_phases; ++i)
    if (const auto found = json.find(to_string(static_cast<Phase>(i))); found != json.end())
      seconds.seconds[i] = number_from(*found);
  return seconds;
}

MemoryByCategory memory_from(const Json& json) {
  MemoryByCategory memory;
  for (std::size_t i = 0; i < num_categories; ++i)
    memory.bytes[i] = json.value(to_string(static_cast<Category>(i)), std::size_t{0});
  return memory;
}

std::vector<RecordedStep> read_recorded_steps(const Path& path) { return read_lines(path, step_from); }

std::vector<StepTimes> read_step_times(const Path& path) { return read_lines(path, times_from); }

}  // namespace espalier

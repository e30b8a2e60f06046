// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/recorded_steps.hpp"

#include <fmt/format.h>

#include "diagnosis/damaged_file.hpp"
#include "io/json_fields.hpp"
#include "io/pack/json_text.hpp"
#include "io/records/metrics.hpp"

namespace espalier {
namespace {

using Json = nlohmann::json;

StepTimes times_from(const Json& line) {
  StepTimes times;
  times.step = field<Index>(line, "step", steps_range);
  times.step_seconds = number_field(line, "step_seconds");
  times.seconds = phases_from(object_field(line, "seconds"));
  const Json& bytes_sent = object_field(line, "bytes_sent");
  for (const Axis axis : trained_axes)
    times.bytes_sent[static_cast<std::size_t>(axis)] = field<std::uint64_t>(bytes_sent, to_string(axis), count_range);
  const Json& transit = object_field_or_empty(line, "transit_seconds");
  times.activation_transit = field_or(transit, "activations", 0.0, RealRange{.min = 0});
  times.gradient_transit = field_or(transit, "gradients", 0.0, RealRange{.min = 0});
  return times;
}

RecordedStep step_from(const Json& line) {
  RecordedStep step{.loss = number_field(line, "loss"),
                    .learning_rate = number_field(line, "learning_rate"),
                    .gradient_norm = number_field(line, "gradient_norm"),
                    .loss_scale = number_field(line, "loss_scale"),
                    .skipped_steps = field<Index>(line, "skipped_steps", count_range),
                    .is_anomaly = line.contains("anomaly"),
                    .tokens = field<Index>(line, "tokens", count_range),
                    .tokens_per_second = number_field(line, "tokens_per_second"),
                    .gemm_fraction = number_field(line, line.contains("gemm_fraction") ? "gemm_fraction" : "mfu"),
                    .times = times_from(line),
                    .memory_peak = memory_from(object_field(line, "memory_peak_bytes"))};
  if (line.contains("gemm_fraction") && line.contains("mfu"))  // earlier versions called the GEMM fraction "mfu"
    step.mfu = number_field(line, "mfu");
  if (line.contains("validation_loss"))
    step.validation_loss = number_field(line, "validation_loss");
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

PhaseSeconds phases_from(const Json& json) {
  PhaseSeconds seconds;
  for (std::size_t i = 0; i < num_phases; ++i)
    if (const char* const phase = to_string(static_cast<Phase>(i)); json.contains(phase))
      seconds.seconds[i] = number_field(json, phase);
  return seconds;
}

MemoryByCategory memory_from(const Json& json) {
  MemoryByCategory memory;
  for (std::size_t i = 0; i < num_categories; ++i)
    memory.bytes[i] = field_or(json, to_string(static_cast<Category>(i)), std::size_t{0}, count_range);
  return memory;
}

std::vector<RecordedStep> read_recorded_steps(const Path& path) { return read_lines(path, step_from); }

std::vector<StepTimes> read_step_times(const Path& path) { return read_lines(path, times_from); }

}  // namespace espalier

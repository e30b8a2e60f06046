// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/records/step_record.hpp"

#include "io/json_by_name.hpp"
#include "io/json_fields.hpp"

namespace espalier {
namespace {

using nlohmann::json, nlohmann::ordered_json;

std::optional<double> number_if_any(const json& line, const char* key) {
  return line.contains(key) ? std::optional(number_field(line, key)) : std::nullopt;
}

}  // namespace

ordered_json to_json(const StepTimes& times) {
  ordered_json line = {{"step", times.step},
                       {"step_seconds", times.step_seconds},
                       {"seconds", json_by_name<Phase>(times.seconds.seconds)},
                       {"bytes_sent", json_by_axis(times.bytes_sent)}};
  if (times.activation_transit + times.gradient_transit > 0)
    line["transit_seconds"] = {{"activations", times.activation_transit}, {"gradients", times.gradient_transit}};
  return line;
}

StepTimes step_times_from_json(const json& line) {
  StepTimes times;
  times.step = field<Index>(line, "step", steps_range);
  times.step_seconds = number_field(line, "step_seconds");
  times.seconds.seconds = numbers_by_name<Phase, num_phases>(object_field(line, "seconds"));
  const json& bytes_sent = object_field(line, "bytes_sent");
  for (const Axis axis : trained_axes)
    times.bytes_sent[static_cast<std::size_t>(axis)] = field<std::uint64_t>(bytes_sent, to_string(axis), count_range);
  const json& transit = object_field_or_empty(line, "transit_seconds");
  times.activation_transit = field_or(transit, "activations", 0.0, FloatRange{.min = 0});
  times.gradient_transit = field_or(transit, "gradients", 0.0, FloatRange{.min = 0});
  return times;
}

ordered_json to_json(const StepRecord& record) {
  ordered_json line = {{"step", record.times.step},
                       {"loss", record.loss},
                       {"learning_rate", record.learning_rate},
                       {"gradient_norm", record.gradient_norm},
                       {"loss_scale", record.loss_scale},
                       {"skipped_steps", record.skipped_steps},
                       {"tokens", record.tokens},
                       {"valid_tokens", record.valid_tokens},
                       {"attention_share", record.attention_share},
                       {"tokens_per_second", record.tokens_per_second}};
  line.update(to_json(record.times));
  line["memory_peak_bytes"] = json_by_name<Category>(record.memory_peak.bytes);
  line["gemm_fraction"] = record.gemm_fraction;
  line["passed_over_samples"] = record.passed_over_samples;
  for (const auto& [key, value] : {std::pair("mfu", record.mfu), std::pair("loss_score", record.loss_score),
                                   std::pair("gradient_norm_score", record.gradient_norm_score)})
    if (value)
      line[key] = *value;
  if (record.is_anomaly())
    line["anomaly"] = record.anomaly;
  if (record.validation_loss)
    line[validation_loss_key] = *record.validation_loss;
  return line;
}

StepRecord step_record_from_json(const json& line) {
  // Earlier versions called the GEMM fraction "mfu".
  const bool has_gemm_fraction = line.contains("gemm_fraction");
  return {.loss = number_field(line, "loss"),
          .learning_rate = number_field(line, "learning_rate"),
          .gradient_norm = number_field(line, "gradient_norm"),
          .loss_scale = number_field(line, "loss_scale"),
          .skipped_steps = field<Index>(line, "skipped_steps", count_range),
          .tokens = field<Index>(line, "tokens", count_range),
          .valid_tokens = field_or(line, "valid_tokens", Index{0}, count_range),
          .attention_share = number_if_any(line, "attention_share").value_or(1),
          .tokens_per_second = number_field(line, "tokens_per_second"),
          .times = step_times_from_json(line),
          .memory_peak = {.bytes = counts_by_name<Category, num_categories>(object_field(line, "memory_peak_bytes"))},
          .gemm_fraction = number_field(line, has_gemm_fraction ? "gemm_fraction" : "mfu"),
          .passed_over_samples = field_or(line, "passed_over_samples", Index{0}, count_range),
          .mfu = has_gemm_fraction ? number_if_any(line, "mfu") : std::nullopt,
          .loss_score = number_if_any(line, "loss_score"),
          .gradient_norm_score = number_if_any(line, "gradient_norm_score"),
          .anomaly = field_or(line, "anomaly", std::string()),
          .validation_loss = number_if_any(line, validation_loss_key)};
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/median.hpp"
#include "diagnosis/chart_scale.hpp"
#include "diagnosis/report_cards.hpp"
#include "io/json_text.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"

namespace espalier {
namespace {

// Of those that are finite, if any are.
std::optional<double> finite_median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  return values.empty() ? std::nullopt : std::optional(median_of(std::move(values)));
}

std::optional<double> typical(const RecordedRun& run, double (*value)(const RecordedStep&)) {
  std::vector<double> values;
  for (std::size_t i = first_typical_step(run.steps.size()); i < run.steps.size(); ++i)
    values.push_back(value(run.steps[i]));
  return finite_median(values);
}

// The lowest, and its step.
std::optional<ReportTile> validation_tile(const RecordedRun& run) {
  const RecordedStep* last = nullptr;
  const RecordedStep* best = nullptr;
  for (const RecordedStep& step : run.steps)
    if (step.validation_loss) {
      last = &step;
      if (best == nullptr || *step.validation_loss < *best->validation_loss)
        best = &step;
    }
  if (last == nullptr)
    return std::nullopt;
  return ReportTile{.name = "Validation loss",
                    .value = number_text(*last->validation_loss),
                    .detail = best == last ? "the lowest so far"
                                           : fmt::format("lowest {} at step {}", number_text(*best->validation_loss),
                                                         best->times.step)};
}

std::optional<ReportTile> memory_tile(const RecordedRun& run) {
  const nlohmann::json memory = noted(run, "memory");
  const double peak = noted_number(memory, "peak_bytes");
  const double predicted = noted_number(memory, "predicted_bytes");
  if (peak > 0)
    return ReportTile{.name = "Memory of the fullest rank",
                      .value = bytes_text(static_cast<std::size_t>(peak)),
                      .detail = predicted > 0
                                    ? fmt::format("predicted {} ({})", bytes_text(static_cast<std::size_t>(predicted)),
                                                  difference_text(peak, predicted))
                                    : ""};
  const std::size_t measured = run.steps.back().memory_peak.total();
  if (measured == 0)
    return std::nullopt;
  return ReportTile{.name = "Memory of rank 0", .value = bytes_text(measured), .detail = "at its peak"};
}

// "schedule", "step_seconds": as a reader would write it.
std::string spaced(std::string key) {
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

std::string layout_text(const RunSetup& setup) {
  std::string text = setup.mesh.text();
  if (setup.stages() > 1)
    text += fmt::format(", {}", setup.schedule);
  if (setup.virtual_stages > 1)
    text += fmt::format(" x {} chunks", setup.virtual_stages);
  if (setup.zero_stage > 0 && setup.mesh.degree(Axis::dp) > 1)
    text += fmt::format(", ZeRO-{}", setup.zero_stage);
  if (setup.recompute != "none")
    text += fmt::format(", recompute {}", setup.recompute);
  return text;
}

std::string noted_text(const nlohmann::json& value) {
  if (value.is_string())
    return value.get<std::string>();
  return value.is_number_float() ? count_text(value.get<double>()) : json_text(value);
}

// What the trainer noted about itself and its machine, whatever it is: short values only.
void add_noted_facts(const RecordedRun& run, std::vector<ReportFact>& facts) {
  constexpr std::size_t longest = 200;
  const nlohmann::json all = noted(run, "facts");
  for (const auto& [key, value] : all.items()) {
    if (value.is_structured() || value.is_null())
      continue;
    if (const std::string text = noted_text(value); !text.empty() && text.size() <= longest)
      facts.push_back({spaced(key), text});
  }
}

}  // namespace

std::size_t first_typical_step(std::size_t count) { return count <= 1 ? 0 : std::max<std::size_t>(1, count / 10); }

std::optional<double> typical_step_seconds(const RecordedRun& run) {
  return typical(run, [](const RecordedStep& step) { return step.times.step_seconds; });
}

nlohmann::json noted(const RecordedRun& run, const char* name) {
  const nlohmann::json& details = run.record.details;
  const auto found = details.is_object() ? details.find(name) : details.end();
  return found != details.end() && found->is_object() ? *found : nlohmann::json::object();
}

double noted_number(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  const double number = found != object.end() && found->is_number() ? found->get<double>() : 0;
  return number > 0 && number < 0x1p60 ? number : 0;
}

std::string difference_text(double measured, double predicted) {
  return fmt::format("{:+.1f} %", 100 * (measured / predicted - 1));
}

std::vector<ReportTile> report_tiles(const RecordedRun& run) {
  std::vector<ReportTile> tiles;
  if (run.steps.empty())
    return tiles;
  const RecordedStep& first = run.steps.front();
  const RecordedStep& last = run.steps.back();
  tiles.push_back({.name = "Loss",
                   .value = number_text(last.loss),
                   .detail = fmt::format("step {}, from {}", last.times.step, number_text(first.loss))});
  if (const auto tile = validation_tile(run))
    tiles.push_back(*tile);
  if (const auto seconds = typical_step_seconds(run)) {
    const double predicted = run.is_predicted() ? run.prediction->step_seconds : 0;
    tiles.push_back({.name = "Step time",
                     .value = seconds_text(*seconds),
                     .detail = predicted > 0 ? fmt::format("predicted {} ({})", seconds_text(predicted),
                                                           difference_text(*seconds, predicted))
                                             : "median"});
  }
  if (const auto rate = typical(run, [](const RecordedStep& step) { return step.tokens_per_second; }))
    tiles.push_back({.name = "Tokens per second", .value = count_text(*rate), .detail = "all ranks, median"});
  if (const auto mfu = typical(run, [](const RecordedStep& step) { return step.mfu; }))
    tiles.push_back(
        {.name = "MFU", .value = fmt::format("{:.1f} %", 100 * *mfu), .detail = "of the measured GEMM rate"});
  if (const auto tile = memory_tile(run))
    tiles.push_back(*tile);
  return tiles;
}

std::vector<ReportFact> report_facts(const RecordedRun& run) {
  const RunSetup& setup = run.setup;
  std::vector<ReportFact> facts = {
      {"model", fmt::format("{} parameters: {}, hidden {}, {}, vocabulary {}",
                            count_text(static_cast<double>(num_parameters(setup.shape))),
                            counted(setup.shape.num_layers, "layer"), setup.shape.hidden_size,
                            counted(setup.shape.num_heads, "head"), setup.shape.vocab_size)},
      {"layout", layout_text(setup)},
      {"batch", fmt::format("{} of {}, {} of {} a replica", counted(setup.global_batch_size, "sequence"),
                            counted(setup.sequence_length, "token"), counted(setup.num_microbatches(), "micro-batch"),
                            setup.micro_batch_size)},
      {"precision", setup.compute}};
  if (setup.emulated_forward > 0 || setup.links.within_node.latency > 0 || setup.links.within_node.bytes_per_second > 0)
    facts.push_back({"emulated", "operations or links are slowed down to given times ([emulate])"});
  if (!run.steps.empty()) {
    const RecordedStep& last = run.steps.back();
    facts.push_back({"steps", fmt::format("{} to {}, {} tokens", run.steps.front().times.step, last.times.step,
                                          count_text(static_cast<double>(last.tokens)))});
    if (last.skipped_steps > 0)
      facts.push_back({"skipped steps", fmt::format("{}", last.skipped_steps)});
  }
  facts.push_back({"started", fmt::format("{}{}", run.record.started,
                                          run.record.starts > 1 ? fmt::format(", start {}", run.record.starts) : "")});
  if (!run.record.ended.empty())
    facts.push_back({"ended", run.record.ended});
  facts.push_back({"host", run.record.host});
  if (run.prediction && !run.prediction->source.empty())
    facts.push_back({"prediction", run.prediction->source});
  add_noted_facts(run, facts);
  return facts;
}

}  // namespace espalier

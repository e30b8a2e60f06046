// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/published_time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/scalars.hpp"

namespace espalier {
namespace {

constexpr double contradiction = 1.2;  // times: a time and a rate of one row so far apart are not of one run

// Of a step without recomputation, as MFU counts [Korthikanti et al. 2022, eq. 7]; of a model without a vocabulary
// without its head; 0: other sizes of the model are missing.
double model_flops(const PlanProblem& problem, const LayoutSpace& space) {
  ModelConfig model = problem.model;
  model.vocab_size = std::max<Index>(1, model.vocab_size);
  if (!broken_rules(model).empty())
    return 0;
  return to_double(space.global_batch) * to_double(problem.sequence_length) *
         model_flops_per_token(model, problem.sequence_length);
}

// With full recomputation, of GPT's block [Narayanan et al. 2021, eq. 3].
double recomputing_flops(const PlanProblem& problem, const LayoutSpace& space) {
  const double h = to_double(problem.model.hidden_size);
  const double s = to_double(problem.sequence_length);
  const double layers = to_double(problem.model.num_layers);
  return 96 * to_double(space.global_batch) * s * layers * h * h *
         (1 + s / (6 * h) + to_double(problem.model.vocab_size) / (16 * layers * h));
}

bool has_gpt_block(const ModelConfig& model) {
  return !model.gated() && model.kv_heads() == model.num_heads && model.ffn_hidden_size == 4 * model.hidden_size;
}

// Of FLOPs that a device does in a second, those of a step; a vocabulary that is not published is a usual one.
PublishedTime time_by_flops(double per_second, double flops, const PlanProblem& problem, const LayoutSpace& space) {
  if (problem.model.num_layers < 1 || problem.model.hidden_size < 1)
    return {.why_not = "its time does not follow from its FLOP/s: the shape of its model is missing"};
  PublishedTime time{.is_told = true};
  if (per_second <= 0)
    time.why_not = fmt::format("a device achieves {:g} TFLOP/s: wanted more than 0", 1e-12 * per_second);
  else if (space.global_batch < 1 || space.num_devices < 1)
    time.why_not = fmt::format("its time does not follow from its FLOP/s: {} is missing",
                               space.global_batch < 1 ? "global_batch_seqs" : "gpus");
  else if (!(flops > 0))
    time.why_not = "its time does not follow from its FLOP/s: sizes of its model are missing";
  else
    time.seconds = flops / (per_second * space.num_devices);
  return time;
}

PublishedTime time_by_mfu(double percent, const CsvRow& row, const PlanProblem& problem, const LayoutSpace& space) {
  const double of_device = problem.cluster.device.rate(space.precisions.front()).peak_flops;
  const double peak = 1e12 * row.number("peak_tflops").value_or(1e-12 * of_device);
  PublishedTime time = time_by_flops(peak * percent / 100, model_flops(problem, space), problem, space);
  if (time.is_told && (percent < 1 || percent > 100))
    return {.is_told = true,
            .why_not = fmt::format("mfu_pct is {}: wanted percent of the peak, 1 to 100", row.text("mfu_pct"))};
  if (time.is_told && peak <= 0)
    time.why_not = "mfu_pct is a share of the peak, and neither peak_tflops nor the device tells it";
  return time;
}

// Of a step; 0 where the batch is not known.
double seconds_by_tokens(double tokens_per_second, const PlanProblem& problem, const LayoutSpace& space) {
  return to_double(space.global_batch * problem.sequence_length) / (tokens_per_second * space.num_devices);
}

}  // namespace

PublishedTime published_time(const CsvRow& row, const PlanProblem& problem, const LayoutSpace& space) {
  const std::optional<double> tokens = row.number("tokens_per_s_per_gpu");
  const double by_tokens = tokens.value_or(0) > 0 ? seconds_by_tokens(*tokens, problem, space) : 0;
  PublishedTime time{.is_told = true};
  if (const std::optional<double> seconds = row.number("iter_time_s")) {
    if (*seconds <= 0)
      time.why_not = fmt::format("iter_time_s is {}: wanted more than 0", row.text("iter_time_s"));
    else if (by_tokens > 0 && std::max(*seconds / by_tokens, by_tokens / *seconds) > contradiction)
      time.why_not = fmt::format("iter_time_s is {}, but tokens_per_s_per_gpu makes it {:.4g} s",
                                 row.text("iter_time_s"), by_tokens);
    else
      time.seconds = *seconds;
    return time;
  }
  if (tokens) {
    if (*tokens <= 0)
      time.why_not = fmt::format("tokens_per_s_per_gpu is {}: wanted more than 0", row.text("tokens_per_s_per_gpu"));
    else if (by_tokens > 0)
      time.seconds = by_tokens;
    else
      time.why_not = "its time does not follow from tokens_per_s_per_gpu: global_batch_seqs is missing";
    return time;
  }
  const std::optional<double> achieved = row.number("achieved_tflops_per_gpu");
  const std::optional<double> mfu = row.number("mfu_pct");
  const std::string counted = row.text("flop_count");
  // Without recomputation there is nothing that counts could differ in.
  if (achieved && (counted.starts_with("MODEL_EQ7") || (counted.empty() && space.recompute == Recompute::none)))
    return time_by_flops(1e12 * *achieved, model_flops(problem, space), problem, space);
  if (achieved && counted == "HW_EQ3(recompute counted)" && space.recompute == Recompute::full &&
      has_gpt_block(problem.model))
    return time_by_flops(1e12 * *achieved, recomputing_flops(problem, space), problem, space);
  if (mfu)
    return time_by_mfu(*mfu, row, problem, space);
  if (!achieved)
    return {};
  return {.why_not = counted.empty() ? "flop_count does not say which FLOP its TFLOP/s count"
                                     : fmt::format("its time does not follow from TFLOP/s that count \"{}\"", counted)};
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/published_time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "planning/real.hpp"

namespace espalier {
namespace {

constexpr double contradiction = 1.2;  // times: a time and a rate of one row so far apart are not of one run

// "HW_EQ3(recompute counted)" of the notes "kind=exact; tflops=HW_EQ3(recompute counted); ...".
std::string counted_flops(const CsvRow& row) {
  const std::string notes = row.text("notes");
  const std::size_t tag = notes.find("tflops=");
  if (tag == std::string::npos)
    return "";
  const std::size_t begin = tag + std::string_view("tflops=").size();
  return notes.substr(begin, notes.find(';', begin) - begin);
}

// Of a step without recomputation, as MFU counts [Korthikanti et al. 2022, eq. 7].
double model_flops(const PlanProblem& problem, const LayoutSpace& space) {
  return real(space.global_batch) * real(problem.sequence_length) *
         model_flops_per_token(problem.model, problem.sequence_length);
}

// With full recomputation, of GPT's block [Narayanan et al. 2021, eq. 3].
double recomputing_flops(const PlanProblem& problem, const LayoutSpace& space) {
  const double h = real(problem.model.hidden_size);
  const double s = real(problem.sequence_length);
  const double layers = real(problem.model.num_layers);
  return 96 * real(space.global_batch) * s * layers * h * h *
         (1 + s / (6 * h) + real(problem.model.vocab_size) / (16 * layers * h));
}

bool has_gpt_block(const ModelShape& model) {
  return !model.gated_ffn && model.num_kv_heads == model.num_heads && model.ffn_hidden_size == 4 * model.hidden_size;
}

std::string why_no_formula(const CsvRow& row, const LayoutSpace& space) {
  for (const char* const column : {"vocab", "global_batch_seqs"})
    if (!row.has(column))
      return fmt::format("its time does not follow from its FLOP/s: {} is missing", column);
  return space.num_devices < 1 ? "its time does not follow from its FLOP/s: gpus is missing" : "";
}

PublishedTime time_by_flops(double per_second, double flops, const LayoutSpace& space) {
  if (per_second <= 0)
    return {.why_not = fmt::format("a device achieves {:g} TFLOP/s: wanted more than 0", 1e-12 * per_second)};
  return {.seconds = flops / (per_second * space.num_devices)};
}

// Of a step; 0 where the batch is not known.
double seconds_by_tokens(double tokens_per_second, const PlanProblem& problem, const LayoutSpace& space) {
  return real(space.global_batch * problem.sequence_length) / (tokens_per_second * space.num_devices);
}

}  // namespace

PublishedTime published_time(const CsvRow& row, const PlanProblem& problem, const LayoutSpace& space) {
  const std::optional<double> tokens = row.number("tokens_per_s_per_gpu");
  const double by_tokens = tokens.value_or(0) > 0 ? seconds_by_tokens(*tokens, problem, space) : 0;
  if (const std::optional<double> seconds = row.number("iter_time_s")) {
    if (*seconds <= 0)
      return {.why_not = fmt::format("iter_time_s is {}: wanted more than 0", row.text("iter_time_s"))};
    if (by_tokens > 0 && std::max(*seconds / by_tokens, by_tokens / *seconds) > contradiction)
      return {.why_not = fmt::format("iter_time_s is {}, but tokens_per_s_per_gpu makes it {:.4g} s",
                                     row.text("iter_time_s"), by_tokens)};
    return {.seconds = *seconds};
  }
  if (tokens) {
    if (*tokens <= 0)
      return {.why_not =
                  fmt::format("tokens_per_s_per_gpu is {}: wanted more than 0", row.text("tokens_per_s_per_gpu"))};
    if (by_tokens > 0)
      return {.seconds = by_tokens};
    return {.why_not = "its time does not follow from tokens_per_s_per_gpu: global_batch_seqs is missing"};
  }
  const std::optional<double> achieved = row.number("achieved_tflops_per_gpu");
  const std::optional<double> mfu = row.number("mfu_pct");
  if (!achieved && !mfu)
    return {};
  if (const std::string why_not = why_no_formula(row, space); !why_not.empty())
    return {.why_not = why_not};
  if (achieved) {
    const std::string counted = counted_flops(row);
    // Without recomputation there is nothing that counts could differ in.
    if (counted.starts_with("MODEL_EQ7") || (counted.empty() && space.recompute == Recompute::none))
      return time_by_flops(1e12 * *achieved, model_flops(problem, space), space);
    if (counted == "HW_EQ3(recompute counted)" && space.recompute == Recompute::full && has_gpt_block(problem.model))
      return time_by_flops(1e12 * *achieved, recomputing_flops(problem, space), space);
    if (!mfu)
      return {.why_not = counted.empty()
                             ? "its notes do not say which FLOP its TFLOP/s count (tflops=MODEL_EQ7)"
                             : fmt::format("its time does not follow from TFLOP/s that count \"{}\"", counted)};
  }
  if (*mfu < 1 || *mfu > 100)
    return {.why_not = fmt::format("mfu_pct is {}: wanted percent of the peak, 1 to 100", row.text("mfu_pct"))};
  const std::optional<double> peak = row.number("peak_tflops");
  if (!peak)
    return {.why_not = "peak_tflops is missing: mfu_pct is a share of it"};
  return time_by_flops(1e12 * *peak * *mfu / 100, model_flops(problem, space), space);
}

}  // namespace espalier

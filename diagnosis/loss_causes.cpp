// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnosis/find_stability.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"

namespace espalier {
namespace {

// Times the usual rate, which itself is rough.
constexpr double too_high = 3;
constexpr double too_low = 1.0 / 30;

constexpr Index short_warmup = 10;   // steps
constexpr Index long_warmup = 2000;  // steps
constexpr Index early_steps = 100;   // in which a warm-up would have helped
constexpr double fast_decay = 1e-3;  // of a weight in a step: it is gone in a thousand
constexpr double min_beta2 = 0.9;
constexpr double max_beta1 = 0.97;
constexpr double max_eps = 1e-5;     // the root of a second moment is often smaller
constexpr Index few_tokens = 512;    // of a step
constexpr double like_noise = 0.98;  // of ln(vocabulary)

void add_cause(Finding& finding, std::string evidence, std::string setting) {
  finding.evidence.push_back(std::move(evidence));
  finding.changes.push_back({.setting = std::move(setting)});
}

// The highest that a step up to this one was taken with; the config's where none is noted.
double highest_rate(const RecordedRun& run, Index last_step) {
  double highest = 0;
  for (const StepRecord& step : run.steps)
    if (step.times.step <= last_step && std::isfinite(step.learning_rate))
      highest = std::max(highest, step.learning_rate);
  return highest > 0 ? highest : run.config.optimizer.learning_rate;
}

std::string parameters_text(const RecordedRun& run) {
  return count_text(static_cast<double>(num_parameters(run.config.model.shape)));
}

std::string rate_setting(const RecordedRun& run, double rate) {
  return fmt::format("optimizer.learning_rate = {:.1g} (now {:g})", rate, run.config.optimizer.learning_rate);
}

std::string against_usual(const RecordedRun& run, double rate) {
  const double usual = usual_learning_rate(run.config.model.shape);
  return fmt::format("a learning rate of {:g} is {} times {}what is usual for {} parameters (about {:.1g})", rate,
                     count_text(std::round(std::max(rate / usual, usual / rate))), rate > usual ? "" : "below ",
                     parameters_text(run), usual);
}

void add_high_rate(const RecordedRun& run, double rate, Finding& finding) {
  if (rate > too_high * usual_learning_rate(run.config.model.shape))
    add_cause(finding, against_usual(run, rate), rate_setting(run, usual_learning_rate(run.config.model.shape)));
}

void add_missing_warmup(const RecordedRun& run, Index step, Finding& finding) {
  const Index warmup = run.config.optimizer.warmup_steps;
  const Index usual = usual_warmup_steps(run);
  if (warmup >= std::min(short_warmup, usual) || step > early_steps)
    return;
  add_cause(finding,
            warmup == 0
                ? "there is no warm-up: the first updates use the full rate, while Adam's moments are still inaccurate"
                : fmt::format("the warm-up is over after {}", counted(warmup, "step")),
            fmt::format("optimizer.warmup_steps = {} (now {})", usual, warmup));
}

Index length_of(const RecordedRun& run) { return run.config.total_steps(); }

// How many steps had a gradient longer than the clip, and how long the longest was.
void add_clipping(const RecordedRun& run, Finding& finding) {
  const double clip = run.config.optimizer.clip_grad_norm;
  Index num_clipped = 0;
  double longest = 0;
  for (const StepRecord& step : run.steps) {
    num_clipped += step.gradient_norm > clip ? 1 : 0;
    if (std::isfinite(step.gradient_norm))
      longest = std::max(longest, step.gradient_norm);
  }
  if (clip <= 0)
    add_cause(finding, fmt::format("gradients are not clipped, and their norm comes to {:.3g}", longest),
              "optimizer.clip_grad_norm = 1.0 (now 0: none)");
  else if (num_clipped > 0)
    finding.evidence.push_back(
        fmt::format("the gradient norm is above optimizer.clip_grad_norm = {:g} in {} of {}, at most {:.3g}: clipping "
                    "has little effect, because Adam rescales the update",
                    clip, num_clipped, counted(static_cast<Index>(run.steps.size()), "step"), longest));
}

void add_moments(const RunConfig& config, Finding& finding) {
  if (config.optimizer.adamw.beta2 < min_beta2)
    add_cause(
        finding,
        fmt::format("optimizer.beta2 = {:g} forgets at once how large gradients are", config.optimizer.adamw.beta2),
        "optimizer.beta2 = 0.95");
  if (config.optimizer.adamw.beta1 > max_beta1)
    add_cause(finding,
              fmt::format("optimizer.beta1 = {:g} keeps the direction of old gradients", config.optimizer.adamw.beta1),
              "optimizer.beta1 = 0.9");
}

void add_decay(const RunConfig& config, double rate, Finding& finding) {
  const double decay = rate * config.optimizer.adamw.weight_decay;
  if (config.optimizer.adamw.weight_decay > 1 && decay > fast_decay)
    add_cause(finding,
              fmt::format("weight decay takes {:.3g} % of each weight at every step (learning rate {:g} x {:g})",
                          100 * decay, rate, config.optimizer.adamw.weight_decay),
              fmt::format("optimizer.weight_decay = 0.1 (now {:g})", config.optimizer.adamw.weight_decay));
}

void add_small_batch(const RunConfig& config, Finding& finding) {
  if (const Index tokens = config.tokens_per_step(); tokens < few_tokens)
    add_cause(finding, fmt::format("a step has {}: its gradient is mostly noise", counted(tokens, "token")),
              fmt::format("batch.global_batch_size = {} (now {})",
                          config.layout.global_batch * (few_tokens + tokens - 1) / tokens, config.layout.global_batch));
}

// A rate that was at its end long before the run was.
void add_early_end(const RecordedRun& run, double peak, Finding& finding) {
  const auto num_steps = static_cast<Index>(run.steps.size());
  const Index decay = run.config.optimizer.decay_steps;
  if (decay > 0 && decay < run.steps.back().times.step / 2)
    add_cause(finding,
              fmt::format("the learning rate reached its minimum at step {}, with {} to go", decay,
                          counted(run.steps.back().times.step - decay, "step")),
              fmt::format("optimizer.decay_steps = 0 (the last step; now {})", decay));
  const Index usual = usual_warmup_steps(run);
  if (run.config.optimizer.warmup_steps > std::max(usual, num_steps / 2) &&
      peak < 0.9 * run.config.optimizer.learning_rate)
    add_cause(finding,
              fmt::format("in the warm-up of {} the rate reaches only {:.2g} of {:g}",
                          counted(run.config.optimizer.warmup_steps, "step"), peak, run.config.optimizer.learning_rate),
              fmt::format("optimizer.warmup_steps = {} (now {})", usual, run.config.optimizer.warmup_steps));
}

// What a gradient of the clip's length gives each weight is nothing beside eps, or eps is large by itself.
void add_lost_updates(const RecordedRun& run, Finding& finding) {
  const RunConfig& config = run.config;
  const double per_weight =
      config.optimizer.clip_grad_norm / std::sqrt(static_cast<double>(num_parameters(config.model.shape)));
  if (config.optimizer.clip_grad_norm > 0 && config.optimizer.adamw.eps <= max_eps &&
      per_weight < config.optimizer.adamw.eps)
    add_cause(
        finding,
        fmt::format("clipping to a norm of {:g} leaves {:.2g} to each weight, less than optimizer.eps = {:g}: its "
                    "update is lost",
                    config.optimizer.clip_grad_norm, per_weight, config.optimizer.adamw.eps),
        fmt::format("optimizer.clip_grad_norm = 1.0 (now {:g})", config.optimizer.clip_grad_norm));
  if (config.optimizer.adamw.eps > max_eps)
    add_cause(finding,
              fmt::format("optimizer.eps = {:g} is larger than most gradients, and holds updates back",
                          config.optimizer.adamw.eps),
              "optimizer.eps = 1e-8");
  const Index skipped = run.steps.back().skipped_steps;
  if (skipped > static_cast<Index>(run.steps.size()) / 2)
    finding.evidence.push_back(fmt::format("{} gave no update", counted(skipped, "step")));
}

}  // namespace

double usual_learning_rate(const ModelConfig& shape) {
  constexpr double exponent = 0.318;  // ln 10 / ln (175e9 / 125e6)
  return 6e-4 * std::pow(125e6 / static_cast<double>(std::max<Index>(1, num_parameters(shape))), exponent);
}

Index usual_warmup_steps(const RecordedRun& run) {
  const Index steps = length_of(run);
  return std::clamp(steps / 20, std::clamp<Index>(steps / 2, 1, short_warmup), long_warmup);
}

Change calmer(const RecordedRun& run) {
  const RunConfig& config = run.config;
  if (config.optimizer.clip_grad_norm <= 0)
    return {.setting = "optimizer.clip_grad_norm = 1.0"};
  const double usual = usual_learning_rate(config.model.shape);
  if (config.optimizer.learning_rate > too_high * usual)
    return {.setting = rate_setting(run, usual)};
  std::string setting = fmt::format("optimizer.learning_rate = {:g}", config.optimizer.learning_rate / 2);
  if (config.optimizer.warmup_steps < length_of(run) / 2)
    setting += fmt::format(", or a longer optimizer.warmup_steps (now {})", config.optimizer.warmup_steps);
  return {.setting = std::move(setting)};
}

void add_causes_of_instability(const RecordedRun& run, Index step, Finding& finding) {
  const double rate = highest_rate(run, step);
  add_high_rate(run, rate, finding);
  add_decay(run.config, rate, finding);
  add_moments(run.config, finding);
  add_missing_warmup(run, step, finding);
  add_clipping(run, finding);
  const auto lowers_rate = [](const Change& change) { return change.setting.starts_with("optimizer.learning_rate"); };
  if (std::ranges::none_of(finding.changes, lowers_rate))
    finding.changes.push_back(
        {.setting = fmt::format("optimizer.learning_rate = {:g} (now {:g})", run.config.optimizer.learning_rate / 10,
                                run.config.optimizer.learning_rate)});
}

void add_causes_of_standstill(const RecordedRun& run, Finding& finding) {
  const double rate = highest_rate(run, run.steps.back().times.step);
  const double usual = usual_learning_rate(run.config.model.shape);
  const double guessing = std::log(static_cast<double>(std::max<Index>(2, run.config.model.shape.vocab_size)));
  add_early_end(run, rate, finding);
  add_high_rate(run, rate, finding);
  add_lost_updates(run, finding);
  add_decay(run.config, rate, finding);
  add_moments(run.config, finding);
  if (rate < too_low * usual && finding.changes.empty())
    add_cause(finding, against_usual(run, rate), rate_setting(run, usual));
  if (run.facts.unigram_loss > like_noise * guessing)
    add_cause(
        finding,
        fmt::format("all tokens of the vocabulary occur about equally often ({:.4g} nats per token of at most {:.4g}): "
                    "text is not like that; encrypted or compressed data are, or tokens of another width",
                    run.facts.unigram_loss, guessing),
        "look at the files of data.train: were they packed from text, with the tokenizer of this vocabulary?");
  if (finding.changes.empty())
    add_small_batch(run.config, finding);
  if (finding.changes.empty())
    finding.changes.push_back(
        {.setting = fmt::format("optimizer.learning_rate = {:g} (now {:g})", run.config.optimizer.learning_rate / 10,
                                run.config.optimizer.learning_rate)});
}

}  // namespace espalier

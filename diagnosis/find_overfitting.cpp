// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/median.hpp"
#include "diagnosis/find_stability.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

constexpr double validation_rise = 1.02;    // times the lowest validation loss
constexpr double validation_gap = 1.15;     // times the training loss
constexpr double read_often = 1.5;          // times that the text was read
constexpr double rate_reached = 0.99;       // of the peak rate
constexpr std::size_t compared_steps = 16;  // training losses that a validation loss is compared with

struct ValidationPoint {
  Index step = 0;
  double loss = 0;
  double training = 0;  // median of the steps up to this one
  std::size_t num_steps = 0;
};

std::vector<ValidationPoint> validation_points(const RecordedRun& run) {
  std::vector<ValidationPoint> points;
  std::vector<double> training;
  for (const StepRecord& step : run.steps) {
    if (std::isfinite(step.loss))
      training.push_back(step.loss);
    if (!step.validation_loss || !std::isfinite(*step.validation_loss) || training.empty())
      continue;
    const std::size_t count = std::min(compared_steps, training.size());
    points.push_back({step.times.step, *step.validation_loss,
                      median_of({training.end() - static_cast<std::ptrdiff_t>(count), training.end()}), count});
  }
  return points;
}

void add_what_helps(const RecordedRun& run, Finding& finding) {
  const double epochs = run.facts.train_tokens > 0
                            ? static_cast<double>(run.steps.back().tokens) / static_cast<double>(run.facts.train_tokens)
                            : 0;
  if (epochs > read_often)
    finding.evidence.push_back(fmt::format("the training text was read {:.3g} times", epochs));
  else if (epochs > 0)
    finding.evidence.push_back(fmt::format(
        "the training text was read {:.2g} times only: the validation text may be of another kind", epochs));
  finding.changes.push_back({.setting = epochs > 0 && epochs <= read_often
                                            ? "data.validation from the same source as data.train (espalier data pack "
                                              "--validation splits one text)"
                                            : "more text in data.train, fewer run.steps, or a smaller model"});
}

}  // namespace

void find_overfitting(const RecordedRun& run, std::vector<Finding>& findings) {
  const std::vector<ValidationPoint> points = validation_points(run);
  if (points.empty())
    return;
  const ValidationPoint& last = points.back();
  const ValidationPoint& best = *std::ranges::min_element(points, {}, &ValidationPoint::loss);
  Finding finding{.cause = Cause::overfitting, .title = {}};
  if (last.loss > validation_rise * best.loss && last.training < best.training) {
    finding.size = last.loss / best.loss;
    finding.unit = "times the lowest validation loss";
    finding.title = fmt::format(
        "the model memorizes the training text: validation has risen from {:.4g} at step {} to {:.4g} "
        "at step {}, while training fell from {:.4g} to {:.4g}",
        best.loss, best.step, last.loss, last.step, best.training, last.training);
  } else if (last.loss > validation_gap * last.training &&
             last.loss - last.training > loss_course(run).chance(last.num_steps)) {
    finding.size = last.loss / last.training;
    finding.unit = "times the training loss";
    finding.title = fmt::format("validation loss is {:.0f} % above training loss: {:.4g} against {:.4g} at step {}",
                                100 * (finding.size - 1), last.loss, last.training, last.step);
  } else {
    return;
  }
  finding.risk = std::min(0.85, 0.3 + finding.size - 1);
  if (best.step != last.step && last.loss > validation_rise * best.loss)
    finding.changes.push_back(
        {.setting = fmt::format("the weights of step {} are the best of this run (checkpoint.keep_every keeps such "
                                "checkpoints); run.steps = {} ends there",
                                best.step, best.step)});
  add_what_helps(run, finding);
  findings.push_back(std::move(finding));
}

void find_unfinished_warmup(const RecordedRun& run, std::vector<Finding>& findings) {
  const RunConfig& config = run.config;
  if (run.steps.empty() || run.record.state != RunState::completed ||
      config.optimizer.warmup_steps < config.total_steps())
    return;
  const double peak = std::ranges::max(run.steps, {}, &StepRecord::learning_rate).learning_rate;
  if (peak >= rate_reached * config.optimizer.learning_rate)
    return;
  Finding finding{.cause = Cause::learning_rate,
                  .title = {},
                  .size = peak / config.optimizer.learning_rate,
                  .unit = "of the peak",
                  .risk = 0.3};
  finding.title = fmt::format("the run ended during the warm-up: the learning rate reached {:.3g} of {:g}", peak,
                              config.optimizer.learning_rate);
  finding.evidence = {fmt::format("the warm-up has {}, the run {}", counted(config.optimizer.warmup_steps, "step"),
                                  counted(config.total_steps(), "step"))};
  finding.changes = {{.setting = fmt::format("optimizer.warmup_steps = {} (now {})", usual_warmup_steps(run),
                                             config.optimizer.warmup_steps)}};
  findings.push_back(std::move(finding));
}

}  // namespace espalier

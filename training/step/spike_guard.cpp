// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/spike_guard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/median.hpp"
#include "io/json_fields.hpp"

namespace espalier {
namespace {

constexpr double min_loss_deviation = 0.01;     // of the loss, and at least as many nats
constexpr double min_log_norm_deviation = 0.1;  // a tenth more or less

template <class Floor>
RobustDeviation deviation_of(const std::deque<double>& window, const Floor& floor) {
  const auto [median, deviation] = robust_deviation({window.begin(), window.end()});
  return {median, std::max(deviation, floor(median))};
}

double score(const RobustDeviation& baseline, double value) { return (value - baseline.median) / baseline.deviation; }

// A norm of zero has a logarithm, too: far below any other.
double log_norm(double norm) { return std::log(std::max(norm, std::numeric_limits<double>::min())); }

}  // namespace

const char* to_string(Anomaly anomaly) {
  switch (anomaly) {
    case Anomaly::spike: return "spike";
    case Anomaly::non_finite: return "non_finite";
    case Anomaly::none: break;
  }
  return "none";
}

// Of the steps before.
struct SpikeGuard::Baseline {
  RobustDeviation loss;
  RobustDeviation log_norm;
};

std::optional<SpikeGuard::Baseline> SpikeGuard::baseline() const {
  const bool is_off = config_.spike_window == 0;
  if (is_off || losses_.empty() || 2 * static_cast<Index>(losses_.size()) < config_.spike_window)
    return std::nullopt;
  return Baseline{
      deviation_of(losses_, [](double median) { return min_loss_deviation * std::max(1.0, std::abs(median)); }),
      deviation_of(log_norms_, [](double) { return min_log_norm_deviation; })};
}

UpdateLimits SpikeGuard::limits() const {
  const std::optional<Baseline> before = baseline();
  if (!before)
    return {};
  const auto limit = [&](const RobustDeviation& each) {
    return each.median + config_.spike_threshold * each.deviation;
  };
  return {.loss = limit(before->loss), .gradient_norm = std::exp(limit(before->log_norm))};
}

void SpikeGuard::remember(double loss, double gradient_norm) {
  if (config_.spike_window == 0)
    return;
  losses_.push_back(loss);
  log_norms_.push_back(log_norm(gradient_norm));
  while (static_cast<Index>(losses_.size()) > config_.spike_window) {
    losses_.pop_front();
    log_norms_.pop_front();
  }
}

Judgement SpikeGuard::judge(double loss, double gradient_norm) {
  Judgement judgement;
  if (!std::isfinite(loss) || !std::isfinite(gradient_norm)) {
    judgement.anomaly = Anomaly::non_finite;
  } else {
    if (const std::optional<Baseline> before = baseline())
      judgement.scores = {score(before->loss, loss), score(before->log_norm, log_norm(gradient_norm))};
    if (!is_within(limits(), loss, gradient_norm))
      judgement.anomaly = Anomaly::spike;
  }
  if (judgement.anomaly != Anomaly::none && config_.on_spike != SpikePolicy::proceed)
    judgement.action = config_.on_spike == SpikePolicy::skip ? StepAction::skip : StepAction::rollback;
  else if (judgement.anomaly == Anomaly::non_finite)
    judgement.action = StepAction::give_up;
  if (judgement.action == StepAction::skip) {
    ++skipped_;
    if (++skipped_in_a_row_ > config_.max_skips)
      judgement.action = StepAction::give_up;
  }
  if (judgement.action == StepAction::update) {
    skipped_in_a_row_ = 0;
    remember(loss, gradient_norm);
  }
  return judgement;
}

nlohmann::json SpikeGuard::state() const {
  return {
      {"losses", losses_}, {"log_norms", log_norms_}, {"skipped", skipped_}, {"skipped_in_a_row", skipped_in_a_row_}};
}

void SpikeGuard::restore(const nlohmann::json& state) {
  const auto losses = values_field<double>(state, "losses");
  const auto log_norms = values_field<double>(state, "log_norms");
  if (losses.size() != log_norms.size())
    refuse_field("log_norms", state.at("log_norms"), fmt::format("{}, as there are losses", losses.size()));
  const auto skipped = field<Index>(state, "skipped", count_range);
  const auto skipped_in_a_row = field<Index>(state, "skipped_in_a_row", IntegerRange{0, skipped});
  losses_.assign(losses.begin(), losses.end());
  log_norms_.assign(log_norms.begin(), log_norms.end());
  skipped_ = skipped;
  skipped_in_a_row_ = skipped_in_a_row;
}

}  // namespace espalier

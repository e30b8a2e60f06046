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

constexpr double least_loss_spread = 0.01;     // of the loss, and at least as many nats
constexpr double least_log_norm_spread = 0.1;  // a tenth more or less

template <class LeastSpread>
RobustSpread spread_of(const std::deque<double>& window, const LeastSpread& least_spread) {
  const auto [median, deviation] = robust_spread({window.begin(), window.end()});
  return {median, std::max(deviation, least_spread(median))};
}

double score(const RobustSpread& usual, double value) { return (value - usual.median) / usual.deviation; }

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
struct SpikeGuard::Usual {
  RobustSpread loss;
  RobustSpread log_norm;
};

std::optional<SpikeGuard::Usual> SpikeGuard::usual() const {
  const bool is_off = config_.spike_window == 0;
  if (is_off || losses_.empty() || 2 * static_cast<Index>(losses_.size()) < config_.spike_window)
    return std::nullopt;
  return Usual{spread_of(losses_, [](double median) { return least_loss_spread * std::max(1.0, std::abs(median)); }),
               spread_of(log_norms_, [](double) { return least_log_norm_spread; })};
}

UpdateLimits SpikeGuard::limits() const {
  const std::optional<Usual> of_before = usual();
  if (!of_before)
    return {};
  const auto limit = [&](const RobustSpread& each) { return each.median + config_.spike_threshold * each.deviation; };
  return {.loss = limit(of_before->loss), .gradient_norm = std::exp(limit(of_before->log_norm))};
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
    if (const std::optional<Usual> of_before = usual())
      judgement.scores = {score(of_before->loss, loss), score(of_before->log_norm, log_norm(gradient_norm))};
    if (!is_within(limits(), loss, gradient_norm))
      judgement.anomaly = Anomaly::spike;
  }
  if (judgement.anomaly != Anomaly::none && config_.on_spike != "continue")
    judgement.fate = config_.on_spike == "skip" ? StepFate::skip : StepFate::rollback;
  else if (judgement.anomaly == Anomaly::non_finite)
    judgement.fate = StepFate::give_up;
  if (judgement.fate == StepFate::skip) {
    ++skipped_;
    if (++skipped_in_a_row_ > config_.max_skips)
      judgement.fate = StepFate::give_up;
  }
  if (judgement.fate == StepFate::update) {
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

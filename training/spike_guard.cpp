// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/spike_guard.hpp"

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
double robust_score(double value, const std::deque<double>& window, const LeastSpread& least_spread) {
  const auto [median, deviation] = robust_spread({window.begin(), window.end()});
  return (value - median) / std::max(deviation, least_spread(median));
}

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

std::optional<SpikeScores> SpikeGuard::scores(double loss, double gradient_norm) const {
  const bool is_off = config_.spike_window == 0;
  if (is_off || losses_.empty() || 2 * static_cast<Index>(losses_.size()) < config_.spike_window)
    return std::nullopt;
  return SpikeScores{
      robust_score(loss, losses_, [](double median) { return least_loss_spread * std::max(1.0, std::abs(median)); }),
      robust_score(log_norm(gradient_norm), log_norms_, [](double) { return least_log_norm_spread; })};
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
    judgement.scores = scores(loss, gradient_norm);
    if (judgement.scores && std::max(judgement.scores->loss, judgement.scores->gradient_norm) > config_.spike_threshold)
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

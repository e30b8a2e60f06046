// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loss_scaler.hpp"

#include <algorithm>

namespace espalier {
void LossScaler::good_step() {
  skipped_at_floor_ = 0;
  if (!active_ || config_.growth_interval == 0 || ++good_steps_ < config_.growth_interval)
    return;
  scale_ = std::min(2 * scale_, largest);
  good_steps_ = 0;
}

bool LossScaler::skipped_step() {
  ++skipped_;
  good_steps_ = 0;
  skipped_at_floor_ = scale_ <= config_.minimum ? skipped_at_floor_ + 1 : 0;
  scale_ = std::max(scale_ / 2, config_.minimum);
  return skipped_at_floor_ < patience;
}

nlohmann::json LossScaler::state() const {
  return {{"active", active_},
          {"scale", scale_},
          {"good_steps", good_steps_},
          {"skipped", skipped_},
          {"at_floor", skipped_at_floor_}};
}

void LossScaler::restore(const nlohmann::json& state) {
  skipped_ = state.at("skipped").get<Index>();
  if (!active_ || !state.value("active", true))  // trained in another precision: fp16 begins with its initial scale
    return;
  scale_ = state.at("scale").get<double>();
  good_steps_ = state.at("good_steps").get<Index>();
  skipped_at_floor_ = state.at("at_floor").get<int>();
}

}  // namespace espalier

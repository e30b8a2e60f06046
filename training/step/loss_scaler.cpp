// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/loss_scaler.hpp"

#include <algorithm>

#include "io/json_fields.hpp"

namespace espalier {
void LossScaler::good_step() {
  skipped_at_floor_ = 0;
  if (!active_ || config_.growth_interval == 0 || ++good_steps_ < config_.growth_interval)
    return;
  scale_ = std::min(2 * scale_, LossScaleConfig::largest);
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
  const auto skipped = field<Index>(state, "skipped", count_range);
  const auto scale =
      field<double>(state, "scale", FloatRange{.min = 0, .max = LossScaleConfig::largest, .min_open = true});
  const auto good_steps = field<Index>(state, "good_steps", count_range);
  const auto at_floor = field<int>(state, "at_floor", IntegerRange{0, patience});
  const bool was_active = field_or(state, "active", true);
  skipped_ = skipped;
  if (!active_ || !was_active)  // trained in another precision: fp16 begins with its initial scale
    return;
  scale_ = scale;
  good_steps_ = good_steps;
  skipped_at_floor_ = at_floor;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "training/config/run_config.hpp"

namespace espalier {

/// Dynamic loss scaling (Micikevicius et al., 2018): the loss is multiplied by a scale, so that small gradients in fp16
/// do not vanish. A step whose gradients overflow is skipped and halves the scale, down to a floor; a number of good
/// steps in a row doubles it. All ranks decide alike, as they see one gradient norm. Scales are powers of two, so
/// unscaling does not round.
class LossScaler {
 public:
  /// Inactive: scale 1, and no step is skipped. For compute types with the exponents of fp32.
  LossScaler() = default;
  explicit LossScaler(const LossScaleConfig& config) : active_(true), config_(config), scale_(config.initial) {}

  bool is_active() const { return active_; }
  double scale() const { return scale_; }
  Index skipped() const { return skipped_; }  ///< steps since the start of the run

  void good_step();
  /// The step's gradients were not finite. Returns false after `patience` skipped steps in a row at the floor of the
  /// scale: a lower scale does not help.
  [[nodiscard]] bool skipped_step();

  static constexpr int patience = 5;

  /// The whole state, for checkpoints and comparisons. The state of an inactive scaler (trained in another precision)
  /// leaves the scale as it is. @throws std::runtime_error on a state of something else.
  nlohmann::json state() const;
  void restore(const nlohmann::json& state);

 private:
  bool active_ = false;
  LossScaleConfig config_;
  double scale_ = 1;
  Index good_steps_ = 0;  // in a row, since the scale changed last
  Index skipped_ = 0;
  int skipped_at_floor_ = 0;  // in a row
};

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "core/scalars.hpp"

// How fast the pairs of channels of rotary positions rotate. The words and formulas are those of Hugging Face's
// `rope_parameters`.

namespace espalier {

/// How a model is taught longer sequences than it was trained on.
enum class RotaryScaling {
  none,     ///< theta^(-2i/HR)
  linear,   ///< positions divided by the factor (Chen et al., Position Interpolation, 2023)
  dynamic,  ///< a larger theta for sequences longer than the original length (NTK-aware scaling)
  yarn,     ///< slow pairs divided, fast ones not, a ramp between (Peng et al., YaRN, 2023)
  llama3    ///< the same idea with other bounds (Llama 3.1, 2024)
};
const char* to_string(RotaryScaling scaling);  ///< Hugging Face's `rope_type`
inline constexpr std::array all_rotary_scalings{RotaryScaling::none, RotaryScaling::linear, RotaryScaling::dynamic,
                                                RotaryScaling::yarn, RotaryScaling::llama3};

struct RotaryConfig {
  Index size = 0;  ///< HR, channels of a head that are rotated: even, at most HS
  double theta = 10000;
  RotaryScaling scaling = RotaryScaling::none;
  double factor = 1;  ///< s, of the length: at least 1; of all kinds but none
  /// L0, positions before scaling. Hugging Face has it as `original_max_position_embeddings`, and for dynamic as
  /// `max_position_embeddings`.
  Index original_length = 0;
  double low_frequency_factor = 1;   ///< of llama3: pairs with fewer rotations in L0 positions are divided by s
  double high_frequency_factor = 4;  ///< of llama3: those with more stay
  double beta_slow = 1;              ///< of yarn: as low_frequency_factor
  double beta_fast = 32;             ///< of yarn: as high_frequency_factor
  bool truncate = true;              ///< of yarn: the ramp begins and ends at whole pairs
  double mscale = 0;                 ///< of yarn: in the attention factor, where both are given
  double mscale_all_dim = 0;
  double attention_factor = 0;  ///< of yarn; 0: 0.1 ln(s) + 1, or by mscale

  bool operator==(const RotaryConfig&) const = default;
};

struct RotaryFrequencies {
  std::vector<double> of_pairs;  ///< (HR/2), radians a position
  double attention_factor = 1;   ///< sines and cosines are multiplied by it, so scores by its square
};

/// @param sequence_length the longest one; dynamic scaling alone asks for it
/// @pre HR is even and positive, for dynamic at least 4; s, theta and L0 are positive where they are used
RotaryFrequencies rotary_frequencies(const RotaryConfig& config, Index sequence_length = 0);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/ops/rotary_frequencies.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "core/error.hpp"

namespace espalier {
namespace {

constexpr double two_pi = 2 * std::numbers::pi;

// Theta for a sequence of this length: that of NTK-aware scaling, with s len / L0 - (s - 1) as the factor of the
// length.
double dynamic_theta(const RotaryConfig& config, Index sequence_length) {
  const double length = to_double(std::max(sequence_length, config.original_length));
  const double stretch = config.factor * length / to_double(config.original_length) - (config.factor - 1);
  return config.theta * std::pow(stretch, to_double(config.size) / to_double(config.size - 2));
}

// Between a frequency and the same divided by the factor; share 1: the frequency.
double blend(const RotaryConfig& config, double frequency, double share) {
  return frequency * share + frequency / config.factor * (1 - share);
}

double llama3_frequency(const RotaryConfig& config, double frequency) {
  const double rotations = to_double(config.original_length) * frequency / two_pi;
  const double low = config.low_frequency_factor, high = config.high_frequency_factor;
  return blend(config, frequency, rotations < low ? 0 : rotations > high ? 1 : (rotations - low) / (high - low));
}

// The pair, as a fraction, that rotates so often in L0 positions.
double pair_of_rotations(const RotaryConfig& config, double rotations) {
  return to_double(config.size) * std::log(to_double(config.original_length) / (rotations * two_pi)) /
         (2 * std::log(config.theta));
}

// How much of a pair's frequency stays: 1 up to the pair that rotates beta_fast times, 0 from that of beta_slow on.
double yarn_share(const RotaryConfig& config, Index pair) {
  double first = pair_of_rotations(config, config.beta_fast), last = pair_of_rotations(config, config.beta_slow);
  if (config.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, to_double(config.size - 1));
  if (first == last)
    last += 0.001;  // Hugging Face's way around a division by zero
  return 1 - std::clamp((to_double(pair) - first) / (last - first), 0.0, 1.0);
}

double yarn_attention_factor(const RotaryConfig& config) {
  if (config.attention_factor > 0)
    return config.attention_factor;
  const auto growth = [&](double scale) { return config.factor <= 1 ? 1 : 0.1 * scale * std::log(config.factor) + 1; };
  return config.mscale > 0 && config.mscale_all_dim > 0 ? growth(config.mscale) / growth(config.mscale_all_dim)
                                                        : growth(1);
}

}  // namespace

const char* to_string(RotaryScaling scaling) {
  switch (scaling) {
    case RotaryScaling::none: return "default";
    case RotaryScaling::linear: return "linear";
    case RotaryScaling::dynamic: return "dynamic";
    case RotaryScaling::yarn: return "yarn";
    case RotaryScaling::llama3: return "llama3";
  }
  return "unknown";
}

RotaryFrequencies rotary_frequencies(const RotaryConfig& config, Index sequence_length) {
  const Index least = config.scaling == RotaryScaling::dynamic ? 4 : 2;
  ESPALIER_ASSERT(config.size >= least && config.size % 2 == 0, std::to_string(config.size) + " channels in pairs");
  ESPALIER_ASSERT(config.theta > 0 && config.factor > 0, "theta and the factor are positive");
  const bool wants_length = config.scaling != RotaryScaling::none && config.scaling != RotaryScaling::linear;
  ESPALIER_ASSERT(!wants_length || config.original_length > 0, "the original length is known");
  const double theta = config.scaling == RotaryScaling::dynamic ? dynamic_theta(config, sequence_length) : config.theta;
  RotaryFrequencies result;
  for (Index pair = 0; pair < config.size / 2; ++pair) {
    const double frequency = std::pow(theta, -2 * to_double(pair) / to_double(config.size));
    switch (config.scaling) {
      case RotaryScaling::none:
      case RotaryScaling::dynamic: result.of_pairs.push_back(frequency); break;
      case RotaryScaling::linear: result.of_pairs.push_back(frequency / config.factor); break;
      case RotaryScaling::yarn: result.of_pairs.push_back(blend(config, frequency, yarn_share(config, pair))); break;
      case RotaryScaling::llama3: result.of_pairs.push_back(llama3_frequency(config, frequency)); break;
    }
  }
  if (config.scaling == RotaryScaling::yarn)
    result.attention_factor = yarn_attention_factor(config);
  return result;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "core/region.hpp"
#include "core/stopwatch.hpp"

namespace espalier {

/// Where the time of a step goes. The same words in `plan`, `train` and `diagnose`. Recomputation is part of backward.
enum class Phase {
  forward,
  backward,
  bubble,
  tensor_comm,
  pipeline_comm,
  data_comm,
  optimizer,
  data,
  checkpoint,
  other
};
inline constexpr std::size_t num_phases = 10;
const char* to_string(Phase phase);

struct PhaseSeconds {
  std::array<double, num_phases> seconds{};
  double& operator[](Phase phase) { return seconds[static_cast<std::size_t>(phase)]; }
  double operator[](Phase phase) const { return seconds[static_cast<std::size_t>(phase)]; }
  double total() const;
};

/// Adds the time of its life to a phase, and names the phase for profiling tools.
class PhaseTimer {
 public:
  PhaseTimer(PhaseSeconds& seconds, Phase phase);

 private:
  Region region_;
  AddSeconds add_seconds_;
};

}  // namespace espalier

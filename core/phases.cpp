// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/phases.hpp"

#include <numeric>
#include <string>

namespace espalier {

const char* to_string(Phase phase) {
  static constexpr std::array<const char*, num_phases> names = {
      "forward",   "backward",  "bubble", "tensor_comm", "pipeline_comm",
      "data_comm", "optimizer", "data",   "checkpoint",  "other"};
  return names[static_cast<std::size_t>(phase)];
}

double PhaseSeconds::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

PhaseTimer::PhaseTimer(PhaseSeconds& seconds, Phase phase)
    : region_(std::string("espalier::training::") + to_string(phase)), add_seconds_(seconds[phase]) {}

}  // namespace espalier

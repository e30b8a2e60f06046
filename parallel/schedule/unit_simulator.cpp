// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/unit_simulator.hpp"

#include <algorithm>
#include <numeric>

namespace espalier {

double exposed_seconds(const UnitList& list, const std::vector<UnitPass>& passes, const UnitTimes& times) {
  double now = 0;        // of the host
  double link_free = 0;  // when it has carried what has started
  std::vector<double> come(static_cast<std::size_t>(list.buffers.weights), 0.0);
  std::vector<double> summed(static_cast<std::size_t>(list.buffers.gradients), 0.0);
  const auto of = [](std::vector<double>& ring, int unit) -> double& {
    return ring[static_cast<std::size_t>(unit) % ring.size()];
  };
  const auto send = [&](double seconds) { return link_free = std::max(now, link_free) + seconds; };
  UnitActionRunner walk(list, [&](const UnitAction& action) {
    switch (action.kind) {
      case UnitAction::Kind::gather: of(come, action.unit) = send(times.gather); break;
      case UnitAction::Kind::wait_for_weights: now = std::max(now, of(come, action.unit)); break;
      case UnitAction::Kind::wait_for_buffer: now = std::max(now, of(summed, action.unit)); break;
      case UnitAction::Kind::release: break;
      case UnitAction::Kind::reduce: of(summed, action.unit) = send(times.reduce); break;
    }
  });
  for (std::size_t i = 0; i < passes.size(); ++i) {
    walk.enter(passes[i]);
    now += times.kernels.at(i);
    walk.leave();
  }
  return std::max(now, link_free) - std::accumulate(times.kernels.begin(), times.kernels.end(), 0.0);
}

}  // namespace espalier

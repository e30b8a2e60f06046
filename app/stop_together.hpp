// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "app/print.hpp"
#include "app/stop_requests.hpp"
#include "core/error.hpp"
#include "parallel/collectives/collectives.hpp"

namespace espalier {

/// A request to stop on any rank, once all know of it.
class StopTogether {
 public:
  explicit StopTogether(const Communicator& world) : world_(world) {}
  bool asked() {
    const std::string name = stop_request();
    if (!name.empty())
      name_ = name;
    return all_reduce(world_, Index{name.empty() ? 0 : 1}, ReduceOp::max) > 0;
  }
  int end(const std::string& done) const {
    if (world_.rank() == 0)
      print_note("stopped{} after {}; nothing was written; run the same command again\n",
                 name_.empty() ? "" : " by " + name_, done);
    return static_cast<int>(ExitCode::stopped);
  }

 private:
  const Communicator& world_;
  std::string name_;  // of the one that came to this rank
};

}  // namespace espalier

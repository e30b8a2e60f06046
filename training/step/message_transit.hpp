// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>

#include "core/scalars.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

/// How long messages between stages were on their way, of those that this rank waited for before they were sent: only
/// of them does a receiver see the whole way. What tells a slow link from a late sender.
struct MessageTransit {
  struct Sum {
    Index messages = 0;
    double seconds = 0;
    double mean() const { return messages > 0 ? seconds / static_cast<double>(messages) : 0; }
  };
  Sum activations;
  Sum gradients;

  Sum& of(OperationKind receive) { return receive == OperationKind::receive_activations ? activations : gradients; }
};

}  // namespace espalier

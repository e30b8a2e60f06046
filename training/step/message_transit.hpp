// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/types.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

/// Transit times of messages between stages, which separate a slow link from a late sender. Only messages that this
/// rank already waited for when they were sent are measured: of others a receiver does not see the whole transit.
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

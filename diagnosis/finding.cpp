// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/finding.hpp"

namespace espalier {

const char* to_string(Cause cause) {
  switch (cause) {
    case Cause::died: return "died";
    case Cause::silent: return "silent";
    case Cause::failed: return "failed";
    case Cause::hangs: return "hangs";
    case Cause::slow_rank: return "slow_rank";
    case Cause::slow_link: return "slow_link";
    case Cause::data_stall: return "data_stall";
    case Cause::checkpoint_stall: return "checkpoint_stall";
    case Cause::slow_compute: return "slow_compute";
    case Cause::crowded_cores: return "crowded_cores";
    case Cause::precision: return "precision";
    case Cause::uneven_stages: return "uneven_stages";
    case Cause::bubble: return "bubble";
    case Cause::stage_messages: return "stage_messages";
    case Cause::gradient_reduction: return "gradient_reduction";
    case Cause::tensor_across_nodes: return "tensor_across_nodes";
    case Cause::tensor_exchange: return "tensor_exchange";
    case Cause::optimizer: return "optimizer";
    case Cause::overhead: return "overhead";
    case Cause::not_finite: return "not_finite";
    case Cause::divergence: return "divergence";
    case Cause::plateau: return "plateau";
    case Cause::loss_spike: return "loss_spike";
    case Cause::gradient_spike: return "gradient_spike";
    case Cause::loss_scale_collapse: return "loss_scale_collapse";
    case Cause::skipped_steps: return "skipped_steps";
    case Cause::overfitting: return "overfitting";
    case Cause::learning_rate: return "learning_rate";
    case Cause::effective_batch: return "effective_batch";
  }
  return "unknown";
}

const char* to_string(Concern concern) {
  switch (concern) {
    case Concern::end: return "end";
    case Concern::time: return "time";
    case Concern::stability: return "stability";
  }
  return "unknown";
}

Concern concern_of(Cause cause) {
  switch (cause) {
    case Cause::died:
    case Cause::silent:
    case Cause::failed:
    case Cause::hangs: return Concern::end;
    case Cause::not_finite:
    case Cause::divergence:
    case Cause::plateau:
    case Cause::loss_spike:
    case Cause::gradient_spike:
    case Cause::loss_scale_collapse:
    case Cause::skipped_steps:
    case Cause::overfitting:
    case Cause::learning_rate:
    case Cause::effective_batch: return Concern::stability;
    default: return Concern::time;
  }
}

}  // namespace espalier

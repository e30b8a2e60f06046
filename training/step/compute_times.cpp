// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/compute_times.hpp"

namespace espalier {

void ComputeTimes::begin_step() {
  clock_.emplace(exec_, world_.clock());
  work_.clear();
}

void ComputeTimes::wait_and_account(PhaseSeconds& seconds) {
  for (const Work& work : work_) {
    const double begin = clock_->seconds_at(work.begin);
    const double end = clock_->seconds_at(work.end);
    const double tensor_seconds = work.tensor_seconds + account_for_collectives(work);
    seconds[work.phase] += end - begin - tensor_seconds - work.waited_seconds;
    seconds[Phase::data_comm] += work.waited_seconds;
    seconds[Phase::tensor_comm] += tensor_seconds;
    const SpentTime spent{work.name, work.phase, begin, end, work.op.chunk, work.op.microbatch};
    if (!work.name.empty())
      world_.observers().spent(spent);
  }
  work_.clear();
}

// Those that the host only enqueued. @returns their seconds.
double ComputeTimes::account_for_collectives(const Work& work) const {
  double seconds = 0;
  for (std::size_t i = work.first_enqueued; i < work.end_enqueued; ++i) {
    const EnqueuedCollective& collective = enqueued_[i];
    const double begin = clock_->seconds_at(collective.begin);
    const double end = clock_->seconds_at(collective.end);
    seconds += end - begin;
    const SpentTime spent{collective.what, Phase::tensor_comm, begin, end};
    world_.observers().spent(spent);
  }
  return seconds;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "core/phases.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"

namespace espalier {

/// Time that went into a phase, in seconds of the job's clock.
struct SpentTime {
  std::string_view what;  ///< "F1", "reduce bucket 3 of dp gradients"
  Phase phase = Phase::other;
  double begin = 0;
  double end = 0;
  int chunk = -1;  ///< -1: of none
  int microbatch = -1;
  bool in_background = false;  ///< overlapped with what the rank itself does
};

/// Is notified of what a rank does, by the thread that does it; not while a device graph is recorded. An observer may
/// take time, and changes nothing else. Without any the step is the same.
class StepObserver {
 public:
  virtual ~StepObserver() = default;

  virtual void step_begins(std::int64_t /* step */) {}

  /// An operation of the schedule's list; index -1: something beside it, such as "validation".
  virtual void operation_begins(int /* index */, std::string_view /* what */, int /* chunk */, int /* microbatch */) {}

  /// The host begins to compute an operation; nullptr: what the trainer does in this phase, outside of the schedule.
  virtual void work_begins(Phase, const Operation*) {}

  /// A block of that work is done. `communicated`: seconds since its begin that went into communication. `progress`
  /// lets messages move.
  virtual void block_done(double /* communicated */, const std::function<void()>& /* progress */) {}

  /// ZeRO-3: the weights of a layer (ReductionPlan::units) are gathered; kernels that use them follow.
  virtual void layer_gathered(int /* unit */) {}

  /// Called once the times are known, in any order.
  virtual void spent(const SpentTime&) {}

  /// The host waits for messages from or to these ranks of the world. @param sequence messages sent so far
  virtual void wait_begins(std::string_view /* what */, std::string_view /* communicator */,
                           std::uint64_t /* sequence */, std::span<const int> /* world_ranks */) {}
  virtual void wait_goes_on(std::span<const int> /* world_ranks */) {}
  virtual void wait_ends() {}

  /// Collective `number` (from 1) of the MPI library begins on a communicator of this rank; 0: some may follow.
  virtual void collective_begins(std::uint32_t /* communicator */, std::uint64_t /* number */) {}
  /// The wait that has begun is for this collective.
  virtual void collective_waits(std::uint32_t /* communicator */, std::uint64_t /* number */) {}
  virtual void communicator_ends(std::uint32_t /* communicator */) {}

  /// What happens between these two belongs to no step.
  virtual void evaluation_begins() {}
  virtual void evaluation_ends() {}
};

/// All that observe a rank, notified in the order in which they were added.
class StepObservers final : public StepObserver {
 public:
  StepObservers(std::initializer_list<StepObserver*> observers) : observers_(observers) {}
  void add(StepObserver& observer) { observers_.push_back(&observer); }
  void remove(const StepObserver& observer) { std::erase(observers_, &observer); }

  void step_begins(std::int64_t step) override { notify(&StepObserver::step_begins, step); }
  void operation_begins(int index, std::string_view what, int chunk, int microbatch) override {
    notify(&StepObserver::operation_begins, index, what, chunk, microbatch);
  }
  void work_begins(Phase phase, const Operation* operation) override {
    notify(&StepObserver::work_begins, phase, operation);
  }
  void block_done(double communicated, const std::function<void()>& progress) override {
    notify(&StepObserver::block_done, communicated, progress);
  }
  void layer_gathered(int unit) override { notify(&StepObserver::layer_gathered, unit); }
  void spent(const SpentTime& time) override { notify(&StepObserver::spent, time); }
  void wait_begins(std::string_view what, std::string_view communicator, std::uint64_t sequence,
                   std::span<const int> world_ranks) override {
    notify(&StepObserver::wait_begins, what, communicator, sequence, world_ranks);
  }
  void wait_goes_on(std::span<const int> world_ranks) override { notify(&StepObserver::wait_goes_on, world_ranks); }
  void wait_ends() override { notify(&StepObserver::wait_ends); }
  void collective_begins(std::uint32_t communicator, std::uint64_t number) override {
    notify(&StepObserver::collective_begins, communicator, number);
  }
  void collective_waits(std::uint32_t communicator, std::uint64_t number) override {
    notify(&StepObserver::collective_waits, communicator, number);
  }
  void communicator_ends(std::uint32_t communicator) override {
    notify(&StepObserver::communicator_ends, communicator);
  }
  void evaluation_begins() override { notify(&StepObserver::evaluation_begins); }
  void evaluation_ends() override { notify(&StepObserver::evaluation_ends); }

 private:
  template <class... Parameters, class... Values>
  void notify(void (StepObserver::*event)(Parameters...), const Values&... values) const {
    for (StepObserver* const observer : observers_)
      (observer->*event)(values...);
  }

  std::vector<StepObserver*> observers_;
};

/// While it lives, what happens belongs to no step.
class EvaluationScope {
 public:
  explicit EvaluationScope(StepObservers& observers) : observers_(observers) { observers_.evaluation_begins(); }
  ~EvaluationScope() { observers_.evaluation_ends(); }
  EvaluationScope(const EvaluationScope&) = delete;
  EvaluationScope& operator=(const EvaluationScope&) = delete;

 private:
  StepObservers& observers_;
};

}  // namespace espalier

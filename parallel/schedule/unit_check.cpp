// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Checks lists of what happens to whole layers.
#include <fmt/format.h>

#include "parallel/schedule/unit_actions.hpp"

namespace espalier {
namespace {

class UnitCheck {
  using Kind = UnitAction::Kind;

 public:
  UnitCheck(const std::vector<UnitPass>& passes, UnitBuffers buffers)
      : writes_left_(writes_of_units(passes)),
        weights_(static_cast<std::size_t>(buffers.weights)),
        gradients_(static_cast<std::size_t>(buffers.gradients)) {
    for (const UnitPass& pass : passes)
      if (gathers() || (pass.writes && reduces()))
        passes_.push_back(pass);
  }

  /// What is wrong about the next action; empty: nothing.
  std::string problem_of(const UnitAction& action) {
    switch (action.kind) {
      case Kind::gather: return gather(action.unit);
      case Kind::wait_for_weights: return use(action.unit);
      case Kind::wait_for_buffer: return write(action.unit);
      case Kind::release: return release(action.unit);
      case Kind::reduce: return reduce(action);
    }
    return "is unknown";
  }

  std::string problem_at_the_end() const {
    if (num_begun_ < passes_.size())
      return fmt::format("unit {} is not {} at the end", passes_[num_begun_].unit, gathers() ? "used" : "written");
    for (const Weights& buffer : weights_)
      if (buffer.is_coming || buffer.is_in_use)
        return fmt::format("unit {} is {} at the end", buffer.unit,
                           buffer.is_coming ? "gathered, not used," : "in use");
    for (const Gradients& buffer : gradients_)
      if (buffer.is_written)
        return fmt::format("the gradients of unit {} are not reduced at the end", buffer.unit);
    return "";
  }

 private:
  struct Weights {
    int unit = -1;
    bool is_coming = false;  // not used since it was gathered
    bool is_in_use = false;
  };
  struct Gradients {
    int unit = -1;
    bool is_written = false;  // and not reduced
  };

  bool gathers() const { return !weights_.empty(); }
  bool reduces() const { return !gradients_.empty(); }
  template <class Buffer>
  static Buffer& of(std::vector<Buffer>& ring, int unit) {
    return ring[static_cast<std::size_t>(unit) % ring.size()];
  }
  bool begin_pass(int unit) {
    if (num_begun_ == passes_.size() || passes_[num_begun_].unit != unit)
      return false;
    ++num_begun_;
    may_write_ = false;
    return true;
  }
  const UnitPass& pass() const { return passes_[num_begun_ - 1]; }
  bool is_in_use(int unit) const { return in_use_ != nullptr && in_use_->unit == unit; }

  std::string gather(int unit) {
    if (!gathers())
      return "has nothing to gather: weights are not sharded";
    Weights& buffer = of(weights_, unit);
    if (buffer.is_in_use || buffer.is_coming)
      return fmt::format("overwrites unit {}, which is {}", buffer.unit, buffer.is_in_use ? "in use" : "not used yet");
    buffer = Weights{.unit = unit, .is_coming = true};
    return "";
  }

  std::string use(int unit) {
    if (!gathers())
      return "has nothing to wait for: weights are not sharded";
    Weights& buffer = of(weights_, unit);
    if (buffer.unit != unit)
      return buffer.unit < 0 ? "comes before its gather" : fmt::format("finds unit {} in its buffer", buffer.unit);
    if (in_use_ != nullptr)
      return fmt::format("comes before the release of unit {}", in_use_->unit);
    if (!begin_pass(unit))
      return "is not the next use of the list";
    buffer.is_coming = false;
    buffer.is_in_use = true;
    in_use_ = &buffer;
    return "";
  }

  std::string write(int unit) {
    if (!reduces())
      return "has no buffer to wait for: gradients are not sharded";
    if (gathers() ? !is_in_use(unit) || !pass().writes || may_write_ : !begin_pass(unit))
      return "is not of a pass that writes gradients";
    Gradients& buffer = of(gradients_, unit);
    if (buffer.is_written)
      return fmt::format("overwrites the gradients of unit {}, which are not reduced", buffer.unit);
    buffer = Gradients{.unit = unit, .is_written = true};
    may_write_ = true;
    return "";
  }

  std::string release(int unit) {
    if (!is_in_use(unit))
      return "is of a unit that is not in use";
    if (reduces() && pass().writes && !may_write_)
      return "ends a pass whose gradients had no buffer: there was no wait_for_buffer";
    in_use_->is_in_use = false;
    in_use_ = nullptr;
    return "";
  }

  std::string reduce(const UnitAction& action) {
    if (!reduces())
      return "has no buffer to reduce: gradients are not sharded";
    Gradients& buffer = of(gradients_, action.unit);
    if (!buffer.is_written || buffer.unit != action.unit)
      return "is of gradients that were not written";
    if (is_in_use(action.unit))
      return "comes before the end of the pass that writes them";
    const int left = --writes_left_[action.unit];
    if (action.is_last != (left == 0))
      return left == 0 ? "is the last of its unit, and not flagged"
                       : fmt::format("is flagged, and {} more follow", left);
    buffer.is_written = false;
    return "";
  }

  std::vector<UnitPass> passes_;  // that have actions
  std::map<int, int> writes_left_;
  std::vector<Weights> weights_;
  std::vector<Gradients> gradients_;
  std::size_t num_begun_ = 0;
  bool may_write_ = false;  // the gradients of this pass
  Weights* in_use_ = nullptr;
};

}  // namespace

std::string check_unit_actions(const std::vector<UnitAction>& actions, const std::vector<UnitPass>& passes,
                               UnitBuffers buffers) {
  UnitCheck check(passes, buffers);
  for (std::size_t i = 0; i < actions.size(); ++i)
    if (const std::string problem = check.problem_of(actions[i]); !problem.empty())
      return fmt::format("{} (action {}) {}", text(actions[i]), i, problem);
  return check.problem_at_the_end();
}

}  // namespace espalier

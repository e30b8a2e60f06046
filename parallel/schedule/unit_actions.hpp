// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "parallel/schedule/pipeline_schedule.hpp"

// What ZeRO-2 and -3 do with whole layers inside the operations of a list. Pure.

namespace espalier {

/// The unit (an index of ReductionPlan::units) of the layer at a position of a chunk; -1 for the embedding and the
/// head.
int unit_at(const std::vector<Index>& layers_of_chunk, int chunk, int position);

/// Of an operation that runs through the layers of its chunk: the position of its first layer, and the direction, 1 or
/// -1.
int first_layer(const std::vector<Index>& layers_of_chunk, OperationKind kind, int chunk);
int direction(OperationKind kind);

/// Whether the kernels of the operation write gradients of layers.
bool writes_gradients(OperationKind kind);

/// The kernels of a layer in one operation.
struct UnitPass {
  int unit = 0;
  bool writes = false;  ///< its kernels write gradients
  bool operator==(const UnitPass&) const = default;
};

/// All passes of the list, in its order.
std::vector<UnitPass> unit_passes(const PipelineSchedule& schedule, const std::vector<Index>& layers_of_chunk);

/// How many of them write the gradients of each unit.
std::map<int, int> writes_of_units(const std::vector<UnitPass>& passes);

/// Buffers for whole units, used in turn: unit u lies in buffer u modulo their number. 0: no buffers, each rank holds
/// all units whole.
struct UnitBuffers {
  int weights = 0;
  int gradients = 0;
};

/// What happens around the kernels of a pass, in the order in which the host does it.
struct UnitAction {
  enum class Kind {
    gather,            ///< starts the all_gather of the unit's weights into their buffer
    wait_for_weights,  ///< until the all_gather is done; kernels that use the weights follow
    wait_for_buffer,   ///< until the last sum of the buffer of gradients is done; kernels that write into it follow
    release,           ///< all kernels of the pass are enqueued: the buffer of weights may take another unit
    reduce,            ///< starts the sum of the unit's gradients of this micro-batch
  };
  Kind kind = Kind::wait_for_weights;
  int unit = 0;
  bool is_last = false;  ///< of reduce: no micro-batch follows
  bool operator==(const UnitAction&) const = default;
};
std::string text(const UnitAction& action);  ///< "gather 3", "wait_for_weights 3", "last reduce 3"

/// The actions for these passes. While a unit is used, the next is on its way, if its buffer is another one.
std::vector<UnitAction> unit_actions(const std::vector<UnitPass>& passes, UnitBuffers buffers);

/// Checks the actions: their passes are `passes`; each uses a unit that was gathered and not overwritten, and writes
/// gradients into a buffer whose sum is done. No gather goes into a buffer that is in use. What a pass writes is
/// reduced once; only the last reduce of a unit is flagged. @returns the first problem; empty: correct.
std::string check_unit_actions(const std::vector<UnitAction>& actions, const std::vector<UnitPass>& passes,
                               UnitBuffers buffers);

/// How often the list has this action, by unit.
std::vector<int> times_of_units(const std::vector<UnitAction>& actions, UnitAction::Kind kind, int num_units);

/// All that the executor of a rank knows of its layers.
struct UnitList {
  std::vector<Index> layers_of_chunk;
  UnitBuffers buffers;
  std::vector<UnitAction> actions;
};
UnitList unit_list(const PipelineSchedule& schedule, const std::vector<Index>& layers_of_chunk, UnitBuffers buffers);

/// Performs the actions of a list around the kernels of its passes.
class UnitActionRunner {
 public:
  /// Performs the actions before the first pass: its gathers start here.
  UnitActionRunner(const UnitList& list, std::function<void(const UnitAction&)> perform);

  void enter(const UnitPass& pass);  ///< before the kernels of a pass. @throws std::logic_error: the list has another
  void leave();                      ///< after the kernels of a pass

 private:
  bool next_is(UnitAction::Kind kind) const { return next_ < actions_.size() && actions_[next_].kind == kind; }
  void perform_next() { perform_(actions_[next_++]); }

  std::vector<UnitAction> actions_;
  UnitBuffers buffers_;
  std::function<void(const UnitAction&)> perform_;
  std::size_t next_ = 0;
};

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "parallel/pipeline_schedule.hpp"

// Which layers a list of operations uses, and when: what ZeRO-3 gathers. Pure.

namespace espalier {

/// The unit (ReductionPlan::units) of the layer at a position of a chunk; -1 for the embedding and the head.
int unit_at(const std::vector<Index>& layers_of_chunk, int chunk, int position);

/// Whether the operation runs through the layers of its chunk.
bool uses_layers(OperationKind kind);

/// Of an operation that does: the position of its first layer, and the way it goes, 1 or -1.
int first_layer(const std::vector<Index>& layers_of_chunk, OperationKind kind, int chunk);
int direction(OperationKind kind);

/// The units in the order in which the list uses them.
std::vector<int> unit_uses(const PipelineSchedule& schedule, const std::vector<Index>& layers_of_chunk);

/// What ZeRO-3 does inside the operations of a list, in the order in which the host does it.
struct UnitAction {
  enum class Kind {
    gather,   ///< starts to bring the unit's weights into its buffer
    use,      ///< the weights have come; kernels that use them follow
    release,  ///< all of these kernels are enqueued: the buffer may take another unit
  };
  Kind kind = Kind::use;
  int unit = 0;
  bool operator==(const UnitAction&) const = default;
};
std::string text(const UnitAction& action);  ///< "gather 3"

/// The actions for these uses where `buffers` units exist at a time. While a unit is used, the next is on its way, if
/// its buffer is another one.
std::vector<UnitAction> unit_actions(const std::vector<int>& uses, int buffers);

/// Proves them, whatever made them: the uses are those given, each of a unit that was gathered and not overwritten; no
/// gather goes into a buffer that is in use. Empty: proven; else the first sentence of what is wrong.
std::string check_unit_actions(const std::vector<UnitAction>& actions, const std::vector<int>& uses, int buffers);

/// How often each unit is gathered.
std::vector<int> gathers_of_units(const std::vector<UnitAction>& actions, int num_units);

}  // namespace espalier

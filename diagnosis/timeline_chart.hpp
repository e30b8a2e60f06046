// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "parallel/timeline.hpp"

namespace espalier {

struct TimelineRow {
  std::string label;  ///< "rank 3"
  std::vector<TimelineEvent> events = {};
};

struct TimelineChart {
  std::string label;  ///< what a reader hears who does not see the picture
  std::vector<TimelineRow> rows = {};
};

/// What each row did when: operations as blocks with the number of their micro-batch, below them what went on in the
/// background. Times count from the first event of any row. Blocks that would be too many or too narrow to see become
/// one with their neighbours of the same kind.
std::string draw(const TimelineChart& chart);

/// The kind of block an event is drawn as, a CSS class: its category, "weight" for the weight part of backward.
std::string block_kind(const TimelineEvent& event);

}  // namespace espalier

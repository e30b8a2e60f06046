// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "diagnosis/recorded_setup.hpp"
#include "models/layout.hpp"

namespace espalier {

/// What the planner says of the memory of another layout of a run.
struct LayoutRoom {
  enum class Answer { fits, too_large, unknown };
  Answer answer = Answer::unknown;
  std::string text;  ///< "stage 0 needs 1.20 GiB, a device has ...", why_too_large(), or why it is not known
};

/// Room is what run.device_memory gives, else what the device of run.cluster has.
LayoutRoom room_for(const RunSetup& setup, const Layout& layout);

}  // namespace espalier

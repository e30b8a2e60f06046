// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/group_key.hpp"

namespace espalier {

std::string to_string(const GroupKey& key) {
  if (key == GroupKey{.axes = {Axis::dp}, .tied = true})
    return "tied";
  return to_string(key.axes) + (key.tied ? "+tied" : "") +
         (key.tp_run > 0 ? ", runs of " + std::to_string(key.tp_run) : "");
}

}  // namespace espalier

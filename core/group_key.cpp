// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/group_key.hpp"

namespace espalier {

std::string to_string(const GroupKey& key) {
  if (key == GroupKey{.tied = true})
    return "tied";
  const bool is_dense = key.axes.contains(token_axes);
  return to_string(is_dense ? key.axes.without({Axis::cp, Axis::ep}) : key.axes) + (key.tied ? "+tied" : "") +
         (key.tp_run > 0 ? ", runs of " + std::to_string(key.tp_run) : "");
}

}  // namespace espalier

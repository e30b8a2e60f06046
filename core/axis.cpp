// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/axis.hpp"

namespace espalier {

const char* to_string(Axis axis) {
  switch (axis) {
    case Axis::tp: return "tp";
    case Axis::cp: return "cp";
    case Axis::ep: return "ep";
    case Axis::dp: return "dp";
    case Axis::pp: return "pp";
  }
  return "unknown";
}

std::string to_string(AxisSet axes) {
  std::string text;
  for (const Axis axis : all_axes)
    if (axes.contains(axis))
      text += (text.empty() ? "" : "+") + std::string(to_string(axis));
  return text.empty() ? "none" : text;
}

}  // namespace espalier

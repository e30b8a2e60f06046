// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>

namespace espalier {

/// "125", "22.1k", "1.27M", "197B": for counts of parameters, tokens and times.
inline std::string count_text(double count) {
  for (const char* unit : {"", "k", "M", "B"}) {
    if (count < 999.5)
      return fmt::format("{:.3g}{}", count, unit);
    count /= 1000;
  }
  return fmt::format("{:.3g}T", count);
}

}  // namespace espalier

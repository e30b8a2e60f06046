// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/memo_parts.hpp"

#include "io/units.hpp"

namespace espalier {

std::string share_text(double part, double whole) { return fmt::format("{:.1f} %", 100 * part / whole); }

LayoutPrice MemoSubject::price_in(Precision precision) const {
  Layout other = layout();
  other.precision = precision;
  return price_layout(problem, other);
}

std::string MemoSubject::fit_text(const LayoutPrice& price) const {
  if (has_room(problem, price.memory_bytes))
    return {};
  const bool lacks_margin = price.memory_bytes <= room();
  return fmt::format(
      " (which does not fit: peak memory {}{}, {} free)", bytes_text(price.memory_bytes),
      lacks_margin ? fmt::format(" and a margin of {}", bytes_text(memory_margin(problem, price.memory_bytes))) : "",
      bytes_text(room()));
}

std::string real_bytes_text(double bytes) { return bytes_text(static_cast<std::size_t>(bytes)); }

}  // namespace espalier

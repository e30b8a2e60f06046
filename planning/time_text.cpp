// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/time_text.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace espalier {
namespace {

constexpr int fewest_digits = 3;
constexpr int most_digits = 7;

// Never fewer digits than stand before the point: "1234", not "1.23e+03".
std::string text_of(double seconds, int digits) {
  const int before_point = static_cast<int>(fmt::formatted_size("{:.0f}", seconds));
  return fmt::format("{:.{}g}", seconds, std::max(digits, before_point));
}

}  // namespace

std::string time_text(double seconds) { return text_of(seconds, fewest_digits) + " s"; }

std::string time_text(double seconds, std::string_view word, double others) {
  int digits = fewest_digits;
  while (digits < most_digits && text_of(seconds, digits) == text_of(others, digits))
    ++digits;
  if (text_of(seconds, digits) == text_of(others, digits))
    digits = fewest_digits;
  return fmt::format("{} s{}{} s", text_of(seconds, digits), word, text_of(others, digits));
}

}  // namespace espalier

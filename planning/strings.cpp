// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/strings.hpp"

namespace espalier {

std::string without_trailing_zeros(std::string number) {
  if (!contains(number, ".") || contains(number, "e"))
    return number;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.ends_with('.'))
    number.pop_back();
  return number;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace espalier {

/// Of an array that messages touch.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t bytes = 0;

  std::size_t end() const { return begin + bytes; }
};

}  // namespace espalier

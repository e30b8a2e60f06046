// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace espalier {

/// Part of an array that a message reads or writes.
struct ByteRange {
  std::size_t begin = 0;
  std::size_t bytes = 0;

  std::size_t end() const { return begin + bytes; }
};

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

#include "core/scalars.hpp"
#include "io/partial_file.hpp"

namespace espalier {

/// How an array of ours begins: NumPy format version 1.0 with a header of 256 bytes in all, where NumPy itself writes
/// 128.
inline constexpr OutputMark npy_file_mark{
    .kind = "an array of `espalier evaluate --logits`",
    .begin = std::string_view("\x93NUMPY\x01\0\xf6\0{'descr': '<f4', 'fortran_order': False, 'shape': (", 61)};

/// Writes an array (rows, columns) of fp32 in NumPy format version 1.0, little endian, row by row, for numpy.load();
/// the file appears under its name only by finish() (io/partial_file.hpp).
class NpyWriter {
 public:
  /// @throws Error (write), as all of it
  NpyWriter(const Path& path, Index rows, Index columns);
  /// The next elements in row-major order.
  void append(std::span<const float> values);
  /// @pre all elements are there
  void finish();

 private:
  PartialFile file_;
  Index missing_;  // elements
};

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/npy_file.hpp"

#include <fmt/format.h>

#include <bit>
#include <string>

namespace espalier {

static_assert(std::endian::native == std::endian::little, "elements are written as they lie in memory");

NpyWriter::NpyWriter(const Path& path, Index rows, Index columns)
    : file_(path, npy_file_mark), missing_(rows * columns) {
  constexpr std::size_t header_bytes = 256;
  std::string header = fmt::format("{}{}, {}), }}", npy_file_mark.begin, rows, columns);
  header.resize(header_bytes - 1, ' ');
  header += '\n';
  file_.write(header.data(), header.size());
}

void NpyWriter::append(std::span<const float> values) {
  missing_ -= static_cast<Index>(values.size());
  ESPALIER_ASSERT(missing_ >= 0, "more elements than the array has");
  file_.write(values.data(), values.size_bytes());
}

void NpyWriter::finish() {
  ESPALIER_ASSERT(missing_ == 0, fmt::format("{} elements are missing", missing_));
  file_.finish();
}

}  // namespace espalier

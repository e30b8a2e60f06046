// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/metadata_hash.hpp"

#include <algorithm>

#include "io/hash.hpp"

namespace espalier {

std::string metadata_hash(const InputFile& file, std::vector<DatasetPlace> places) {
  const auto end = static_cast<Index>(file.size());
  std::vector<unsigned char> piece(std::size_t{1} << 20);
  Hasher hasher;
  const auto add = [&](Index begin, Index stop) {
    while (begin < stop) {
      const auto bytes = std::min(piece.size(), static_cast<std::size_t>(stop - begin));
      file.read_at(static_cast<std::size_t>(begin), piece.data(), bytes);
      hasher.update(piece.data(), bytes);
      begin += static_cast<Index>(bytes);
    }
  };
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  Index next = 0;
  for (const DatasetPlace& place : places) {
    add(next, std::min(place.offset, end));
    next = std::clamp(place.offset + place.bytes, next, end);
  }
  add(next, end);
  return hasher.xxh3_128();
}

}  // namespace espalier

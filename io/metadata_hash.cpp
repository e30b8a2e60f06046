// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/metadata_hash.hpp"

#include <algorithm>

#include "io/hash.hpp"

namespace espalier {

std::string metadata_hash(const Path& path, std::vector<DatasetPlace> places, ExitCode code) {
  const MappedFile file(path, code);
  const auto end = static_cast<Index>(file.size());
  std::sort(places.begin(), places.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  Hasher hasher;
  Index next = 0;
  for (const DatasetPlace& place : places) {
    if (place.offset > next)
      hasher.update(file.data() + next, static_cast<std::size_t>(std::min(place.offset, end) - next));
    next = std::clamp(place.offset + place.bytes, next, end);
  }
  hasher.update(file.data() + next, static_cast<std::size_t>(end - next));
  return hasher.xxh3_128();
}

}  // namespace espalier

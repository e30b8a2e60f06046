// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint_version.hpp"

namespace espalier {

std::map<std::string, StoredPart> parts_of_stored(const std::string& tensor, int version) {
  const std::string joined = ".attention.qkv.";
  const std::size_t at = tensor.find(joined);
  if (version > 1 || at == std::string::npos)
    return {};
  std::map<std::string, StoredPart> parts;
  Index part = 0;
  for (const char* const name : {".attention.query.", ".attention.key.", ".attention.value."})
    parts[std::string(tensor).replace(at, joined.size(), name)] = {tensor, part++};
  return parts;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/checkpoint_version.hpp"

#include <algorithm>
#include <array>

namespace espalier {
namespace {

constexpr std::array split = {".attention.query.", ".attention.key.", ".attention.value."};

}  // namespace

bool is_name_of_version(const std::string& tensor, int version) {
  return version > 1 ||
         std::ranges::none_of(split, [&](const char* name) { return tensor.find(name) != std::string::npos; });
}

std::map<std::string, StoredPart> parts_of_stored(const std::string& tensor, int version) {
  const std::string joined = ".attention.qkv.";
  const std::size_t at = tensor.find(joined);
  if (version > 1 || at == std::string::npos)
    return {};
  std::map<std::string, StoredPart> parts;
  Index part = 0;
  for (const char* const name : split)
    parts[std::string(tensor).replace(at, joined.size(), name)] = {tensor, part++};
  return parts;
}

}  // namespace espalier

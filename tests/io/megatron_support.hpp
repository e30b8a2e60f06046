// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>

#include "io/tokens/token_file.hpp"
#include "tests/io/megatron_files.hpp"
#include "tests/io/support.hpp"

namespace espalier::test {

inline std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return bytes;
}

/// Writes PREFIX.bin and PREFIX.idx. @returns PREFIX
inline Path write_pair(const Path& prefix, const char* tokens, const char* index) {
  write_bytes(prefix.string() + ".bin", from_hex(tokens));
  write_bytes(prefix.string() + ".idx", from_hex(index));
  return prefix;
}

inline std::vector<TokenId> tokens_of(const TokenFile& file) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(file.num_tokens()));
  file.read(0, tokens);
  return tokens;
}

template <class T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

template <class T>
T get(const std::string& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

}  // namespace espalier::test

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace espalier {

/// The fields of a protobuf message, one after the other, without a schema.
class ProtobufReader {
 public:
  explicit ProtobufReader(std::string_view message) : rest_(message) {}

  std::uint64_t field = 0;      ///< its number
  std::uint64_t wire_type = 0;  ///< 0: `value`; 1, 5: 8 or 4 `bytes`; 2: `bytes`
  std::uint64_t value = 0;
  std::string_view bytes;

  /// Goes to the next field; false at the end. @throws std::runtime_error for what is no protobuf
  bool next() {
    if (rest_.empty())
      return false;
    const std::uint64_t tag = varint();
    field = tag >> 3;
    wire_type = tag & 7;
    if (field == 0)
      throw std::runtime_error("a field without a number");
    switch (wire_type) {
      case 0: value = varint(); return true;
      case 1: bytes = take(8); return true;
      case 2: bytes = take(varint()); return true;
      case 5: bytes = take(4); return true;
      default: throw std::runtime_error("a field of an unknown type");
    }
  }

 private:
  std::uint64_t varint() {
    std::uint64_t result = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      result |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80)
        return result;
    }
    throw std::runtime_error("a number without an end");
  }

  std::string_view take(std::uint64_t size) {
    if (size > rest_.size())
      throw std::runtime_error("a field that is longer than the file");
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }

  std::string_view rest_;
};

}  // namespace espalier

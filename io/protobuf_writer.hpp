// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace espalier {

/// A protobuf message, field after field, without a schema. Other messages lie in it as bytes.
class ProtobufWriter {
 public:
  ProtobufWriter& number(std::uint64_t field, std::uint64_t value) {
    varint(field << 3);
    varint(value);
    return *this;
  }
  ProtobufWriter& bytes(std::uint64_t field, std::string_view value) {
    varint(field << 3 | 2);
    varint(value.size());
    message_ += value;
    return *this;
  }
  ProtobufWriter& message(std::uint64_t field, const ProtobufWriter& value) { return bytes(field, value.message_); }
  ProtobufWriter& real64(std::uint64_t field, double value) {
    varint(field << 3 | 1);
    little_endian(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  ProtobufWriter& real32(std::uint64_t field, float value) {
    varint(field << 3 | 5);
    little_endian(std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  const std::string& text() const { return message_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7)
      message_ += static_cast<char>(value | 0x80);
    message_ += static_cast<char>(value);
  }
  void little_endian(std::uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i)
      message_ += static_cast<char>(value >> (8 * i));
  }

  std::string message_;
};

}  // namespace espalier

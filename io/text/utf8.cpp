// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/utf8.hpp"

#include <algorithm>
#include <cstring>

namespace espalier {
namespace {

// How many bytes at the beginning of a text are a character, or its first part. `complete`: are they all of it?
std::size_t character_part(std::string_view text, bool& complete) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  complete = lead < 0x80;
  if (complete)
    return 1;
  if (lead < 0xC2 || lead > 0xF4)
    return 0;
  const std::size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  const unsigned lowest = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned highest = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  std::size_t end = 1;
  if (end < text.size() && byte(1) >= lowest && byte(1) <= highest)
    for (++end; end < std::min(size, text.size()) && continues_character(text[end]);)
      ++end;
  complete = end == size;
  return end;
}

}  // namespace

std::uint32_t code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  switch (character_bytes(text)) {
    case 1: return byte(0);
    case 2: return (byte(0) & 0x1F) << 6 | (byte(1) & 0x3F);
    case 3: return (byte(0) & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    default: return (byte(0) & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  }
}

void append_utf8(std::uint32_t code_point, std::string& text) {
  const auto append = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) {
    append(code_point);
  } else if (code_point < 0x800) {
    append(0xC0 | code_point >> 6);
    append(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    append(0xE0 | code_point >> 12);
    append(0x80 | (code_point >> 6 & 0x3F));
    append(0x80 | (code_point & 0x3F));
  } else {
    append(0xF0 | code_point >> 18);
    append(0x80 | (code_point >> 12 & 0x3F));
    append(0x80 | (code_point >> 6 & 0x3F));
    append(0x80 | (code_point & 0x3F));
  }
}

std::size_t ascii_bytes(std::string_view text) {
  std::size_t end = 0;
  for (std::uint64_t word = 0; end + 8 <= text.size(); end += 8) {
    std::memcpy(&word, text.data() + end, 8);
    if ((word & 0x8080808080808080U) != 0)
      break;
  }
  while (end < text.size() && static_cast<unsigned char>(text[end]) < 0x80)
    ++end;
  return end;
}

std::size_t valid_utf8_bytes(std::string_view text) {
  std::size_t end = 0;
  while (true) {
    end += ascii_bytes(text.substr(end));
    bool complete = false;
    const std::size_t part = end < text.size() ? character_part(text.substr(end), complete) : 0;
    if (!complete)
      return end;
    end += part;
  }
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const std::size_t valid = valid_utf8_bytes(bytes);
    text += bytes.substr(0, valid);
    bytes.remove_prefix(valid);
    if (bytes.empty())
      break;
    bool complete = false;
    bytes.remove_prefix(std::max<std::size_t>(1, character_part(bytes, complete)));
    text += replacement_character;
  }
  return text;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/fat_binary.hpp"

#include <cstdint>
#include <cstring>
#include <string_view>

#include "tests/support/fake_cuda/report.hpp"

namespace fake_cuda {
namespace {

// What is registered, and what that points to: a header, and entries one behind another.
struct Wrapper {
  int magic, version;
  const char* data;
  void* unused;
};
struct Header {
  std::uint32_t magic;
  std::uint16_t version, header_bytes;
  std::uint64_t bytes;
};
struct Entry {
  std::uint16_t kind, version;
  std::uint32_t header_bytes;
  std::uint64_t bytes;
  std::uint32_t unused[3];
  std::uint32_t architecture;  // 90
};
constexpr std::uint32_t magic = 0xBA55ED50;
constexpr std::uint16_t is_ptx = 1;  // 2: machine code

// f(entry, its bytes) of each entry, until one is true.
template <class F>
bool any_entry(const void* binary, const F& f) {
  const char* const data = static_cast<const Wrapper*>(binary)->data;
  Header header;
  std::memcpy(&header, data, sizeof header);
  if (header.magic != magic) {
    misuse("a fat binary has the magic number " + std::to_string(header.magic));
    return false;
  }
  const char* const end = data + header.header_bytes + header.bytes;
  for (const char* at = data + header.header_bytes; at < end;) {
    Entry entry;
    std::memcpy(&entry, at, sizeof entry);
    if (f(entry, std::string_view(at + entry.header_bytes, entry.bytes)))
      return true;
    at += entry.header_bytes + entry.bytes;
  }
  return false;
}

}  // namespace

// Machine code runs on GPUs of its major version, PTX on all that are not older.
bool has_code_for(const void* binary, int capability) {
  return any_entry(binary, [capability](const Entry& entry, std::string_view) {
    const int built_for = static_cast<int>(entry.architecture);
    return built_for <= capability && (entry.kind == is_ptx || built_for / 10 == capability / 10);
  });
}

std::string ptx_of(const void* binary) {
  std::string text;
  any_entry(binary, [&](const Entry& entry, std::string_view bytes) {
    constexpr std::size_t head = 1000;  // comments stand before the version
    if (entry.kind != is_ptx || bytes.substr(0, head).find(".version") == std::string_view::npos)
      return false;
    text = bytes.substr(0, bytes.find('\0'));
    return true;
  });
  return text;
}

}  // namespace fake_cuda

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fake_cuda/fat_binary.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
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

std::size_t number_at(std::string_view text) {
  return std::strtoul(std::string(text.substr(0, text.find_first_not_of("0123456789"))).c_str(), nullptr, 10);
}

// ".param .align 8 .b8 name[592]" or ".param .b64 name": the type says how many bits an element has.
std::size_t bytes_of(std::string_view parameter) {
  const std::size_t name = parameter.rfind(' '), type = parameter.rfind(" .", name),
                    bracket = parameter.find('[', name);
  const std::size_t elements = bracket == std::string_view::npos ? 1 : number_at(parameter.substr(bracket + 1));
  return elements * number_at(parameter.substr(type + 3)) / 8;
}

// ".entry name(parameters) directives {body}" of each kernel.
std::map<std::string, KernelHeader> headers_in(std::string_view text) {
  constexpr std::string_view entry = ".entry ", parameter = ".param ", threads = ".maxntid ";
  std::map<std::string, KernelHeader> headers;
  for (std::size_t at = text.find(entry); at < text.size(); at = text.find(entry, at)) {
    at += entry.size();
    const std::size_t open = text.find_first_of("(\n", at), body = text.find('{', open);
    KernelHeader& header = headers[std::string(text.substr(at, open - at))];
    const std::string_view head = text.substr(open, body - open);
    for (std::size_t i = head.find(parameter); i < head.size(); i = head.find(parameter, i + 1))
      header.parameter_bytes.push_back(bytes_of(head.substr(i, head.find_first_of(",)", i) - i)));
    if (const std::size_t i = head.find(threads); i != std::string_view::npos)
      header.max_threads = static_cast<unsigned>(number_at(head.substr(i + threads.size())));
  }
  return headers;
}

}  // namespace

// Machine code runs on GPUs of its major version, PTX on all that are not older.
bool has_code_for(const void* binary, int capability) {
  return any_entry(binary, [capability](const Entry& entry, std::string_view) {
    const int built_for = static_cast<int>(entry.architecture);
    return built_for <= capability && (entry.kind == is_ptx || built_for / 10 == capability / 10);
  });
}

const KernelHeader* header_of(const void* binary, const std::string& kernel) {
  static auto& all = *new std::map<const void*, std::map<std::string, KernelHeader>>;
  const auto [headers, is_new] = all.try_emplace(binary);
  if (is_new)
    any_entry(binary, [&](const Entry& entry, std::string_view text) {
      if (entry.kind == is_ptx)
        headers->second = headers_in(text.substr(0, text.find('\0')));
      return !headers->second.empty();
    });
  const auto found = headers->second.find(kernel);
  return found == headers->second.end() ? nullptr : &found->second;
}

}  // namespace fake_cuda

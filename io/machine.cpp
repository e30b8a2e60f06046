// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/machine.hpp"

#include <unistd.h>

#include <fstream>

#include "io/file.hpp"
#include "io/hash.hpp"

namespace espalier {

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const std::size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return "unknown";
}

const std::string& executable_hash() {
  static const std::string hash = []() -> std::string {
    try {
      const InputFile program("/proc/self/exe", ExitCode::data);  // the file that was started, even if replaced since
      Hasher hasher;
      program.read_pieces(0, program.size(), 1 << 20,
                          [&](std::string_view piece) { hasher.update(piece.data(), piece.size()); });
      return hasher.xxh3_128();
    } catch (const Error&) {
      return "";
    }
  }();
  return hash;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/executable.hpp"

#include "io/file.hpp"
#include "io/hash.hpp"

namespace espalier {

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

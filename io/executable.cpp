// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/executable.hpp"

#include "io/file.hpp"
#include "io/hash.hpp"

namespace espalier {

const std::string& executable_hash() {
  static const std::string hash = []() -> std::string {
    try {
      const MappedFile program("/proc/self/exe", ExitCode::data);  // the file that was started, even if replaced since
      return xxh3_128(program.data(), program.size());
    } catch (const Error&) {
      return "";
    }
  }();
  return hash;
}

}  // namespace espalier

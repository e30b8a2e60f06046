// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace espalier {

/// Bytes of the largest file of each kind that is read. What Espalier writes stays far below; what is larger may have
/// been made to do harm.
struct LargestFile {
  static constexpr std::size_t manifest = std::size_t{128} << 20;     ///< of a checkpoint: some 300,000 blocks
  static constexpr std::size_t record = std::size_t{16} << 20;        ///< run.json, prediction.json, incident.json
  static constexpr std::size_t line = std::size_t{1} << 20;           ///< of metrics, of a rank's times, of a trace
  static constexpr std::size_t config = std::size_t{2} << 20;         ///< TOML of any kind
  static constexpr std::size_t prompts = std::size_t{64} << 20;       ///< of `espalier generate`
  static constexpr std::size_t conversation = std::size_t{16} << 20;  ///< a line of JSON
  static constexpr std::size_t text = std::size_t{1} << 30;           ///< of `espalier evaluate --text`
  static constexpr std::size_t tokenizer = std::size_t{128} << 20;    ///< those of today have 35 MiB at most
};

/// Brackets that may be open at the same time, and tables that may lie in one another: what is nested is walked through
/// by recursion.
inline constexpr std::size_t deepest_nesting = 64;

}  // namespace espalier

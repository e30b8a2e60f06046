// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "io/pack/json_text_scanner.hpp"

namespace espalier {

/// Takes the text under a key out of lines with a JSON object each: what JsonTextScanner does, by simdjson, and so
/// several times faster. simdjson refuses some of what is JSON (large numbers): then the scanner decides.
class JsonLineReader {
 public:
  explicit JsonLineReader(std::string key);
  ~JsonLineReader();

  /// So many bytes behind a line must be readable.
  static const std::size_t readable_bytes;

  /// The text, until the next call; nullopt: fault() says why there is none.
  std::optional<std::string_view> text(std::string_view line);
  const JsonFault& fault() const { return fault_; }

 private:
  struct Parser;
  std::optional<std::string_view> parsed_text(std::string_view line);

  std::string key_;
  std::unique_ptr<Parser> parser_;
  std::string scanned_;
  JsonFault fault_;
};

}  // namespace espalier

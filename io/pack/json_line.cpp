// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/json_line.hpp"

#include <simdjson.h>

namespace espalier {

const std::size_t JsonLineReader::readable_bytes = simdjson::SIMDJSON_PADDING;

struct JsonLineReader::Parser {
  simdjson::dom::parser parser;
};

JsonLineReader::JsonLineReader(std::string key) : key_(std::move(key)), parser_(std::make_unique<Parser>()) {}
JsonLineReader::~JsonLineReader() = default;

// The text under the key, by simdjson's document parser, which checks the whole line. nullopt: the line has no such
// text, or simdjson cannot read the line; the scanner then finds out which.
std::optional<std::string_view> JsonLineReader::parsed_text(std::string_view line) {
  simdjson::dom::object object;
  if (parser_->parser.parse(line.data(), line.size(), false).get(object) != simdjson::SUCCESS)
    return std::nullopt;
  std::optional<std::string_view> text;
  for (const simdjson::dom::key_value_pair field : object) {
    if (field.key != key_)
      continue;
    std::string_view value;
    if (text || field.value.get(value) != simdjson::SUCCESS)
      return std::nullopt;
    text = value;
  }
  return text;
}

std::optional<std::string_view> JsonLineReader::text(std::string_view line) {
  fault_ = {};
  if (const auto text = parsed_text(line))
    return text;
  scanned_.clear();
  JsonTextScanner scanner(key_, [&](std::string_view piece) { scanned_ += piece; });
  scanner.add(line);
  fault_ = scanner.finish();
  return fault_ ? std::nullopt : std::optional<std::string_view>(scanned_);
}

}  // namespace espalier

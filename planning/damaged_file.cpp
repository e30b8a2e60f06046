// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/damaged_file.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace espalier {
namespace {

// "unexpected end of input; expected string literal": without what the library was doing when it found out.
std::string reason_of(const nlohmann::json::parse_error& error) {
  const std::string text = error.what();
  const std::size_t dash = text.find(" - ");
  return dash == std::string::npos ? text : text.substr(dash + 3);
}

// "run.json:3:7" of the byte where reading ended, counted from 1.
std::string position_of(const Path& path, std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte == 0 ? 0 : std::min(byte - 1, text.size()));
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t column = before.size() - (before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1);
  return fmt::format("{}:{}:{}", path.string(), line, column + 1);
}

}  // namespace

std::string read_run_file(const Path& path) {
  try {
    return read_file(path, ExitCode::data);
  } catch (const Error& error) {
    throw_damaged(path.string(), path.filename().string() + " of this run cannot be read", error.report().got);
  }
}

nlohmann::ordered_json read_run_json(const Path& path) {
  const std::string text = read_run_file(path);
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::parse_error& error) {
    const bool is_empty = text.find_first_not_of(" \t\r\n") == text.npos;
    throw_damaged(is_empty ? path.string() : position_of(path, text, error.byte),
                  path.filename().string() + " cannot be read", is_empty ? "an empty file" : reason_of(error));
  }
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/damaged_file.hpp"

#include "io/input_limits.hpp"
#include "io/json_reader.hpp"

namespace espalier {
std::string read_run_file(const Path& path, std::size_t most) {
  try {
    return read_file(path, ExitCode::data, most);
  } catch (const Error& error) {
    throw_damaged(path.string(), path.filename().string() + " of this run cannot be read", error.report().got);
  }
}

nlohmann::json read_run_json(const Path& path) {
  const std::string text = read_run_file(path, LargestFile::record);
  try {
    return parse_json(text);
  } catch (const JsonError& error) {
    const bool is_empty = text.find_first_not_of(" \t\r\n") == text.npos;
    throw_damaged(is_empty || error.byte() == 0 ? path.string() : position_in(path, text, error.byte()),
                  path.filename().string() + " cannot be read", is_empty ? "an empty file" : error.what());
  }
}

}  // namespace espalier

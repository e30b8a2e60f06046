// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "io/file.hpp"

// The only place where JSON is read: a file may have been made to do harm.

namespace espalier {

/// Text that is no JSON, or none that is read here. what() says why.
class JsonError : public std::runtime_error {
 public:
  JsonError(const std::string& reason, std::size_t byte) : std::runtime_error(reason), byte_(byte) {}
  std::size_t byte() const { return byte_; }  ///< where reading ended, counted from 1; 0: not known

 private:
  std::size_t byte_;
};

/// The value that the text holds. Costs n log n at most. @throws JsonError: also for a key that an object has twice,
/// for numbers that no double holds, and for brackets nested deeper than `deepest_nesting`.
nlohmann::json parse_json(std::string_view text);

/// Is the text JSON, whatever it holds?
bool is_json(std::string_view text);

/// "run.json:3:7" of that byte of a file's text.
std::string position_in(const Path& path, std::string_view text, std::size_t byte);

}  // namespace espalier

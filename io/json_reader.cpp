// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/json_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "io/input_limits.hpp"
#include "io/pack/json_text.hpp"

namespace espalier {
namespace {

using nlohmann::json;

// "unexpected end of input; expected string literal": without what the library was doing when it found out.
std::string reason_of(const json::exception& error) {
  const std::string text = error.what();
  const std::size_t dash = text.find(" - ");
  if (dash != std::string::npos)
    return text.substr(dash + 3);
  const std::size_t bracket = text.find("] ");
  return bracket == std::string::npos ? text : text.substr(bracket + 2);
}

// Walks through the text once before anything is built from it: the library builds, copies and prints what is nested by
// recursion, and keeps the last of equal keys.
class JsonCheck final : public nlohmann::json_sax<json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second)
      throw JsonError(fmt::format("the key {:.60} is twice in one object", json_text(json(name))), 0);
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const json::exception& error) override {
    throw JsonError(reason_of(error), byte);
  }

 private:
  bool open() {
    if (keys_.size() == deepest_nesting)
      throw JsonError(fmt::format("brackets nested deeper than {}", deepest_nesting), 0);
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_;  // of each object that is open; none of an array
};

}  // namespace

json parse_json(std::string_view text) {
  JsonCheck check;
  json::sax_parse(text, &check);
  return json::parse(text);
}

bool is_json(std::string_view text) { return json::accept(text); }

std::string position_in(const Path& path, std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, byte == 0 ? 0 : std::min(byte - 1, text.size()));
  const auto line = 1 + std::ranges::count(before, '\n');
  const std::size_t column = before.size() - (before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1);
  return fmt::format("{}:{}:{}", path.string(), line, column + 1);
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/json_text_scanner.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <utility>

#include "core/printable_text.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

constexpr std::size_t deepest = 1024;  // as simdjson
constexpr std::size_t max_names = 8;
constexpr std::size_t max_name_bytes = 40;

bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_json_digit(char c) { return c >= '0' && c <= '9'; }

int hex_value(char c) {
  if (is_json_digit(c))
    return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

JsonTextScanner::JsonTextScanner(std::string key, std::function<void(std::string_view)> visit)
    : key_(std::move(key)), visit_(std::move(visit)) {}

void JsonTextScanner::fail(const std::string& reason, Index ahead) {
  if (!fault_)
    fault_.reason = fmt::format("{} at byte {} of the line", reason, offset_ + ahead + 1);
}

void JsonTextScanner::add(std::string_view piece) {
  if (fault_)
    return;
  check_utf8(piece);
  for (std::size_t at = 0; at < piece.size() && !fault_;) {
    if (state_ != State::string) {
      take(piece[at]);
      ++at;
      ++offset_;
      continue;
    }
    // Most of a line lies in strings, between the characters that mean something.
    std::size_t end = at;
    while (end < piece.size() && piece[end] != '"' && piece[end] != '\\' &&
           static_cast<unsigned char>(piece[end]) >= ' ')
      ++end;
    give(piece.substr(at, end - at));
    offset_ += static_cast<Index>(end - at);
    at = end;
    if (at < piece.size()) {
      take_in_string(piece[at]);
      ++at;
      ++offset_;
    }
  }
}

JsonFault JsonTextScanner::finish() {
  if (fault_)
    return fault_;
  if (!unfinished_.empty() || state_ != State::end)
    fail("the line ends too early,");
  if (!fault_ && !has_text_)
    fault_ = {fmt::format("no key \"{}\"", key_), true, names_};
  return fault_;
}

void JsonTextScanner::check_utf8(std::string_view piece) {
  const std::string joined = unfinished_.empty() ? "" : unfinished_ + std::string(piece);
  const std::string_view text = unfinished_.empty() ? piece : joined;
  const std::size_t open = unfinished_bytes(text);
  const std::size_t valid = valid_utf8_bytes(text);
  if (valid < text.size() - open)
    fail("not UTF-8", static_cast<Index>(valid) - static_cast<Index>(unfinished_.size()));
  unfinished_ = text.substr(text.size() - open);
}

void JsonTextScanner::give(std::string_view text) {
  if (is_key_) {
    if (nesting_.size() == 1 && name_.size() <= std::max(key_.size(), max_name_bytes))
      name_ += text.substr(0, std::max(key_.size(), max_name_bytes) + 1);
  } else if (is_wanted_ && !text.empty()) {
    visit_(text);
  }
}

void JsonTextScanner::take(char c) {
  switch (state_) {
    case State::escape: return take_escape(c);
    case State::unicode: return take_unicode(c);
    case State::low_surrogate:
      if (c != '\\')
        return fail("half a character (\\u)");
      state_ = State::low_surrogate_u;
      return;
    case State::low_surrogate_u:
      if (c != 'u')
        return fail("half a character (\\u)");
      state_ = State::unicode;
      return;
    case State::word:
      if (c != word_.front())
        return fail("no value");
      word_.remove_prefix(1);
      if (word_.empty())
        end_value();
      return;
    default: break;
  }
  if (!take_number(c))
    take_structure(c);
}

// A number ends with a character that is none of it: true where `c` is one of it.
bool JsonTextScanner::take_number(char c) {
  const auto become = [&](State state) {
    state_ = state;
    return true;
  };
  const auto is_exponent = [&] { return c == 'e' || c == 'E'; };
  switch (state_) {
    case State::minus:
      if (is_json_digit(c))
        return become(c == '0' ? State::zero : State::digits);
      break;
    case State::zero:
    case State::digits:
      if (state_ == State::digits && is_json_digit(c))
        return true;
      if (c == '.')
        return become(State::point);
      if (is_exponent())
        return become(State::exponent);
      end_value();
      return false;
    case State::point:
      if (is_json_digit(c))
        return become(State::fraction);
      break;
    case State::fraction:
      if (is_json_digit(c))
        return true;
      if (is_exponent())
        return become(State::exponent);
      end_value();
      return false;
    case State::exponent:
      if (c == '+' || c == '-')
        return become(State::exponent_sign);
      [[fallthrough]];
    case State::exponent_sign:
      if (is_json_digit(c))
        return become(State::exponent_digits);
      break;
    case State::exponent_digits:
      if (is_json_digit(c))
        return true;
      end_value();
      return false;
    default: return false;
  }
  fail("no number");
  return true;
}

void JsonTextScanner::take_structure(char c) {
  if (is_json_space(c))
    return;
  switch (state_) {
    case State::value: return begin_value(c);
    case State::first_item_or_end:
      if (c != ']')
        return begin_value(c);
      nesting_.pop_back();
      return end_value();
    case State::first_key_or_end:
      if (c == '}') {
        nesting_.pop_back();
        return end_value();
      }
      [[fallthrough]];
    case State::key:
      if (c != '"')
        return fail("no key in double quotes");
      return begin_string(true);
    case State::colon:
      if (c != ':')
        return fail("no colon after a key");
      state_ = State::value;
      return;
    case State::comma_or_end:
      if (c == ',') {
        state_ = nesting_.back() ? State::key : State::value;
      } else if (c == (nesting_.back() ? '}' : ']')) {
        nesting_.pop_back();
        end_value();
      } else {
        fail(nesting_.back() ? "no comma or brace" : "no comma or bracket");
      }
      return;
    default: fail("more than one value,");
  }
}

void JsonTextScanner::begin_value(char c) {
  if (nesting_.empty() && c != '{')
    return fail("no object");
  if (is_wanted_ && c != '"')
    return fail(fmt::format("under \"{}\" no text", key_));
  if (c == '"')
    return begin_string(false);
  if (c == '{' || c == '[') {
    if (nesting_.size() == deepest)
      return fail(fmt::format("more than {} levels", deepest));
    nesting_.push_back(c == '{');
    state_ = c == '{' ? State::first_key_or_end : State::first_item_or_end;
    return;
  }
  if (c == '-' || is_json_digit(c)) {
    state_ = c == '-' ? State::minus : c == '0' ? State::zero : State::digits;
    return;
  }
  for (const std::string_view word : {"true", "false", "null"})
    if (c == word.front()) {
      word_ = word.substr(1);
      state_ = State::word;
      return;
    }
  fail("no value");
}

void JsonTextScanner::end_value() {
  is_wanted_ = false;
  state_ = nesting_.empty() ? State::end : State::comma_or_end;
}

void JsonTextScanner::begin_string(bool is_key) {
  is_key_ = is_key;
  name_.clear();
  state_ = State::string;
}

void JsonTextScanner::end_string() {
  if (!is_key_)
    return end_value();
  state_ = State::colon;
  if (nesting_.size() == 1)
    end_key();
}

void JsonTextScanner::end_key() {
  if (num_names_++ < max_names)
    names_ += fmt::format("{}\"{}\"", names_.empty() ? "" : ", ", printable_line(name_.substr(0, max_name_bytes)));
  if (name_ != key_)
    return;
  if (std::exchange(has_text_, true))
    return fail(fmt::format("a second \"{}\"", key_));
  is_wanted_ = true;
}

void JsonTextScanner::take_in_string(char c) {
  if (c == '"')
    end_string();
  else if (c == '\\')
    state_ = State::escape;
  else
    fail("a control character in a string");
}

void JsonTextScanner::take_escape(char c) {
  constexpr std::string_view letters = "\"\\/bfnrt";
  constexpr std::string_view meant = "\"\\/\b\f\n\r\t";
  state_ = State::string;
  if (c == 'u') {
    state_ = State::unicode;
    return;
  }
  const std::size_t known = letters.find(c);
  if (known == std::string_view::npos)
    return fail("an unknown escape");
  give(meant.substr(known, 1));
}

void JsonTextScanner::take_unicode(char c) {
  const int digit = hex_value(c);
  if (digit < 0)
    return fail("no hexadecimal digit");
  unit_ = 16 * unit_ + static_cast<std::uint32_t>(digit);
  if (++num_hex_ < 4)
    return;
  num_hex_ = 0;
  const std::uint32_t unit = std::exchange(unit_, 0);
  const bool is_low = unit >= 0xDC00 && unit <= 0xDFFF;
  if (is_low != (high_ != 0))
    return fail("half a character (\\u)");
  if (unit >= 0xD800 && unit <= 0xDBFF) {
    high_ = unit;
    state_ = State::low_surrogate;
    return;
  }
  std::string text;
  append_utf8(is_low ? 0x10000 + ((high_ - 0xD800) << 10) + (unit - 0xDC00) : unit, text);
  high_ = 0;
  state_ = State::string;
  give(text);
}

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

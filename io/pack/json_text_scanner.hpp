// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// Why a line gives no text.
struct JsonFault {
  std::string reason;      ///< empty: it does give one
  bool lacks_key = false;  ///< valid JSON, without the key
  std::string keys = {};   ///< then: those that it has, as far as they are few
  explicit operator bool() const { return !reason.empty(); }
};

/// Reads a line with a JSON object (RFC 8259, in UTF-8) in pieces, checks all of it, and hands over the text that
/// stands under one of its keys. Memory: a bit for each level of nesting, and a few names.
class JsonTextScanner {
 public:
  JsonTextScanner(std::string key, std::function<void(std::string_view)> visit);
  void add(std::string_view piece);
  /// At the end of the line.
  JsonFault finish();

 private:
  // What may come next.
  enum class State {
    value,
    first_key_or_end,
    key,
    colon,
    first_item_or_end,
    comma_or_end,
    string,
    escape,
    unicode,
    low_surrogate,    // the backslash of the second half of a character
    low_surrogate_u,  // its u
    word,             // the rest of true, false, null
    minus,
    zero,
    digits,
    point,
    fraction,
    exponent,
    exponent_sign,
    exponent_digits,
    end
  };

  void fail(const std::string& reason, Index ahead = 0);
  void take(char c);
  void take_in_string(char c);
  void take_escape(char c);
  void take_unicode(char c);
  void take_structure(char c);
  void begin_value(char c);
  void end_value();
  bool take_number(char c);
  void begin_string(bool is_key);
  void end_string();
  void end_key();
  void give(std::string_view text);
  void check_utf8(std::string_view piece);

  std::string key_;
  std::function<void(std::string_view)> visit_;
  State state_ = State::value;
  std::vector<bool> nesting_;  // true: an object
  bool is_key_ = false;        // the string being read
  bool is_wanted_ = false;     // the value being read is that of the key
  bool has_text_ = false;
  std::string name_;   // the beginning of a key of the outermost object
  std::string names_;  // those of it, for a message
  std::size_t num_names_ = 0;
  std::string_view word_;   // the rest of a word
  std::uint32_t unit_ = 0;  // of UTF-16
  std::uint32_t high_ = 0;  // its first half
  int num_hex_ = 0;
  std::string unfinished_;  // character of UTF-8
  Index offset_ = 0;
  JsonFault fault_;
};

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

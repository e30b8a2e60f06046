// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

namespace espalier {

/// Whose regular expressions a pattern is written in: they differ in some escapes.
enum class RegexDialect {
  oniguruma,    ///< tokenizer.json
  fancy_regex,  ///< tiktoken
  plain_text    ///< no expression: matches itself
};

/// A pattern with what is not supported. what() names both.
class UnsupportedPattern : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A regular expression over UTF-8, with the classes of Unicode, compiled by PCRE2. Several threads may use one. The
/// work and the memory of a match are limited, so that no pattern hangs.
class Regex {
 public:
  static constexpr std::size_t longest_pattern = 16384;  ///< bytes

  /// @throws UnsupportedPattern; std::runtime_error for a pattern that is none
  Regex(std::string_view pattern, RegexDialect dialect);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;  ///< begin where there is none: empty matches are passed over
  };
  /// The first match from `from` on in `text`, which is valid UTF-8.
  /// @throws Error (data) for a match that takes too long
  Match find(std::string_view text, std::size_t from) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

/// A pattern of another dialect as PCRE2 reads it. @throws UnsupportedPattern
std::string pcre2_pattern(std::string_view pattern, RegexDialect dialect);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cctype>

#include "io/text/regex.hpp"

// What means something else in PCRE2: \s has U+180E there, \w no marks, \p{Han} characters that other scripts use, too.

namespace espalier {
namespace {

// The general categories; another name in \p{} is a script.
constexpr std::array<std::string_view, 39> general_categories = {
    "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "L&", "LC", "M",  "Mc", "Me", "Mn", "N",
    "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc",
    "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs", "C",  "Cc", "Cf", "Cn", "Co", "Any"};

class DialectReader {
 public:
  DialectReader(std::string_view pattern, RegexDialect dialect) : pattern_(pattern), dialect_(dialect) {}

  std::string read() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\')
        escape();
      else if (in_class_)
        inside_class(c);
      else
        outside_class(c);
    }
    if (in_class_)
      refuse("a class without its ]");
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(const std::string& part) const {
    throw UnsupportedPattern(fmt::format("{} in the pattern {:.200} is not supported", part, pattern_));
  }

  void copy(std::size_t bytes) {
    result_ += pattern_.substr(at_, bytes);
    at_ += bytes;
  }

  void outside_class(char c) {
    const std::string_view rest = pattern_.substr(at_);
    if (c == '[') {
      in_class_ = true;
      copy(rest.starts_with("[^") ? 2 : 1);
      if (pattern_.substr(at_).starts_with(']'))
        refuse("a class that begins with ]");
      return;
    }
    if (rest.starts_with("(*") || rest.starts_with("(?C"))
      refuse("a verb (*...) or callout");
    if (rest.starts_with("(?") && dialect_ == RegexDialect::oniguruma)
      group_options(rest);
    if (c == '}' && dialect_ == RegexDialect::oniguruma && rest.starts_with("}+"))
      refuse("{...}+");
    copy(1);
  }

  // m of Oniguruma is s elsewhere.
  void group_options(std::string_view rest) const {
    for (std::size_t i = 2;
         i < rest.size() && (std::isalpha(static_cast<unsigned char>(rest[i])) != 0 || rest[i] == '-'); ++i)
      if (rest[i] != 'i' && rest[i] != '-')
        refuse(fmt::format("the option {} of a group", rest[i]));
  }

  void inside_class(char c) {
    if (c == '[')
      refuse("a class in a class");
    if (c == '&' && pattern_.substr(at_).starts_with("&&"))
      refuse("&& in a class");
    if (dialect_ == RegexDialect::fancy_regex &&
        (pattern_.substr(at_).starts_with("--") || pattern_.substr(at_).starts_with("~~")))
      refuse("a difference in a class");
    in_class_ = c != ']';
    copy(1);
  }

  void put_class(std::string_view members, std::string_view negated) {
    if (in_class_) {
      if (members.empty())
        refuse(fmt::format("{} in a class", pattern_.substr(at_, 2)));
      result_ += members;
    } else {
      result_ += negated;
    }
    at_ += 2;
  }

  void escape() {
    if (at_ + 1 == pattern_.size())
      refuse("a \\ at the end");
    const char c = pattern_[at_ + 1];
    switch (c) {
      case 's': return put_class("\\p{White_Space}", "\\p{White_Space}");
      case 'S': return put_class("\\P{White_Space}", "\\P{White_Space}");
      case 'd': return put_class("\\p{Nd}", "\\p{Nd}");
      case 'D': return put_class("\\P{Nd}", "\\P{Nd}");
      case 'w': return put_class(word, word_class());
      case 'W': return put_class("", negated_word_class());
      case 'p':
      case 'P': return property();
      case 'u':
      case 'x': return hexadecimal(c);
      case 'n':
      case 'r':
      case 't':
      case 'f': return copy(2);
      case 'A':
      case 'z':
        if (!in_class_)
          return copy(2);
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x80 && std::isalnum(static_cast<unsigned char>(c)) == 0)
          return copy(2);
    }
    refuse(fmt::format("\\{}", c));
  }

  static constexpr std::string_view word = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
  std::string word_class() const { return fmt::format("[{}]", word); }
  std::string negated_word_class() const { return fmt::format("[^{}]", word); }

  void property() {
    const std::size_t end = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || end == std::string_view::npos) {
      if (at_ + 2 >= pattern_.size() || std::string_view("LMNPSZC").find(pattern_[at_ + 2]) == std::string_view::npos)
        refuse("\\p without {...}");
      return copy(3);
    }
    const std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    bool is_category = false;
    for (const std::string_view category : general_categories)
      is_category = is_category || category == name;
    for (const char c : name)
      if (!is_category && std::isalpha(static_cast<unsigned char>(c)) == 0 && c != '_')
        refuse(fmt::format("\\p{{{}}}", name));
    result_ += fmt::format("\\{}{{{}{}}}", pattern_[at_ + 1], is_category ? "" : "sc:", name);
    at_ = end + 1;
  }

  void hexadecimal(char c) {
    const auto is_digit = [&](std::size_t i) {
      return i < pattern_.size() && std::isxdigit(static_cast<unsigned char>(pattern_[i])) != 0;
    };
    std::size_t begin = at_ + 2;
    std::size_t end = begin;
    const bool braces = begin < pattern_.size() && pattern_[begin] == '{';
    begin += braces ? 1 : 0;
    for (end = begin; is_digit(end) && end - begin < (braces ? 6U : c == 'u' ? 4U : 2U);)
      ++end;
    if (end == begin || (braces && (end == pattern_.size() || pattern_[end] != '}')) ||
        (c == 'u' && !braces && end - begin != 4))
      refuse(fmt::format("\\{}", c));
    result_ += fmt::format("\\x{{{}}}", pattern_.substr(begin, end - begin));
    at_ = end + (braces ? 1 : 0);
  }

  std::string_view pattern_;
  RegexDialect dialect_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string result_;
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern, RegexDialect dialect) {
  if (dialect == RegexDialect::plain_text)
    return std::string(pattern);
  return DialectReader(pattern, dialect).read();
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "core/error.hpp"
#include "io/pack/input_files.hpp"

namespace espalier {
namespace {

constexpr std::size_t max_patterns = 100000;

void require_few(const std::string& pattern, std::size_t count) {
  if (count > max_patterns)
    throw Error(ExitCode::data, {.what = "the braces of a pattern expand to too many names",
                                 .where = pattern,
                                 .got = fmt::format("more than {}", max_patterns),
                                 .todo = "use * and ? instead, where possible"});
}

// The end of the group that opens at `open`, and its parts between commas; no parts: it is not closed.
std::vector<std::string> parts_of_group(const std::string& pattern, std::size_t open, std::size_t& close) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (std::size_t i = open + 1; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      parts.back() += c;
      parts.back() += pattern[++i];
      continue;
    }
    if (c == '}' && depth == 0) {
      close = i;
      return parts;
    }
    if (c == ',' && depth == 0) {
      parts.emplace_back();
      continue;
    }
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    parts.back() += c;
  }
  return {};
}

struct BraceNumber {
  long value = 0;
  bool is_padded = false;
};

bool read_number(std::string_view text, BraceNumber& number) {
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number.value);
  number.is_padded = digits.size() > 1 && digits.front() == '0';
  return error == std::errc() && end == text.data() + text.size();
}

// "first..last" of a group; nothing for other texts.
std::vector<std::string> sequence(const std::string& pattern, const std::string& text) {
  const std::size_t dots = text.find("..");
  if (dots == std::string::npos)
    return {};
  const std::string first = text.substr(0, dots);
  const std::string last = text.substr(dots + 2);
  std::vector<std::string> items;
  const auto is_letter = [](const std::string& one) {
    return one.size() == 1 && std::isalpha(static_cast<unsigned char>(one.front())) != 0;
  };
  BraceNumber from, to;
  if (is_letter(first) && is_letter(last)) {
    for (int c = first.front(); c != last.front(); c += first.front() < last.front() ? 1 : -1)
      items.emplace_back(1, static_cast<char>(c));
    items.push_back(last);
  } else if (read_number(first, from) && read_number(last, to)) {
    require_few(pattern, static_cast<std::size_t>(std::abs(to.value / 2 - from.value / 2)));
    const auto width = from.is_padded || to.is_padded ? static_cast<int>(std::max(first.size(), last.size())) : 0;
    for (long i = from.value; i != to.value; i += from.value < to.value ? 1 : -1)
      items.push_back(fmt::format("{:0{}}", i, width));
    items.push_back(fmt::format("{:0{}}", to.value, width));
  }
  return items;
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& pattern) {
  for (std::size_t open = 0; open < pattern.size(); ++open) {
    if (pattern[open] == '\\') {
      ++open;
      continue;
    }
    std::size_t close = 0;
    std::vector<std::string> parts;
    if (pattern[open] == '{')
      parts = parts_of_group(pattern, open, close);
    if (parts.size() == 1)
      parts = sequence(pattern, parts.front());
    if (parts.empty())
      continue;
    std::vector<std::string> expanded;
    const std::vector<std::string> ends = expand_braces(pattern.substr(close + 1));
    for (const std::string& part : parts)
      for (const std::string& middle : expand_braces(part)) {
        require_few(pattern, expanded.size() + ends.size());
        for (const std::string& end : ends)
          expanded.push_back(pattern.substr(0, open) + middle + end);
      }
    return expanded;
  }
  return {pattern};
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/jinja_tags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "core/printable_text.hpp"
#include "io/strings.hpp"

namespace espalier {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// A string from its first quote on; moves behind its last one.
std::string string_at(std::string_view text, std::size_t& at) {
  const char quote = text[at++];
  std::string value;
  for (; at < text.size(); ++at) {
    if (text[at] == quote) {
      ++at;
      return value;
    }
    const bool is_escape = text[at] == '\\' && at + 1 < text.size();
    at += is_escape ? 1 : 0;
    const char c = text[at];
    value += !is_escape ? c : c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
  }
  throw std::runtime_error("a string of the template has no end");
}

// What a tag has from `at` to its end ("%}", "}}"); moves to the end.
std::string content_at(std::string_view text, std::size_t& at, std::string_view end,
                       std::vector<std::string>& literals) {
  std::string content;
  while (at < text.size() && !text.substr(at).starts_with(end)) {
    const char c = text[at];
    if (c == '\'' || c == '"') {
      literals.push_back(string_at(text, at));
      content += fmt::format("'{}'", literals.back());
      continue;
    }
    const auto is_name = [&](std::string_view name) {
      return text.substr(at + 1).starts_with(name) && at + 1 + name.size() < text.size() &&
             !is_word(text[at + 1 + name.size()]);
    };
    if (c == '.' && (is_name("role") || is_name("content"))) {
      const std::string_view name = is_name("role") ? "role" : "content";
      content += fmt::format("['{}']", name);
      at += 1 + name.size();
      continue;
    }
    if (ascii_white_space.find(c) == std::string_view::npos)
      content += c;
    ++at;
  }
  if (at >= text.size())
    throw std::runtime_error("a tag of the template has no end");
  if (content.ends_with('-') || content.ends_with('+'))
    content.pop_back();
  return content;
}

// What is written of the text between two tags.
std::string_view written(std::string_view text, std::string_view tag_before, std::string_view tag_behind) {
  const bool is_last = tag_behind.empty();
  const bool is_block_before = tag_before.ends_with("%}") || tag_before.ends_with("#}");
  if (is_last && text.ends_with('\n'))
    text.remove_suffix(1);
  bool begins_line = tag_before.empty();
  if (tag_before.size() > 2 && tag_before[tag_before.size() - 3] == '-') {
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(ascii_white_space)));
  } else if (is_block_before && text.starts_with('\n')) {
    text.remove_prefix(1);
    begins_line = true;
  }
  if (tag_behind.size() > 2 && tag_behind[2] == '-') {
    text = text.substr(0, text.find_last_not_of(ascii_white_space) + 1);
  } else if (tag_behind.starts_with("{%") || tag_behind.starts_with("{#")) {
    const std::size_t line = text.find_last_not_of(" \t") + 1;
    if (line == 0 ? begins_line : text[line - 1] == '\n')
      text = text.substr(0, line);
  }
  return text;
}

}  // namespace

JinjaTags jinja_tags(std::string_view jinja) {
  JinjaTags tags{""};
  std::string_view before;
  for (std::size_t at = 0;;) {
    std::size_t begin = at;
    while (begin < jinja.size() && !(jinja[begin] == '{' && begin + 1 < jinja.size() &&
                                     std::string_view("%{#").find(jinja[begin + 1]) != std::string_view::npos))
      ++begin;
    const std::string_view outside = written(jinja.substr(at, begin - at), before, jinja.substr(begin, 3));
    if (!outside.empty())
      throw std::runtime_error(
          fmt::format("the template has text outside of its tags: \"{}\"", printable_line(outside.substr(0, 60))));
    if (begin == jinja.size())
      return tags;
    const std::string_view end = jinja[begin + 1] == '%' ? "%}" : jinja[begin + 1] == '{' ? "}}" : "#}";
    at = begin + 2;
    if (end == "#}") {
      at = jinja.find(end, at);
      if (at == std::string_view::npos)
        throw std::runtime_error("a comment of the template has no end");
    } else {
      at += at < jinja.size() && (jinja[at] == '-' || jinja[at] == '+') ? 1 : 0;
      const std::string content = content_at(jinja, at, end, tags.literals);
      tags.text += tags.list.emplace_back(fmt::format("{{{}{}{}}}", jinja[begin + 1], content, end.front()));
    }
    at += end.size();
    before = jinja.substr(at - std::min<std::size_t>(at, 3), std::min<std::size_t>(at, 3));
  }
}

}  // namespace espalier

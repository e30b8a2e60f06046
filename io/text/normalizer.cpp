// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/normalizer.hpp"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>

#include "io/text/utf8.hpp"

namespace espalier {
namespace {

std::string normal_form(const std::string& text, Normalizer::Form form) {
  const bool compatible = form == Normalizer::Form::nfkc || form == Normalizer::Form::nfkd;
  const bool composed = form == Normalizer::Form::nfc || form == Normalizer::Form::nfkc;
  if (ascii_bytes(text) == text.size())
    return text;
  const int options =
      UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0);
  unsigned char* result = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const unsigned char*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<unsigned char, void (*)(void*)> owner(result, std::free);
  if (size == UTF8PROC_ERROR_NOMEM)
    throw std::bad_alloc();
  if (size < 0)
    throw std::runtime_error(utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(result), static_cast<std::size_t>(size)};
}

std::string unicode_lower_case(const std::string& text) {
  std::string lower;
  lower.reserve(text.size());
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(character_bytes(rest))) {
    const std::uint32_t point = code_point(rest);
    if (point == 0x130)  // the one letter that two characters are the small one of
      lower += "i\xCC\x87";
    else
      append_utf8(static_cast<std::uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))), lower);
  }
  return lower;
}

std::string stripped(const std::string& text, bool left, bool right) {
  std::size_t begin = text.size();
  std::size_t end = 0;
  for (std::size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    const std::size_t size = character_bytes(rest);
    if (!is_white_space(code_point(rest))) {
      begin = std::min(begin, i);
      end = i + size;
    }
    i += size;
  }
  begin = left ? begin : 0;
  end = right ? end : text.size();
  return begin < end ? text.substr(begin, end - begin) : std::string();
}

}  // namespace

void Normalizer::add_form(Form form) {
  steps_.emplace_back([form](std::string text) { return normal_form(text, form); });
}

void Normalizer::add_lower_case() {
  steps_.emplace_back([](std::string text) { return unicode_lower_case(text); });
}

void Normalizer::add_prepend(std::string prefix) {
  steps_.emplace_back([prefix = std::move(prefix)](std::string text) { return text.empty() ? text : prefix + text; });
}

void Normalizer::add_replace(Regex pattern, std::string by) {
  steps_.emplace_back([pattern = std::make_shared<Regex>(std::move(pattern)), by = std::move(by)](std::string text) {
    return replace_matches(text, *pattern, by);
  });
}

void Normalizer::add_strip(bool left, bool right) {
  steps_.emplace_back([=](std::string text) { return stripped(text, left, right); });
}

std::string Normalizer::apply(std::string text) const {
  for (const auto& step : steps_)
    text = step(std::move(text));
  return text;
}

std::string replace_matches(std::string_view text, const Regex& pattern, std::string_view by) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Regex::Match match = pattern.find(text, at);
    result += text.substr(at, match.begin - at);
    if (match.end > match.begin)
      result += by;
    at = match.end;
  }
  return result;
}

bool is_white_space(std::uint32_t code_point) {
  return (code_point >= 0x09 && code_point <= 0x0D) || code_point == 0x20 || code_point == 0x85 || code_point == 0xA0 ||
         code_point == 0x1680 || (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
         code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F || code_point == 0x3000;
}

}  // namespace espalier

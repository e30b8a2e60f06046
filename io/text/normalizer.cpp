// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/normalizer.hpp"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

// Characters after Unicode 9 that have a normal form, or that others are put in order with.
constexpr std::pair<std::uint32_t, std::uint32_t> after_unicode_9[] = {
    {0x07FD, 0x07FD},   {0x0897, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},   {0x0C3C, 0x0C3C},
    {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x1715, 0x1715},   {0x1ABF, 0x1ADF},   {0x1DF6, 0x1DFA},
    {0x32FF, 0x32FF},   {0xA7F1, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x105C0, 0x105FF},
    {0x10780, 0x107BF}, {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFA, 0x10EFF},
    {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x11380, 0x113E2},
    {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938},
    {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47},
    {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16100, 0x1612F}, {0x16D40, 0x16D6F}, {0x16FF0, 0x16FF1}, {0x1CCD6, 0x1CCF9}, {0x1DF00, 0x1DFFF},
    {0x1E030, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
    {0x1E5EE, 0x1E5EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

bool came_after_unicode_9(std::uint32_t point) {
  const auto* const range = std::ranges::upper_bound(after_unicode_9, point, {}, [](const auto& r) { return r.first; });
  return range != std::begin(after_unicode_9) && point <= std::prev(range)->second;
}

// Appends what a character is decomposed into.
void decompose(std::uint32_t point, int options, std::vector<utf8proc_int32_t>& points) {
  if (point < 0x80) {
    points.push_back(static_cast<utf8proc_int32_t>(point));
    return;
  }
  std::array<utf8proc_int32_t, 32> parts;  // U+FDFA becomes 18
  int boundary = 0;
  const utf8proc_ssize_t size =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point), parts.data(), std::ssize(parts),
                              static_cast<utf8proc_option_t>(options), &boundary);
  ESPALIER_ASSERT(size >= 0 && size <= std::ssize(parts), "a character has no normal form");
  points.insert(points.end(), parts.begin(), parts.begin() + size);
}

// Puts marks behind a character in order by their class. utf8proc's own way costs the square of their number.
void order_marks(std::vector<utf8proc_int32_t>& points) {
  const auto mark_class = [](utf8proc_int32_t point) { return utf8proc_get_property(point)->combining_class; };
  const auto is_mark = [&](utf8proc_int32_t point) { return mark_class(point) != 0; };
  for (auto begin = points.begin(); begin != points.end();) {
    begin = std::find_if(begin, points.end(), is_mark);
    const auto end = std::find_if_not(begin, points.end(), is_mark);
    std::ranges::stable_sort(begin, end, {}, mark_class);
    begin = end;
  }
}

std::string normal_form(const std::string& text, Normalizer::Form form) {
  const bool compatible = form == Normalizer::Form::nfkc || form == Normalizer::Form::nfkd;
  const bool composed = form == Normalizer::Form::nfc || form == Normalizer::Form::nfkc;
  if (ascii_bytes(text) == text.size())
    return text;
  const int options =
      UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0);
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size() + text.size() / 2);
  for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(character_bytes(rest)))
    decompose(code_point(rest), options, points);
  order_marks(points);
  const utf8proc_ssize_t size = utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                                                         static_cast<utf8proc_option_t>(options));
  ESPALIER_ASSERT(size >= 0, "a text has no normal form");
  std::string result;
  result.reserve(text.size());
  for (const utf8proc_int32_t point : std::span(points).first(static_cast<std::size_t>(size)))
    append_utf8(static_cast<std::uint32_t>(point), result);
  return result;
}

// Newer characters stay as they are, and the text between them has no part in them.
std::string unicode_9_form(const std::string& text, Normalizer::Form form) {
  std::string result;
  std::size_t begin = 0;
  for (std::size_t i = ascii_bytes(text); i < text.size();) {
    const std::string_view rest = std::string_view(text).substr(i);
    const std::size_t size = character_bytes(rest);
    if (came_after_unicode_9(code_point(rest))) {
      result += normal_form(text.substr(begin, i - begin), form);
      result += rest.substr(0, size);
      begin = i + size;
    }
    i += size;
  }
  return begin == 0 ? normal_form(text, form) : result + normal_form(text.substr(begin), form);
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

void Normalizer::add_form(Form form, bool unicode_9) {
  steps_.emplace_back(
      [=](const std::string& text) { return unicode_9 ? unicode_9_form(text, form) : normal_form(text, form); });
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
  strips_left_ = strips_left_ || left;
  steps_.emplace_back([=](std::string text) { return stripped(text, left, right); });
}

std::string Normalizer::apply(std::string text) const {
  for (const auto& step : steps_)
    text = step(std::move(text));
  return text;
}

bool Normalizer::keeps_begin(std::string_view text) const {
  return !strips_left_ || text.empty() || !is_white_space(code_point(text));
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

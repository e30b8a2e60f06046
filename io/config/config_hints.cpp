// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/scalars.hpp"
#include "io/config/config_reader_data.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

// All of a text as a number, also in spellings that TOML has not: ".5", "1.", "010".
std::optional<double> number_in(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole_text = error == std::errc() && end == text.data() + text.size();
  return whole_text && std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<double> number_meant(const toml::node& node) {
  return node.is_string() ? number_in(**node.as_string()) : number_of(node);
}

}  // namespace

std::optional<double> number_of(const toml::node& node) {
  if (const auto* const integer = node.as_integer())
    return static_cast<double>(**integer);
  if (const auto* const real = node.as_floating_point())
    return **real;
  return std::nullopt;
}

std::string integer_hint(const toml::node& node) {
  if (const auto number = number_meant(node); number && *number == std::round(*number) && std::abs(*number) < 0x1p53)
    return fmt::format("; write {}", static_cast<Index>(*number));
  const auto counted = node.is_string() ? parse_count(**node.as_string()) : std::nullopt;
  return counted ? fmt::format("; write {}", *counted) : std::string();
}

std::string real_hint(const toml::node& node) {
  auto number = number_meant(node);
  if (!number && node.is_string()) {  // as some countries write it
    std::string text = **node.as_string();
    std::ranges::replace(text, ',', '.');
    number = number_in(text);
  }
  return number ? fmt::format("; write {}", *number) : std::string();
}

std::string boolean_hint(const toml::node& node) {
  const auto is_one_of = [&](const auto&... words) {
    std::string text = node.is_string() ? **node.as_string() : std::string();
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return ((text == words) || ...);
  };
  if (number_meant(node) == 1.0 || is_one_of("true", "yes", "on"))
    return "; write true";
  return number_meant(node) == 0.0 || is_one_of("false", "no", "off") ? "; write false" : "";
}

}  // namespace espalier

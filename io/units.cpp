// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/units.hpp"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

namespace espalier {
namespace {

void skip_space(std::string_view& text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
}

struct Number {
  double value = 0;
  std::string_view text;  // as it was written
};

std::optional<Number> take_number(std::string_view& text) {
  skip_space(text);
  Number number;
  const char* const begin = text.data();
  const auto [end, error] = std::from_chars(begin, begin + text.size(), number.value, std::chars_format::fixed);
  if (error != std::errc() || !(number.value >= 0) || !std::isfinite(number.value))
    return std::nullopt;
  number.text = text.substr(0, static_cast<std::size_t>(end - begin));
  text.remove_prefix(number.text.size());
  skip_space(text);
  return number;
}

std::string_view take_word(std::string_view& text) {
  std::size_t size = 0;
  while (size < text.size() && std::isalpha(static_cast<unsigned char>(text[size])))
    ++size;
  const std::string_view word = text.substr(0, size);
  text.remove_prefix(size);
  skip_space(text);
  return word;
}

// Digits alone keep all 63 bits; a fraction or a unit goes through double and is rounded.
std::optional<Index> scaled(const Number& number, double scale) {
  Index exact = 0;
  const char* const text_end = number.text.data() + number.text.size();
  const auto [end, error] = std::from_chars(number.text.data(), text_end, exact);
  if (error == std::errc() && end == text_end && scale == 1)
    return exact;
  const double product = number.value * scale;
  if (!(product < 0x1p62))
    return std::nullopt;
  return static_cast<Index>(std::llround(product));
}

// The same of what can only be counted.
std::optional<Index> scaled_whole(const Number& number, double scale) {
  const double product = number.value * scale;
  return std::abs(product - std::round(product)) > 1e-6 ? std::nullopt : scaled(number, scale);
}

std::optional<double> parse_clock(std::string_view text) {
  std::vector<double> fields;
  double days = 0;
  const std::size_t dash = text.find('-');
  if (dash != std::string_view::npos) {
    std::string_view day_text = text.substr(0, dash);
    const auto number = take_number(day_text);
    if (!number || !day_text.empty())
      return std::nullopt;
    days = number->value;
    text.remove_prefix(dash + 1);
  }
  while (true) {
    const auto number = take_number(text);
    if (!number)
      return std::nullopt;
    fields.push_back(number->value);
    if (text.empty())
      break;
    if (text.front() != ':')
      return std::nullopt;
    text.remove_prefix(1);
  }
  if (fields.size() != 3 || fields[1] >= 60 || fields[2] >= 60)
    return std::nullopt;  // "1:30" could be minutes or hours
  return ((days * 24 + fields[0]) * 60 + fields[1]) * 60 + fields[2];
}

using Unit = std::pair<std::string_view, double>;

const std::vector<Unit>& units_of(Quantity quantity) {
  static const std::vector<Unit> bytes{{"B", 1},        {"kB", 1e3},     {"KB", 1e3},     {"MB", 1e6},
                                       {"GB", 1e9},     {"TB", 1e12},    {"PB", 1e15},    {"KiB", 0x1p10},
                                       {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"PiB", 0x1p50}};
  static const std::vector<Unit> bandwidth{
      {"B/s", 1},         {"MB/s", 1e6},      {"GB/s", 1e9},      {"TB/s", 1e12},    {"PB/s", 1e15},
      {"MiB/s", 0x1p20},  {"GiB/s", 0x1p30},  {"TiB/s", 0x1p40},  {"Mb/s", 1e6 / 8}, {"Gb/s", 1e9 / 8},
      {"Tb/s", 1e12 / 8}, {"Pb/s", 1e15 / 8}, {"Gbit/s", 1e9 / 8}};
  static const std::vector<Unit> flops{{"FLOP/s", 1},     {"MFLOP/s", 1e6},  {"GFLOP/s", 1e9},
                                       {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}, {"EFLOP/s", 1e18},
                                       {"GFLOPS", 1e9},   {"TFLOPS", 1e12},  {"PFLOPS", 1e15}};
  static const std::vector<Unit> seconds{{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}};
  static const std::vector<Unit> watts{{"W", 1}, {"kW", 1e3}, {"MW", 1e6}};
  switch (quantity) {
    case Quantity::bytes: return bytes;
    case Quantity::bytes_per_second: return bandwidth;
    case Quantity::flops_per_second: return flops;
    case Quantity::seconds: return seconds;
    case Quantity::watts: return watts;
  }
  return bytes;
}

std::string in_unit(double value, std::initializer_list<Unit> units) {
  const Unit* chosen = units.begin();
  for (const Unit& unit : units)
    if (value >= unit.second)
      chosen = &unit;
  return fmt::format("{:.4g} {}", value / chosen->second, chosen->first);
}

}  // namespace

std::string count_text(double count) {
  for (const char* unit : {"", "k", "M", "B"}) {
    if (count < 999.5)
      return fmt::format("{:.3g}{}", count, unit);
    count /= 1000;
  }
  return fmt::format("{:.3g}T", count);
}

std::string counted(Index count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : noun.ends_with("ch") ? "es" : "s");
}

std::optional<Index> parse_count(std::string_view text) {
  const auto number = take_number(text);
  if (!number)
    return std::nullopt;
  double scale = 1;
  std::string_view unit = take_word(text);
  if (unit == "k" || unit == "K")
    scale = 1e3;
  else if (unit == "M")
    scale = 1e6;
  else if (unit == "B" || unit == "G")
    scale = 1e9;
  else if (unit == "T")
    scale = 1e12;
  if (scale != 1)
    unit = take_word(text);
  const bool known = unit.empty() || unit == "tokens" || unit == "steps" || unit == "samples" || unit == "sequences";
  return known && text.empty() ? scaled_whole(*number, scale) : std::nullopt;
}

std::optional<Index> parse_bytes(std::string_view text) {
  const auto number = take_number(text);
  if (!number)
    return std::nullopt;
  const std::string_view unit = take_word(text);
  if (!text.empty())
    return std::nullopt;
  if (unit.empty() || unit == "B" || unit == "bytes")
    return scaled_whole(*number, 1);
  const std::string_view prefixes = "KMGT";
  const std::size_t power = prefixes.find(static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0]))));
  const std::string_view rest = unit.substr(1);
  if (power == std::string_view::npos || !(rest.empty() || rest == "iB" || rest == "B"))
    return std::nullopt;
  return scaled(*number, std::pow(rest == "B" ? 1000.0 : 1024.0, static_cast<double>(power + 1)));
}

std::optional<double> parse_seconds(std::string_view text) {
  if (text.find(':') != std::string_view::npos)
    return parse_clock(text);
  double seconds = 0;
  do {
    const auto number = take_number(text);
    if (!number)
      return std::nullopt;
    const std::string_view unit = take_word(text);
    if (unit == "ms")
      seconds += number->value * 1e-3;
    else if (unit.empty() || unit == "s" || unit == "seconds")
      seconds += number->value;
    else if (unit == "m" || unit == "min" || unit == "minutes")
      seconds += number->value * 60;
    else if (unit == "h" || unit == "hours")
      seconds += number->value * 3600;
    else if (unit == "d" || unit == "days")
      seconds += number->value * 86400;
    else
      return std::nullopt;
  } while (!text.empty());
  return seconds;
}

std::optional<double> parse_quantity(Quantity quantity, std::string_view text) {
  std::size_t used = 0;
  double number = 0;
  try {
    number = std::stod(std::string(text), &used);
  } catch (const std::exception&) {
    return std::nullopt;
  }
  if (!std::isfinite(number))
    return std::nullopt;
  std::string_view unit = text.substr(used);
  while (unit.starts_with(' '))
    unit.remove_prefix(1);
  for (const auto& [name, factor] : units_of(quantity))
    if (unit == name)
      return number * factor;
  return std::nullopt;
}

std::string quantity_examples(Quantity quantity) {
  switch (quantity) {
    case Quantity::bytes: return "bytes with a unit, such as \"80 GiB\" or \"80 GB\"";
    case Quantity::bytes_per_second: return "a rate with its unit, such as \"25 GB/s\" (bytes) or \"200 Gb/s\" (bits)";
    case Quantity::flops_per_second: return "a rate with its unit, such as \"312 TFLOP/s\"";
    case Quantity::seconds: return "a time with its unit, such as \"5 us\" or \"0.2 ms\"";
    case Quantity::watts: return "a power with its unit, such as \"1200 W\"";
  }
  return {};
}

std::string quantity_text(Quantity quantity, double value) {
  switch (quantity) {
    case Quantity::bytes:
      return in_unit(value, {{"B", 1}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}});
    case Quantity::bytes_per_second: return in_unit(value, {{"B/s", 1}, {"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}});
    case Quantity::flops_per_second:
      return in_unit(value, {{"FLOP/s", 1}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}});
    case Quantity::seconds: return in_unit(value, {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}});
    case Quantity::watts: return in_unit(value, {{"W", 1}, {"kW", 1e3}, {"MW", 1e6}});
  }
  return {};
}

}  // namespace espalier

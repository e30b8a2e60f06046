// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/json_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "core/printable_text.hpp"
#include "io/pack/json_text.hpp"

namespace espalier {

std::string shown_json(const nlohmann::json& value) {
  constexpr std::size_t most = 40;
  std::string text = value.size() > most ? "" : json_text(value);
  if (value.is_structured() && (text.empty() || text.size() > most))
    return fmt::format("{} of {}", value.is_array() ? "a list" : "an object", value.size());
  return printable_line(text.substr(0, most));
}

void refuse_field(const char* key, const nlohmann::json& value, const std::string& wanted) {
  throw FieldError(fmt::format("\"{}\" is {}", key, shown_json(value)), wanted);
}

Index integer_from(const nlohmann::json& value, const char* key, IntegerRange range) {
  const bool is_index = value.is_number_integer() &&
                        (!value.is_number_unsigned() ||
                         value.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<Index>::max()));
  if (!is_index || !inside(value.get<Index>(), range))
    refuse_field(key, value, "an integer, " + describe(range));
  return value.get<Index>();
}

double float_from(const nlohmann::json& value, const char* key, FloatRange range) {
  if (!value.is_number() || !std::isfinite(value.get<double>()) || !inside(value.get<double>(), range))
    refuse_field(key, value, describe(range));
  return value.get<double>();
}

bool boolean_from(const nlohmann::json& value, const char* key) {
  if (!value.is_boolean())
    refuse_field(key, value, "true or false");
  return value.get<bool>();
}

const std::string& text_from(const nlohmann::json& value, const char* key, std::size_t most) {
  if (!value.is_string() || value.get_ref<const std::string&>().size() > most)
    refuse_field(key, value, fmt::format("a string of at most {} bytes", most));
  return value.get_ref<const std::string&>();
}

const nlohmann::json& any_field(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end())
    throw std::runtime_error(fmt::format("no \"{}\"", key));
  return *found;
}

const nlohmann::json& object_field(const nlohmann::json& json, const char* key) {
  const nlohmann::json& value = any_field(json, key);
  if (!value.is_object())
    refuse_field(key, value, "an object");
  return value;
}

const nlohmann::json& object_field_or_empty(const nlohmann::json& json, const char* key) {
  static const nlohmann::json empty = nlohmann::json::object();
  return json.contains(key) ? object_field(json, key) : empty;
}

const nlohmann::json& list_field(const nlohmann::json& json, const char* key, std::size_t most) {
  const nlohmann::json& value = any_field(json, key);
  if (!value.is_array() || value.size() > most)
    refuse_field(key, value, fmt::format("a list of at most {}", most));
  return value;
}

void require_object(const nlohmann::json& json) {
  if (!json.is_object())
    throw FieldError(shown_json(json), "an object");
}

double number_field(const nlohmann::json& json, const char* key) {
  const nlohmann::json& value = any_field(json, key);
  const std::optional<double> named = named_number(value);
  return named ? *named : float_from(value, key, {});
}

void name_non_finite(nlohmann::ordered_json& value) {
  if (value.is_structured()) {
    for (auto& item : value)
      name_non_finite(item);
  } else if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    value = std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf";
  }
}

std::optional<double> named_number(const nlohmann::json& value) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (value == "nan")
    return std::numeric_limits<double>::quiet_NaN();
  if (value == "inf" || value == "-inf")
    return value == "inf" ? infinity : -infinity;
  return std::nullopt;
}

}  // namespace espalier

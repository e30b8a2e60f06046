// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "io/json_numbers.hpp"
#include "io/json_text.hpp"

// Fields of files that somebody may have damaged: what is wrong is told with its key, which the exceptions of the JSON
// library leave out.

namespace espalier {

/// `json[key]`. @throws std::runtime_error where there is none
template <class Json>
const Json& any_field(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end())
    throw std::runtime_error(fmt::format("no \"{}\"", key));
  return *found;
}

/// What `read` makes of `json[key]`. @throws std::runtime_error where there is none, or another type than `read` wants
template <class Json, class Read>
auto field_by(const Json& json, const char* key, Read read) {
  const Json& value = any_field(json, key);
  try {
    return read(value);
  } catch (const nlohmann::json::exception&) {
    throw std::runtime_error(fmt::format("\"{}\" is {:.40}", key, json_text(value)));
  }
}

/// `json[key]` as a T. @throws as field_by()
template <class T, class Json>
T field(const Json& json, const char* key) {
  return field_by(json, key, [](const Json& value) { return value.template get<T>(); });
}

/// The same, or `otherwise` where there is none.
template <class T, class Json>
T field_or(const Json& json, const char* key, T otherwise) {
  return json.contains(key) ? field<T>(json, key) : std::move(otherwise);
}

/// A number, or the name of one (io/json_numbers.hpp). @throws as field_by()
inline double number_field(const nlohmann::ordered_json& json, const char* key) {
  return field_by(json, key, number_from);
}

/// `json[key]`, an object. @throws as field_by()
template <class Json>
const Json& object_field(const Json& json, const char* key) {
  const Json& value = any_field(json, key);
  if (!value.is_object())
    throw std::runtime_error(fmt::format("\"{}\" is {:.40}", key, json_text(value)));
  return value;
}

/// The same, or an empty one where there is none.
template <class Json>
Json object_field_or_empty(const Json& json, const char* key) {
  return json.contains(key) ? object_field(json, key) : Json::object();
}

}  // namespace espalier

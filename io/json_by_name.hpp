// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "core/axis.hpp"
#include "io/json_fields.hpp"

namespace espalier {

/// {"forward": 0.1, "backward": 0.2, ...}: one value for each name of an enum (phases, categories, axes), by its
/// to_string().
template <class Enum, class Value, std::size_t N>
nlohmann::ordered_json json_by_name(const std::array<Value, N>& values) {
  nlohmann::ordered_json json;
  for (std::size_t i = 0; i < N; ++i)
    json[to_string(static_cast<Enum>(i))] = values[i];
  return json;
}

/// Of the axes that training uses.
template <class Value>
nlohmann::ordered_json json_by_axis(const std::array<Value, num_axes>& values) {
  nlohmann::ordered_json json;
  for (const Axis axis : trained_axes)
    json[to_string(axis)] = values[static_cast<std::size_t>(axis)];
  return json;
}

/// The same read back: a number, or a count, for each name that the object has; 0 for the others.
/// @throws std::runtime_error
template <class Enum, std::size_t N>
std::array<double, N> numbers_by_name(const nlohmann::json& json) {
  require_object(json);
  std::array<double, N> values{};
  for (std::size_t i = 0; i < N; ++i)
    if (const char* const name = to_string(static_cast<Enum>(i)); json.contains(name))
      values[i] = number_field(json, name);
  return values;
}

template <class Enum, std::size_t N>
std::array<std::size_t, N> counts_by_name(const nlohmann::json& json) {
  require_object(json);
  std::array<std::size_t, N> values{};
  for (std::size_t i = 0; i < N; ++i)
    values[i] = field_or(json, to_string(static_cast<Enum>(i)), std::size_t{0}, count_range);
  return values;
}

}  // namespace espalier

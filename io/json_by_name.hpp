// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "core/axis.hpp"

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

}  // namespace espalier

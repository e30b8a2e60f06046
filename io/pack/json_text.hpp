// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace espalier {

/// JSON as text, always valid and of ASCII alone: what is not UTF-8 is replaced, and no character can move a cursor.
/// @param indent columns a level; negative: one line
template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

}  // namespace espalier

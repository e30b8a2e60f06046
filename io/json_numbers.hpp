// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

namespace espalier {

/// JSON knows no infinity and no NaN: in our files these are the strings "inf", "-inf" and "nan".
void name_non_finite(nlohmann::ordered_json& value);

/// The number that such a string names; none for anything else.
std::optional<double> named_number(const nlohmann::json& value);

}  // namespace espalier

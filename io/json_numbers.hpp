// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace espalier {

/// JSON knows no infinity and no NaN: in our files these are the strings "inf", "-inf" and "nan".
void name_non_finite(nlohmann::ordered_json& value);

/// A number that may have been named. @throws nlohmann::json::exception for anything else.
double number_from(const nlohmann::ordered_json& value);

}  // namespace espalier

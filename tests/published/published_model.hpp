// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "models/cost.hpp"
#include "planning/implementation.hpp"
#include "tests/published/csv.hpp"

namespace espalier {

/// The model of a row. What the table leaves out (heads, vocabulary, gated feed-forward or not, tied head or not) is
/// what explains its published number of parameters best, else what is usual for the shape.
/// @param why_not becomes what is missing or cannot be; empty where it can be priced
/// @throws Error (data) for a field that is no number.
ModelConfig published_model(const CsvRow& row, const Implementation& implementation, std::string& why_not);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/scalars.hpp"

namespace espalier {

/// A count as a floating-point number, spelled out (-Wconversion).
constexpr double to_double(Index value) { return static_cast<double>(value); }

}  // namespace espalier

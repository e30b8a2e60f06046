// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/scalars.hpp"

namespace espalier {

/// The bytes of a GiB.
inline constexpr Index gib = Index{1} << 30;

/// Bytes in GiB, for columns of numbers; a size in a sentence is bytes_text().
constexpr double in_gib(double bytes) { return bytes / static_cast<double>(gib); }
constexpr double in_gib(std::size_t bytes) { return in_gib(static_cast<double>(bytes)); }

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "core/scalars.hpp"

namespace espalier {

struct MemoryByCategory;

/// The bytes of a GiB.
inline constexpr Index gib = Index{1} << 30;

/// Bytes in GiB, for columns of numbers; a size in a sentence is bytes_text().
constexpr double in_gib(double bytes) { return bytes / static_cast<double>(gib); }
constexpr double in_gib(std::size_t bytes) { return in_gib(static_cast<double>(bytes)); }

/// "1.50 GiB": how sizes are written everywhere.
std::string bytes_text(std::size_t bytes);

/// The same rounded up: what is a budget when it is typed.
std::string budget_text(std::size_t bytes);

/// The three that hold most: "activations 3.0 MiB, weights 2.0 MiB, gradients 2.0 MiB".
std::string biggest_categories(const MemoryByCategory& memory);

}  // namespace espalier

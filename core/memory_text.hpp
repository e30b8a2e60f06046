// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace espalier {

struct MemoryByCategory;

/// "1.50 GiB": how sizes are written everywhere.
std::string bytes_text(std::size_t bytes);

/// The same rounded up: what is a budget when it is typed.
std::string budget_text(std::size_t bytes);

/// The three that hold most: "activations 3.0 MiB, weights 2.0 MiB, gradients 2.0 MiB".
std::string biggest_categories(const MemoryByCategory& memory);

}  // namespace espalier

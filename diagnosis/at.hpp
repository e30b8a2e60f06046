// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace espalier {

/// A rank, stage or replica as an index of a vector, which compilers want to be told (-Wsign-conversion).
constexpr std::size_t at(int i) { return static_cast<std::size_t>(i); }

}  // namespace espalier

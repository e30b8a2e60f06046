// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// "gelu", "swiglu", ...: all in the table, in its order.
std::vector<std::string> activation_names();

/// Does it multiply the function of one half of its input with the other half, as SwiGLU (Shazeer, 2020)?
/// @pre the name is in the table
bool is_gated(std::string_view activation);

}  // namespace espalier

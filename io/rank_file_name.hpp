// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/scalars.hpp"

namespace espalier {

/// The file of a rank: "rank-00003.h5" with the ending ".h5".
std::string rank_file_name(Index rank, std::string_view ending);

/// The rank of such a name; nothing of any other name, so that no path can leave the directory.
std::optional<Index> rank_in(std::string_view name, std::string_view ending);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "core/scalars.hpp"

// What older versions of the checkpoint format stored under other names.

namespace espalier {

/// Versions that are read; the last one is written.
inline constexpr int oldest_checkpoint_version = 1;
inline constexpr int checkpoint_format_version = 2;

/// A tensor of the current version that an older one stored as index `part` of the first dimension of `tensor`.
struct StoredPart {
  std::string tensor;
  Index part = 0;
};

/// Whether a checkpoint of `version` may have a tensor of this name: one of version 1 has none of the names that
/// version 2 brought.
bool is_name_of_version(const std::string& tensor, int version);

/// The parts of a stored tensor, by their names today. Empty: the name is that of today. Until version 1 Q, K and V
/// were one tensor: weights/h.0.attention.qkv.weight of (3, C, C).
std::map<std::string, StoredPart> parts_of_stored(const std::string& tensor, int version);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace espalier {

/// XXH3-128 of the running program's file, read when first asked for; empty where it cannot be read. Shared libraries
/// are not in it.
const std::string& executable_hash();

}  // namespace espalier

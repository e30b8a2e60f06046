// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace espalier {

std::string host_name();

/// "Intel(R) Xeon(R) Platinum 8481C", as the operating system says; "unknown" where it does not.
std::string cpu_model();

/// XXH3-128 of the running program's file, read when first asked for; empty where it cannot be read. Shared libraries
/// are not in it.
const std::string& executable_hash();

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "io/file.hpp"

namespace espalier {

/// May the token files be written there? Nothing that is written may be what is read, or be written twice; and only
/// token files are replaced.
/// @param validation_output empty: none
/// @throws Error: (usage), (write)
void check_pack_outputs(const std::vector<Path>& files, const Path& output, const Path& validation_output);

/// @throws Error (usage) unless the fraction is at least 0 and less than 1, and above 0 just where there is a file
void check_validation_fraction(double fraction, const Path& validation_output);

}  // namespace espalier

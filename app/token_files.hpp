// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/commands.hpp"

namespace espalier {

void add_data_inspect(CLI::App& parent, Chosen& chosen);
void add_data_convert(CLI::App& parent, Chosen& chosen);

}  // namespace espalier

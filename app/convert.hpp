// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/commands.hpp"

namespace espalier {

void add_checkpoint_import(CLI::App& parent, Chosen& chosen);
void add_checkpoint_export(CLI::App& parent, Chosen& chosen);

}  // namespace espalier

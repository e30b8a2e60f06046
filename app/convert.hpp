// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/commands.hpp"
#include "io/file.hpp"

namespace espalier {

void add_checkpoint_import(CLI::App& parent, Chosen& chosen);
void add_checkpoint_export(CLI::App& parent, Chosen& chosen);

/// Where an import keeps the files of the tokenizer: beside checkpoints/.
Path tokenizer_beside(const Path& checkpoint);

}  // namespace espalier

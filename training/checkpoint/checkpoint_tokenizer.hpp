// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/text/tokenizer.hpp"

namespace espalier {

/// Where a run or an import keeps the files of the tokenizer: beside checkpoints/.
Path tokenizer_beside(const Path& checkpoint);

/// The tokenizer that made the data of a checkpoint, which stores its name: `given`, or the one that lies beside it.
/// @throws Error (checkpoint) where none is known, or it is not the one that the checkpoint names
std::unique_ptr<Tokenizer> tokenizer_of(const CheckpointReader& checkpoint, const std::string& given);

}  // namespace espalier

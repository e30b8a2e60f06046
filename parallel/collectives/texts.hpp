// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "parallel/collectives/communicator.hpp"

namespace espalier {

// Texts of any length between ranks. Collectives, like those of collectives.hpp.

/// The text of `root` on every rank.
std::string broadcast_text(const Communicator& communicator, std::string text, int root);

/// The texts of `root` on every rank.
std::vector<std::string> broadcast_texts(const Communicator& communicator, const std::vector<std::string>& texts,
                                         int root);

/// The texts of all ranks, by rank, on rank 0; nothing on the others: only rank 0 needs the memory.
std::vector<std::string> gather_texts(const Communicator& communicator, const std::string& text);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "core/scalars.hpp"

namespace espalier {

/// Looks through a model of SentencePiece before its library does, which believes what it reads: the library ends the
/// process for some damaged models, and reads beyond its memory for others.
/// @returns the ids of the pieces that a user has defined: they are found in every text
/// @throws std::runtime_error: says what is damaged
std::vector<TokenId> check_sentencepiece_model(std::string_view model);

}  // namespace espalier

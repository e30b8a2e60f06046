// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace espalier {

/// Looks through a model of SentencePiece before its library does, which believes what it reads: the library ends the
/// process for some damaged models, and reads beyond its memory for others.
/// @throws std::runtime_error: says what is damaged
void check_sentencepiece_model(std::string_view model);

}  // namespace espalier

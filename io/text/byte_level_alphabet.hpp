// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace espalier {

/// The characters that GPT-2 writes bytes as in a vocabulary, so that none is white space or a control character: of
/// each byte, as UTF-8.
const std::array<std::string, 256>& byte_level_alphabet();

/// The bytes that a text of these characters stands for; nothing where it has another one.
std::optional<std::string> bytes_of_byte_level(std::string_view text);

}  // namespace espalier

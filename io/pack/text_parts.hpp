// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>

#include "io/text/tokenizer.hpp"

namespace espalier {

/// A document of more bytes is encoded in parts, and not kept in memory.
inline constexpr std::size_t whole_document_bytes = std::size_t{4} << 20;

/// How many bytes of a text are encoded at once.
std::size_t max_part_bytes(const Tokenizer& tokenizer);

/// Bytes of the first part of a text.
/// @param text as many bytes as there are, up to max_part_bytes()  @param has_more whether more text follows
std::size_t part_bytes(const Tokenizer& tokenizer, std::string_view text, bool has_more);

}  // namespace espalier

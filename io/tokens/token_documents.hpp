// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "io/tokens/token_file.hpp"

namespace espalier {

/// Calls `visit` with the tokens of a file in order, in pieces that lie in one document each; `ends` says that the
/// document ends with the piece, which may be empty. Where the file does not say what its documents are, each ends with
/// the token `document_end`, or with the file. Keeps a piece in memory.
/// @throws Error (data) for an index that does not fit
void read_documents(const TokenFile& file, std::optional<TokenId> document_end,
                    const std::function<void(std::span<const TokenId> piece, bool ends)>& visit);

}  // namespace espalier

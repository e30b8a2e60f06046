// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "core/types.hpp"
#include "io/file.hpp"

namespace espalier {

/// Bytes of a text file have no zero among them, and at its beginning no mark of another format.
/// @param offset of the bytes in the text  @throws Error (data)
void require_plain_text(const Path& path, std::string_view bytes, Index offset);

}  // namespace espalier

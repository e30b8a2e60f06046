// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/memory_text.hpp"  // bytes_text(), the other direction of parse_bytes()
#include "core/scalars.hpp"

namespace espalier {

/// "64", "64k", "1.5B", "1.5B tokens": k, M, B or G, T are powers of 1000. Nothing if it is not a whole
/// number.
std::optional<Index> parse_count(std::string_view text);

/// "4096", "64 MiB", "1.1 MiB", "2GB", "16G": KiB ... and bare K, M, G, T are powers of 1024 (as in batch systems); kB,
/// MB ... of 1000. The nearest whole number of bytes.
std::optional<Index> parse_bytes(std::string_view text);

/// Seconds: "90", "1.5h", "1h30m", "250ms", "2d", "01:30:00", "1-12:00:00" (days first, as in batch systems).
std::optional<double> parse_seconds(std::string_view text);

/// "1 rank", "4 ranks", "2 batches".
std::string counted(Index count, std::string_view noun);

}  // namespace espalier

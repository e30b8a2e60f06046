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

/// "125", "22.1k", "1.27M", "197B": for counts of parameters, tokens and times.
std::string count_text(double count);

/// What a cluster file measures in. A number without a unit is refused: it is wrong by a factor of a thousand too
/// often.
enum class Quantity { bytes, bytes_per_second, flops_per_second, seconds, watts };

/// "80 GiB", "80GB"; "25 GB/s", "200 Gb/s" (bits); "312 TFLOP/s"; "5 us". Prefixes of bits, bytes and operations are
/// powers of 1000, KiB ... of 1024. Nothing if there is no number, no unit or another one. Units that no machine needs
/// are known as well: a value in them is then too large, which says more than that it cannot be read.
std::optional<double> parse_quantity(Quantity quantity, std::string_view text);

/// "\"80 GiB\", \"80 GB\"": the way it is written.
std::string quantity_examples(Quantity quantity);

/// "25 GB/s", "312 TFLOP/s", "5 us", "80 GiB".
std::string quantity_text(Quantity quantity, double value);

}  // namespace espalier

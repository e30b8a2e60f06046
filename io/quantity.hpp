// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace espalier {

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

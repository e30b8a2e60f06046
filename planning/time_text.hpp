// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace espalier {

/// "63.9 s", "0.463 s", "1234 s": three digits, or all before the point.
std::string time_text(double seconds);

/// "0.4630 s against 0.4634 s" with the word " against ": as many digits as tell two times apart, from three to seven.
std::string time_text(double seconds, std::string_view word, double others);

}  // namespace espalier

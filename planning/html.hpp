// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace espalier {

/// For text and attributes: & < > " and ' as entities; control characters, and bytes that are no UTF-8, as U+FFFD.
std::string html_escaped(std::string_view text);

}  // namespace espalier

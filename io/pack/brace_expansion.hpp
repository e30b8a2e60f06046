// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// The patterns that bash makes of one with braces, in its order: "{a,b}*" is "a*", "b*", "{08..10}" is "08", "09",
/// "10", "{a..c}" three letters. Braces may be nested. What bash leaves as it is stays: "{a}", "{}", an unpaired brace,
/// a character behind a backslash.
/// @throws Error (data) for more than a hundred thousand
std::vector<std::string> expand_braces(const std::string& pattern);

}  // namespace espalier

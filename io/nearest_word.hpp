// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier {

/// The candidate nearest to `word`: the first that begins with it, else by edits (transpositions count one, capitals
/// none); "" if none is near.
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

/// What to do about a name that is none of these: "did you mean a100-40?"; `otherwise` where none is near.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         const std::string& otherwise = "");

}  // namespace espalier

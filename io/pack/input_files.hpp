// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/file.hpp"

namespace espalier {

/// Files named by paths and shell patterns, as canonical paths, sorted; a file reached by several names
/// (patterns, symbolic or hard links) comes once.
///
/// `exclude` are patterns, too. One without a slash ("*.dat") is of file names, as given or as they are behind links.
/// One that leads to files, or to a directory above them, is of paths ("corpus/held_out/*"). Hard links to an excluded
/// file are excluded along with it.
/// A directory stands for all files in it and below, but for those whose names begin with a dot. Where "-", standard
/// input, is among the patterns, all come as they are.
/// @throws Error (data) for a path that is missing and a pattern of either kind without a match (all of them named).
std::vector<Path> expand_inputs(const std::vector<std::string>& patterns, const std::vector<std::string>& exclude = {});

/// The token files that an entry of a config names: itself, or sorted those that it matches as a pattern of the
/// shell's. Of Megatron's pairs comes the .bin. @throws Error (data) for a pattern without a match.
std::vector<std::string> expand_token_files(const std::string& entry);

/// A name as a pattern that matches it alone.
std::string as_pattern(const std::string& name);

/// The patterns that bash makes of one with braces, in its order: "{a,b}*" is "a*", "b*", "{08..10}" is "08", "09",
/// "10", "{a..c}" three letters. Braces may be nested. What bash leaves as it is stays: "{a}", "{}", an unpaired brace,
/// a character behind a backslash.
/// @throws Error (data) for more than a hundred thousand
std::vector<std::string> expand_braces(const std::string& pattern);

}  // namespace espalier

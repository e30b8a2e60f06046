// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <random>
#include <string>

#include "io/file.hpp"

// Ways to damage or forge a file. The same seed makes the same file again.

namespace espalier::test {

using Random = std::mt19937_64;

/// How a file is written, so that mutations reach what lies behind its syntax.
enum class FileKind { json, json_lines, manifest, toml, binary };

struct Mutation {
  std::string text;            ///< what was done: "state.step = -5, sealed"
  bool must_be_found = false;  ///< nothing that reads the file may take it for whole
};

/// Changes the file in one way out of many. `others`: a directory whose files may take its place.
Mutation mutate(const Path& file, FileKind kind, const Path& others, Random& random);

}  // namespace espalier::test

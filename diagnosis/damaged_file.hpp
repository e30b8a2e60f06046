// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "core/error.hpp"
#include "io/file.hpp"

namespace espalier {

/// A file of a run directory that cannot be what `espalier train` wrote. @param where file, and line where there is one
[[noreturn]] inline void throw_damaged(
    const std::string& where, const std::string& what, const std::string& got,
    const std::string& wanted = "a file as this version of `espalier train` writes it (docs/running.md)",
    const std::string& todo =
        "take the file from a copy; one of another version of Espalier: read it with that version") {
  throw Error(ExitCode::data, {.what = what, .where = where, .got = got, .wanted = wanted, .todo = todo});
}

/// The text of a file of a run directory. @throws Error (data), as throw_damaged(), where it cannot be read or has more
/// bytes than `most`.
std::string read_run_file(const Path& path, std::size_t most);

/// The same as JSON. @throws Error (data) with line and column where it is none.
nlohmann::json read_run_json(const Path& path);

}  // namespace espalier

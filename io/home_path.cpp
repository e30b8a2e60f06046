// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/home_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "core/error.hpp"

namespace espalier {

std::string expand_home(const std::string& path) {
  const std::size_t slash = std::min(path.find('/'), path.size());
  if (path.starts_with("$"))
    throw Error(ExitCode::usage,
                {.what = "a path begins with a variable, but only a shell replaces variables",
                 .got = path,
                 .wanted = "a path, or ~/... for your home",
                 .todo = fmt::format("let the shell replace it (no single quotes), or write ./{}", path)});
  if (!path.starts_with('~') || (slash == path.size() && path != "~"))
    return path;  // "~draft.txt" is a name like another
  const auto refuse = [&](const char* what, std::string wanted) {
    throw Error(ExitCode::usage, {.what = what,
                                  .got = path,
                                  .wanted = std::move(wanted),
                                  .todo = fmt::format("write the whole path, or ./{} for a directory named {}", path,
                                                      path.substr(0, slash))});
  };
  if (slash > 1)
    refuse("a path begins with the home of another user", "a path, or ~/... for your own home");
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home == '\0')
    refuse("a path begins with ~, but there is no home", "the home directory in the variable HOME");
  return home + path.substr(1);
}

}  // namespace espalier

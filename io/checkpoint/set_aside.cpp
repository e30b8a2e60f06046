// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/set_aside.hpp"

#include <cerrno>
#include <cstdio>

namespace espalier {

Path name_aside(const Path& path, const std::string& extension) {
  const std::string whole = path.string();
  const std::string stem = whole.substr(0, whole.size() - extension.size());
  Path aside = stem + ".abandoned" + extension;
  for (int i = 2; std::filesystem::exists(std::filesystem::symlink_status(aside)); ++i)
    aside = stem + ".abandoned-" + std::to_string(i) + extension;
  return aside;
}

Path set_aside(const Path& path, const std::string& extension) {
  Path aside = name_aside(path, extension);
  if (::rename(path.c_str(), aside.c_str()) != 0)
    throw_write_error("cannot rename what an earlier launch has left", path, errno);
  return aside;
}

Path set_aside_if_any(const Path& path, const std::string& extension) {
  std::error_code error;
  const auto status = std::filesystem::symlink_status(path, error);
  const bool is_kind = std::filesystem::is_regular_file(status) || std::filesystem::is_directory(path, error);
  return is_kind && !std::filesystem::is_empty(path, error) ? set_aside(path, extension) : Path();
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/own_output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace espalier {
namespace {

constexpr std::size_t bytes_looked_at = std::size_t{1} << 20;

bool has_mark(std::string_view text, const OutputMark& mark) {
  return text.starts_with(mark.begin) && text.find(mark.part) != std::string_view::npos;
}

}  // namespace

Path followed(const Path& path) {
  constexpr int max_links = 40;  // as many as Linux follows
  Path target = path;
  std::error_code error;
  for (int links = 0; std::filesystem::is_symlink(std::filesystem::symlink_status(target, error)); ++links) {
    if (links == max_links)
      throw_write_error("a path has links that lead in a circle", path, ELOOP);
    const Path next = std::filesystem::read_symlink(target, error);
    if (error)
      throw_write_error("a link cannot be followed", path, error.value());
    target = target.parent_path() / next;
  }
  return target;
}

bool is_own_output(const Path& path, const OutputMark& mark) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return false;
  const InputFile file(path, ExitCode::write);
  std::string text(std::min(file.size(), bytes_looked_at), '\0');
  file.read_at(0, text.data(), text.size());
  return has_mark(text, mark);
}

void require_own_output(const Path& path, const OutputMark& mark) {
  const auto refuse = [&](std::string got) {
    throw Error(ExitCode::write, {.what = "the output would replace a file that Espalier did not write",
                                  .where = path.string(),
                                  .got = std::move(got),
                                  .wanted = fmt::format("a new name, or {} to replace", mark.kind),
                                  .todo = "choose another name, or move the existing file away"});
  };
  if (path == "-")
    throw Error(ExitCode::usage, {.what = "the output is named -, but this command cannot write to standard output",
                                  .got = "-",
                                  .wanted = "the name of a file",
                                  .todo = "give a file name; ./- is a file with the name -"});
  if (path.filename().empty())
    throw_write_error("the output has the name of a directory", path, EISDIR);
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) {
    const Path directory = followed(path).parent_path();
    if (::access(directory.empty() ? "." : directory.c_str(), W_OK) != 0)
      throw_write_error("cannot create a file", path, errno);
    return;
  }
  if (std::filesystem::is_directory(status))
    throw_write_error("the output has the name of a directory", path, EISDIR);
  if (!std::filesystem::is_regular_file(status))
    refuse("a device, a pipe or a socket");
  if (std::filesystem::file_size(path, error) > 0 && !is_own_output(path, mark))
    refuse("a file of another kind");
}

void write_output(const Path& path, const OutputMark& mark, std::string_view text) {
  ESPALIER_ASSERT(has_mark(text, mark), fmt::format("this is not {}", mark.kind));
  require_own_output(path, mark);
  write_file_atomically(followed(path), text);
}

}  // namespace espalier

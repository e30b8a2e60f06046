// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/spool_file.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>

namespace espalier {

void SpoolFile::append(std::string_view bytes) {
  if (!file_.is_open()) {
    std::string name = ((directory_.empty() ? Path(".") : directory_) / "espalier-XXXXXX").string();
    file_ = FileDescriptor(::mkostemp(name.data(), O_CLOEXEC));
    if (!file_.is_open())
      throw_write_error("cannot create a temporary file", directory_, errno);
    ::unlink(name.c_str());
  }
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      throw_write_error("cannot write a temporary file", directory_, written < 0 ? errno : ENOSPC);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    size_ += static_cast<Index>(written);
  }
}

void SpoolFile::read_at(Index offset, char* data, std::size_t size) const {
  for (std::size_t done = 0; done < size;) {
    const ssize_t got =
        ::pread(file_.get(), data + done, size - done, static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      throw_write_error("cannot read a temporary file", directory_, got < 0 ? errno : EIO);
    done += static_cast<std::size_t>(got);
  }
}

void SpoolFile::clear() {
  if (file_.is_open() && ::ftruncate(file_.get(), 0) != 0)
    throw_write_error("cannot write a temporary file", directory_, errno);
  size_ = 0;
}

}  // namespace espalier

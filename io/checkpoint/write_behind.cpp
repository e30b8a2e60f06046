// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint/write_behind.hpp"

#include <fcntl.h>

#include <cerrno>

namespace espalier {
namespace {

[[maybe_unused]] constexpr Index step = Index{16} << 20;     // bytes to ask for at a time
[[maybe_unused]] constexpr Index window = Index{128} << 20;  // bytes that may be on their way

}  // namespace

void WriteBehind::wrote([[maybe_unused]] int descriptor, [[maybe_unused]] Index end) {
#ifdef __linux__
  if (end - begun_ < step)
    return;
  ::sync_file_range(descriptor, begun_, end - begun_, SYNC_FILE_RANGE_WRITE);
  begun_ = end;
  const Index size = begun_ - window - taken_;
  if (size <= 0)
    return;
  constexpr unsigned wait = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  // Where the file system knows no ranges, fsync does it all.
  if (::sync_file_range(descriptor, taken_, size, wait) != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT))
    throw_write_error("cannot write a file", path_, errno);
  ::posix_fadvise(descriptor, taken_, size, POSIX_FADV_DONTNEED);
  taken_ += size;
#endif
}

}  // namespace espalier

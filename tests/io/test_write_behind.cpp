// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>

#include <vector>

#include "io/checkpoint/hdf5_file.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

struct Call {
  Index begin;
  Index end;
  bool waits;
};
std::vector<Call> calls;
int errno_of_waits = 0;

}  // namespace

// In the place of libc's: the disk of this machine does not fail when asked to.
extern "C" int sync_file_range(int file, off64_t offset, off64_t size, unsigned flags) {
  const bool waits = (flags & SYNC_FILE_RANGE_WAIT_AFTER) != 0;
  calls.push_back({offset, offset + size, waits});
  if (waits && errno_of_waits != 0) {
    errno = errno_of_waits;
    return -1;
  }
  using Function = int (*)(int, off64_t, off64_t, unsigned);
  static const auto real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "sync_file_range"));
  return real(file, offset, size, flags);
}

namespace {

constexpr Index mib = Index{1} << 20;

// Calls for a file that grows to so many bytes, by a MiB at a time.
std::vector<Call> calls_of(Index size) {
  const TemporaryDirectory directory;
  const Path path = directory / "large";
  write_bytes(path, "");
  const int file = ::open(path.c_str(), O_WRONLY);
  EXPECT_GE(file, 0);
  calls.clear();
  WriteBehind behind(path);
  for (Index end = mib; end <= size; end += mib)
    behind.wrote(file, end);
  ::close(file);
  return calls;
}

TEST(WriteBehind, small_files_are_left_to_fsync) { EXPECT_TRUE(calls_of(15 * mib).empty()); }

TEST(WriteBehind, each_byte_is_asked_for_once_and_waited_for_once) {
  Index begun = 0;
  Index taken = 0;
  for (const Call& call : calls_of(400 * mib)) {
    EXPECT_EQ(call.begin, call.waits ? taken : begun);
    (call.waits ? taken : begun) = call.end;
    EXPECT_LE(taken, begun - 128 * mib < 0 ? 0 : begun - 128 * mib) << "what was just begun is not waited for";
  }
  EXPECT_EQ(begun, 400 * mib);
  EXPECT_EQ(taken, 272 * mib);
}

// The kernel tells of a failed write once: to whoever waits for it.
TEST(WriteBehind, what_the_disk_did_not_take_is_an_error) {
  for (const int number : {EIO, ENOSPC, EDQUOT}) {
    errno_of_waits = number;
    expect_error(ExitCode::write, {"large", fmt::format("errno {}", number)}, [] { calls_of(400 * mib); });
  }
  errno_of_waits = ESPIPE;  // a file system without ranges
  EXPECT_FALSE(calls_of(400 * mib).empty());
  errno_of_waits = 0;
}

TEST(WriteBehind, checkpoint_files_are_written_so) {
  const TemporaryDirectory directory;
  const std::vector<float> values(static_cast<std::size_t>(10 * mib), 1.5F);
  const std::vector<Index> shape{10 * mib};
  Hdf5Writer file(directory / "a.h5");
  calls.clear();
  for (int i = 0; i < 5; ++i)
    file.write(fmt::format("tensor-{}", i), ScalarType::fp32, shape, values.data());
  EXPECT_EQ(calls.size(), 5u + 2) << "200 MiB in pieces of 40, of which 128 may be on their way";
  errno_of_waits = EIO;
  expect_error(ExitCode::write, {"a.h5", "errno 5"},
               [&] { file.write("more", ScalarType::fp32, shape, values.data()); });
  errno_of_waits = 0;
}

}  // namespace

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "io/checkpoint/npy_file.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

TEST(NpyFile, HasTheBytesOfNumPyFormat1) {
  const TemporaryDirectory directory;
  const Path path = directory / "a.npy";
  NpyWriter writer(path, 2, 3);
  writer.append(std::vector<float>{1, 2, 3, 4});
  writer.append(std::vector<float>{5, -6});
  EXPECT_FALSE(std::filesystem::exists(path)) << "it is not complete";
  writer.finish();
  const std::string bytes = read_bytes(path);
  ASSERT_EQ(bytes.size(), 256U + 6 * 4);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ(static_cast<unsigned char>(bytes[8]) + 256 * static_cast<unsigned char>(bytes[9]), 246);
  const std::string header = bytes.substr(10, 246);
  const std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  EXPECT_EQ(header, dictionary + std::string(245 - dictionary.size(), ' ') + "\n");
  std::vector<float> values(6);
  std::memcpy(values.data(), bytes.data() + 256, 24);
  EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4, 5, -6}));
}

TEST(NpyFile, ReplacesItsOwnKindAlone) {
  const TemporaryDirectory directory;
  const Path path = directory / "a.npy";
  for (int times = 0; times < 2; ++times) {
    require_own_output(path, npy_file_mark);
    NpyWriter writer(path, 1, 1);
    writer.append(std::vector<float>{static_cast<float>(times)});
    writer.finish();
  }
  EXPECT_TRUE(is_own_output(path, npy_file_mark));
  // The same array as NumPy saves it.
  std::string of_numpy = "\x93NUMPY\x01";
  of_numpy += std::string("\0v\0", 3) + "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }";
  of_numpy += std::string(127 - of_numpy.size(), ' ') + "\n" + std::string(4, '\0');
  write_bytes(path, of_numpy);
  expect_error(ExitCode::write, {"did not write"}, [&] { require_own_output(path, npy_file_mark); });
}

TEST(NpyFile, UnfinishedLeavesNothing) {
  const TemporaryDirectory directory;
  {
    NpyWriter writer(directory / "a.npy", 4, 4);
    writer.append(std::vector<float>{1, 2});
    EXPECT_TRUE(std::filesystem::exists(partial_file_path(directory / "a.npy")));
    EXPECT_THROW(writer.append(std::vector<float>(15)), std::exception) << "one more than it has";
    EXPECT_THROW(writer.finish(), std::exception);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory / "."));
}

}  // namespace

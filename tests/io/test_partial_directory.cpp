// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <optional>

#include "io/checkpoint/partial_directory.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;
namespace fs = std::filesystem;

namespace {

class PartialDirectoryTest : public testing::Test {
 protected:
  Path output() const { return folder_ / "deep" / "output"; }
  Path partial() const { return folder_ / "deep" / "output.espalier.partial"; }
  static void write(const Path& directory) { write_file_atomically(directory / "file", "text"); }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_ / "."), fs::directory_iterator()));
  }

  TemporaryDirectory folder_;
};

TEST_F(PartialDirectoryTest, HasItsNameWhenItIsPublished) {
  {
    PartialDirectory directory(Path(output()) += "/");
    write(directory.path());
    EXPECT_FALSE(fs::exists(output()));
    directory.publish();
  }
  EXPECT_EQ(read_file(output() / "file", ExitCode::data), "text");
  EXPECT_EQ(std::distance(fs::directory_iterator(output()), fs::directory_iterator()), 1);
  EXPECT_FALSE(fs::exists(partial()));
  expect_error(ExitCode::usage, {"a folder with files"}, [&] { PartialDirectory again(output()); });
}

TEST_F(PartialDirectoryTest, LeavesNothingWithoutThat) {
  {
    const PartialDirectory directory(output());
    write(directory.path());
  }
  EXPECT_EQ(entries(), 0U) << "its parents are gone, too";
}

TEST_F(PartialDirectoryTest, KeepsAnEmptyDirectoryThatStoodThere) {
  fs::create_directories(output());
  fs::permissions(output(), fs::perms::owner_all);
  struct stat before = {}, after = {};
  ASSERT_EQ(::stat(output().c_str(), &before), 0);
  for (const bool publish : {false, true}) {
    {
      PartialDirectory directory(output());
      write(directory.path());
      if (publish)
        directory.publish();
    }
    ASSERT_EQ(::stat(output().c_str(), &after), 0);
    EXPECT_EQ(after.st_ino, before.st_ino);
    EXPECT_EQ(fs::is_empty(output()), !publish);
  }
}

TEST_F(PartialDirectoryTest, ReplacesWhatAKilledOneHasLeft) {
  fs::create_directories(partial() / "half");
  write(partial());
  PartialDirectory directory(output());
  EXPECT_TRUE(fs::is_empty(partial()));
  directory.publish();
  EXPECT_TRUE(fs::is_empty(output()));
}

TEST_F(PartialDirectoryTest, HasOneWriterAtATime) {
  std::optional<PartialDirectory> first(output());
  write(first->path());
  expect_error(ExitCode::write, {"another process is writing this directory"},
               [&] { PartialDirectory second(output()); });
  EXPECT_TRUE(fs::exists(first->path() / "file"));
  first.reset();
  PartialDirectory(output()).publish();
}

TEST_F(PartialDirectoryTest, RefusesFilesAndLinksThatLeadNowhere) {
  fs::create_directories(output().parent_path());
  fs::create_symlink("nowhere", output());
  expect_error(ExitCode::usage, {"a file or a link"}, [&] { PartialDirectory directory(output()); });
  fs::remove(output());
  fs::create_directory(output().parent_path() / "target");
  fs::create_symlink("target", output());
  PartialDirectory(output()).publish();
  EXPECT_TRUE(fs::is_symlink(output()) && fs::is_directory(output())) << "what a link leads to is filled";
}

}  // namespace

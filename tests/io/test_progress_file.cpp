// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0

#include "io/records/progress_file.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

struct Place {
  std::int64_t step = 0;
  std::int32_t peer = 0;
  std::int32_t sequence = 0;
};

TEST(ProgressFile, survives_a_killed_process) {
  const TemporaryDirectory directory;
  WaitingProcess child([&] {
    auto file = std::make_unique<ProgressFile>(directory.path(), 3, sizeof(Place));
    Place& place = file->as<Place>();
    for (int step = 1; step <= 1000; ++step)
      place = {step, step + 1, step + 2};
    return file;
  });
  child.kill();
  const std::vector<StoredProgress> stored = read_progress_files(directory.path());
  ASSERT_EQ(stored.size(), 1u);
  EXPECT_EQ(stored[0].rank, 3);
  const std::optional<Place> place = stored[0].as<Place>();
  ASSERT_TRUE(place);
  EXPECT_EQ(place->step, 1000);
  EXPECT_EQ(place->peer, 1001);
  EXPECT_EQ(place->sequence, 1002);
  EXPECT_FALSE(stored[0].as<int>()) << "another size is another type";
}

TEST(ProgressFile, is_replaced_and_removed) {
  const TemporaryDirectory directory;
  const ProgressFile old(directory.path(), 0, sizeof(Place));
  old.as<Place>().step = 1;
  ProgressFile file(directory.path(), 0, sizeof(Place));
  EXPECT_EQ(file.as<Place>().step, 0) << "starts as zeros";
  file.as<Place>().step = 2;
  old.as<Place>().step = 3;  // no longer anybody's
  EXPECT_EQ(read_progress_files(directory.path()).at(0).as<Place>()->step, 2);
  EXPECT_THROW(file.as<int>(), std::logic_error);
  file.as<Place>().step = 4;
  EXPECT_EQ(read_progress_files(directory.path()).at(0).as<Place>()->step, 4);
  file.remove();
  EXPECT_TRUE(read_progress_files(directory.path()).empty());
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(ProgressFile, reading_sorts_by_rank_and_passes_over_rubbish) {
  const TemporaryDirectory directory;
  for (const int rank : {100000, 2, 11, 0})
    ProgressFile(directory.path(), rank, sizeof(Place)).as<Place>().step = rank;
  const std::string good = read_bytes(directory / "rank-00002.position");
  write_bytes(directory / "rank-00003.position", good);  // another rank's
  write_bytes(directory / "rank-00004.position", good.substr(0, good.size() - 1));
  write_bytes(directory / "rank-00005.position", good.substr(0, 20));
  write_bytes(directory / "rank-00006.position", "");
  write_bytes(directory / "rank-00007.position", std::string(good.size(), 'x'));
  write_bytes(directory / "rank-00008.position.partial", good);
  write_bytes(directory / "rank-2.position", good);
  write_bytes(directory / "rank-.position", good);
  write_bytes(directory / "x", good);
  std::filesystem::create_symlink(directory / "rank-00002.position", directory / "rank-00009.position");
  std::filesystem::create_directory(directory / "rank-00010.position");
  std::vector<int> ranks;
  for (const StoredProgress& progress : read_progress_files(directory.path())) {
    ranks.push_back(progress.rank);
    EXPECT_EQ(progress.as<Place>()->step, progress.rank);
  }
  EXPECT_EQ(ranks, (std::vector<int>{0, 2, 11, 100000}));
  remove_progress_files(directory.path());
  EXPECT_TRUE(read_progress_files(directory.path()).empty());
  EXPECT_TRUE(std::filesystem::exists(directory / "x")) << "what is not ours stays";
  EXPECT_TRUE(read_progress_files(directory / "none").empty());
}

TEST(ProgressFile, a_place_that_cannot_be_written_is_an_error) {
  const TemporaryDirectory directory;
  expect_error(ExitCode::write, {"none/rank-00000.position"},
               [&] { ProgressFile(directory / "none", 0, sizeof(Place)); });
  std::filesystem::create_symlink(directory / "elsewhere", directory / "rank-00001.position");
  const ProgressFile file(directory.path(), 1, sizeof(Place));  // replaces the link, never follows it
  EXPECT_FALSE(std::filesystem::exists(directory / "elsewhere"));
}

}  // namespace

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_manifest.hpp"
#include "io/checkpoint/hdf5_file.hpp"
#include "tests/io/checkpoint_support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

// Opens, verifies, and reads: what a resume does.
ExitCode try_to_load(const Path& path) {
  try {
    CheckpointReader(path).verify();
    return loads(path, Model()) ? ExitCode::ok : ExitCode::numerical;
  } catch (const Error& error) {
    EXPECT_FALSE(error.report().where.empty());
    return error.code();
  }
}

}  // namespace

TEST(CheckpointFaults, truncation_at_any_place_is_refused) {
  const TemporaryDirectory directory;
  const Path path = save(directory / "c", 1);
  for (const char* const name : {"manifest.json", "rank-00000.h5"}) {
    const std::string good = read_bytes(path / name);
    for (std::size_t i = 0; i < 50; ++i) {
      write_bytes(path / name, good.substr(0, good.size() * i / 50));
      EXPECT_EQ(try_to_load(path), ExitCode::checkpoint) << name << " " << i;
      EXPECT_FALSE(find_checkpoints(directory / "c").at(0).complete);
    }
    std::filesystem::remove(path / name);
    EXPECT_EQ(try_to_load(path), ExitCode::checkpoint);
    write_bytes(path / name, good);
    EXPECT_EQ(try_to_load(path), ExitCode::ok);
  }
}

TEST(CheckpointFaults, every_flipped_bit_is_refused) {
  const TemporaryDirectory directory;
  const Path path = save(directory / "c", 1);
  std::mt19937 random(1);
  for (const char* const name : {"manifest.json", "rank-00000.h5"}) {
    const std::string good = read_bytes(path / name);
    for (int trial = 0; trial < 1000; ++trial) {
      std::string bad = good;
      const std::size_t at = std::uniform_int_distribution<std::size_t>(0, good.size() - 1)(random);
      bad[at] = static_cast<char>(bad[at] ^ (1 << (trial % 8)));
      write_bytes(path / name, bad);
      EXPECT_EQ(try_to_load(path), ExitCode::checkpoint) << name << " byte " << at;
    }
    write_bytes(path / name, good);
  }
}

TEST(CheckpointFaults, damaged_data_are_named) {
  const TemporaryDirectory directory;
  const Path path = save(directory / "c", 1);
  std::string bytes = read_bytes(path / "rank-00000.h5");
  const StoredBlock block = parse_manifest(read_bytes(path / manifest_name), path).blocks.at(0);
  bytes[static_cast<std::size_t>(block.extent.offset) + 5] ^= 1;
  write_bytes(path / "rank-00000.h5", bytes);
  const CheckpointReader reader(path);
  std::vector<double> bias(3);
  reader.read("weights/h.0.bias", {3}, ScalarType::fp64, bias.data());  // another tensor is still good
  float part = 0;
  expect_error(ExitCode::checkpoint, {"rank-00000.h5: dataset weights/h.0.weight/block-0", "damaged", "XXH3-128"}, [&] {
    reader.read("weights/h.0.weight", {3, 5}, {1, 1}, ScalarType::fp32, &part);
  });
}

TEST(CheckpointFaults, files_of_two_checkpoints_do_not_mix) {
  const TemporaryDirectory directory;
  const Path one = save(directory / "c", 1, Model(0));
  const Path two = save(directory / "c", 2, Model(100));
  std::filesystem::copy_file(two / "rank-00000.h5", one / "rank-00000.h5",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(try_to_load(one), ExitCode::checkpoint);
  std::filesystem::rename(one, directory / "c/step-00000003");
  EXPECT_EQ(find_checkpoints(directory / "c").at(0).reason, "its manifest is of step 1");
}

TEST(CheckpointFaults, a_full_disk_fails_the_save_and_nothing_else) {
  const TemporaryDirectory directory;
  const std::vector<float> large(1 << 20);
  save(directory / "c", 1);
  for (const rlim_t bytes : {0, 1, 100, 1000, 2000, 5000, 100000, 1 << 20, 4 << 20}) {
    const FileSizeLimit limit(bytes);
    const TensorBlock block = whole_tensor("large", ScalarType::fp32, {1 << 20}, large.data());
    expect_error(ExitCode::write, {"step-00000002.partial", "File too large (errno 27)"}, [&] {
      save_checkpoint(directory / "c", info_of(2), {&block, 1});
    });
    EXPECT_EQ(names_in(directory / "c"), (std::vector<std::string>{"step-00000001"}));
  }
  EXPECT_EQ(try_to_load(directory / "c/step-00000001"), ExitCode::ok);
  save(directory / "c", 2);
  EXPECT_EQ(try_to_load(directory / "c/step-00000002"), ExitCode::ok);
}

// HDF5 1.10 crashes when a file is closed again after that.
TEST(CheckpointFaults, a_close_that_failed_is_not_tried_again) {
  const TemporaryDirectory directory;
  const Path path = directory / "rank-00000.h5";
  {
    Hdf5Writer file(path);
    file.write("weight", ScalarType::fp32, {4, 6}, Model().weight.data());
    const FileSizeLimit limit(0);  // gone before the writer
    expect_error(ExitCode::write, {"cannot close", "rank-00000.h5", "File too large (errno 27)"},
                 [&] { file.close(); });
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(CheckpointFaults, without_room_only_what_can_help_is_advised) {
  const TemporaryDirectory directory;
  const auto advice = [&](const KeptCheckpoints& kept) {
    return caught([&] { begin_checkpoint(directory / "c", 1, Index{1} << 60, kept); }).report().todo;
  };
  EXPECT_EQ(advice({}).find("keep_"), std::string::npos) << "already at their least: " << advice({});
  EXPECT_EQ(advice({2, 100}).find("keep_last"), std::string::npos) << advice({2, 100});
  EXPECT_NE(advice({2, 100}).find("checkpoint.keep_every = 0 (now 100)"), std::string::npos) << advice({2, 100});
  EXPECT_EQ(advice({5, 0}).find("keep_every"), std::string::npos) << advice({5, 0});
  EXPECT_NE(advice({5, 0}).find("checkpoint.keep_last = 2 (now 5)"), std::string::npos) << advice({5, 0});
}

TEST(CheckpointFaults, unwritable_and_planted_places) {
  const TemporaryDirectory directory;
  write_bytes(directory / "victim", "precious");
  write_bytes(directory / "file", "x");
  expect_error(ExitCode::write, {"file"}, [&] { save(directory / "file", 1); });
  const Path partial = begin_checkpoint(directory / "c", 1);
  std::filesystem::create_symlink(directory / "victim", partial / "rank-00000.h5");
  expect_error(ExitCode::write, {"rank-00000.h5"}, [&] { write_shard(partial, own_file(0), Model().blocks()); });
  std::filesystem::create_directory(directory / "d");
  std::filesystem::create_directory_symlink(directory / "d", directory / "c/step-00000002.partial");
  write_bytes(directory / "d/keep", "me");
  save(directory / "c", 2);
  EXPECT_EQ(read_bytes(directory / "victim"), "precious");
  EXPECT_EQ(read_bytes(directory / "d/keep"), "me");
  EXPECT_EQ(names_in(directory / "c"), (std::vector<std::string>{"step-00000002"}));
}

TEST(CheckpointFaults, a_save_killed_at_any_moment_loses_no_checkpoint) {
  const TemporaryDirectory directory;
  const Path checkpoints = directory / "c";
  save(checkpoints, 1);
  std::mt19937 random(2);
  Index newest = 1;
  int kills = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (Index step = newest + 1;; ++step) {
        save(checkpoints, step);
        prune_checkpoints(checkpoints, {.last = 2});
      }
    }
    ::usleep(std::uniform_int_distribution<useconds_t>(500, 15000)(random));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ++kills;
    Index found = 0;
    for (const CheckpointEntry& entry : find_checkpoints(checkpoints)) {
      EXPECT_EQ(entry.complete, entry.path.extension() != ".partial") << entry.path << ": " << entry.reason;
      if (entry.complete) {
        EXPECT_EQ(try_to_load(entry.path), ExitCode::ok);
        found = std::max(found, entry.step);
      }
    }
    EXPECT_GE(found, newest);
    newest = found;
  }
  save(checkpoints, newest + 1);
  prune_checkpoints(checkpoints, {.last = 2});
  EXPECT_EQ(names_in(checkpoints).size(), 2u);  // no rubbish
  RecordProperty("kills", kills);
}

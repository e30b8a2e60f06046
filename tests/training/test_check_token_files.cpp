// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "tests/training/tiny_run.hpp"
#include "training/loop/check_token_files.hpp"
#include "training/loop/train_loop.hpp"

namespace espalier::test {
namespace {

// Another token in the middle of the file, of the vocabulary as well: nothing but the checksum can see it.
void damage(const std::string& path) {
  if (world().rank() == 0) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(5000);
    const char token = static_cast<char>(file.get() ^ 1);
    file.seekp(5000);
    file.put(token);
  }
  barrier(world());
}

TEST(CheckTokenFiles, DamageIsFoundByAllRanksAlike) {
  const SharedFolder folder("check_token_files");
  const RunConfig config = tiny_config(folder, world().size());
  EXPECT_NO_THROW(check_token_files(config, world()));
  damage(config.data.train.at(0));
  for (const bool in_validation : {false, true}) {
    RunConfig damaged = config;
    if (in_validation) {
      damaged.data.train = {write_tokens(folder / "sound.bin", 5000, 61)};
      damaged.data.validation = config.data.train;
    }
    try {
      check_token_files(damaged, world());
      ADD_FAILURE() << "rank " << world().rank() << " trains on a damaged file";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_NE(std::string(error.what()).find("damaged token file"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("tokens.bin"), std::string::npos) << error.what();
    }
  }
}

// Below another working directory, or on another host, the same path may be another file.
TEST(CheckTokenFiles, RanksThatSeeOtherFilesAreRefused) {
  const SharedFolder folder("other_files");
  RunConfig config = tiny_config(folder, world().size());
  const std::string other = write_tokens(folder / "other.bin", 5000, 61);
  if (world().size() > 1 && world().rank() == world().size() - 1)
    config.data.train = {other};
  config.data.check_limit = 0;
  if (world().size() == 1) {
    EXPECT_NO_THROW(check_token_files(config, world()));
    return;
  }
  try {
    check_token_files(config, world());
    ADD_FAILURE() << "rank " << world().rank() << " trains on other data";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    for (const char* const part : {"the ranks see different token files", "rank 1 beside rank 0", "5000 tokens"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST(CheckTokenFiles, LargerFilesThanTheLimitAreNotRead) {
  const SharedFolder folder("check_limit");
  RunConfig config = tiny_config(folder, world().size());
  const auto bytes = static_cast<Index>(std::filesystem::file_size(config.data.train.at(0)));
  damage(config.data.train.at(0));
  config.data.check_limit = bytes - 1;
  EXPECT_NO_THROW(check_token_files(config, world()));
  config.data.check_limit = bytes;
  EXPECT_THROW(check_token_files(config, world()), Error);
}

TEST(CheckTokenFiles, TokenBeyondTheVocabularyIsNamed) {
  const SharedFolder folder("vocabulary");
  const RunConfig config = tiny_config(folder, world().size(), {"model.vocab_size=60"});
  try {
    check_token_files(config, world());
    ADD_FAILURE() << "token 60 of a vocabulary of 60 was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_NE(std::string(error.what()).find("tokens.bin"), std::string::npos) << error.what();
  }
}

TEST(CheckTokenFiles, TrainingBeginsWithIt) {
  const SharedFolder folder("training_checks");
  const RunConfig config = tiny_config(folder, world().size());
  damage(config.data.train.at(0));
  const Layout layout = make_run_layout(config, world().size());
  const ProcessMesh mesh(world(), layout.mesh());
  EXPECT_THROW(train(config, {}, layout, mesh, {}, {}), Error);
}

}  // namespace
}  // namespace espalier::test

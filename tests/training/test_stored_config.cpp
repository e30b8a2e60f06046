// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/training/tiny_run.hpp"
#include "training/config/stored_config.hpp"

namespace espalier::test {
namespace {

const std::vector<std::string> given = {"data.train=[\"a.bin\"]", "run.steps=8", "model.num_heads=8"};
RunConfig config() { return parse_run_config("", "test", given, 1); }

// The text without the line of a key.
std::string without(std::string text, const std::string& key) {
  const std::size_t begin = text.find("\n" + key + " = ") + 1;
  return text.erase(begin, text.find('\n', begin) + 1 - begin);
}

TEST(StoredConfig, AgreesWithItself) { EXPECT_TRUE(differences_from(to_toml(config()), config()).empty()); }

TEST(StoredConfig, AKeyThatAnOlderProgramDidNotKnowHadItsDefault) {
  EXPECT_TRUE(differences_from(without(to_toml(config()), "sequence_parallel"), config()).empty());
  const auto differences = differences_from(without(to_toml(config()), "num_heads"), config());
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].key, "model.num_heads");
  EXPECT_EQ(differences[0].old_value + "->" + differences[0].new_value, "->8");
}

TEST(StoredConfig, HasOneModelSection) {
  const std::string section = model_section(to_toml(config()));
  EXPECT_TRUE(section.starts_with("[model]\n")) << section;
  EXPECT_NE(section.find("num_heads = 8"), std::string::npos) << section;
  EXPECT_EQ(section.find("[data]"), std::string::npos) << section;
  EXPECT_EQ(model_section("[run]\nsteps = 1\n"), "");
}

}  // namespace
}  // namespace espalier::test

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <fstream>

#include "tests/io/support.hpp"
#include "training/config/emulation.hpp"

namespace espalier::test {
namespace {

#define EXPECT_CONTAINS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text) << ' '

template <class Action>
std::string usage_error_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

TEST(EmulateKeys, AreNoPartOfAUsersConfig) {
  const TemporaryDirectory folder;
  const std::string config = "[data]\ntrain = [\"train.bin\"]\n[run]\nsteps = 100\n";
  const auto error_of_file = [&](const std::string& text, const std::vector<std::string>& overrides) {
    std::ofstream(folder / "run.toml") << text;
    return usage_error_of([&] { read_run_config(folder / "run.toml", overrides, 1); });
  };
  EXPECT_EQ(error_of_file(config, {}), "");
  const std::string of_section = error_of_file(config + "[emulate]\nforward = 1\nfast_rank = 1\n", {});
  EXPECT_CONTAINS(of_section, "the config has a problem");
  EXPECT_CONTAINS(of_section, "run.toml:5:2: [emulate] is not allowed in a config");
  EXPECT_CONTAINS(of_section, "--emulate");
  EXPECT_CONTAINS(error_of_file(config + "[emulate]\n", {}), "[emulate] is not allowed in a config");
  EXPECT_CONTAINS(error_of_file(config, {"emulate.forward=1"}), "command line: [emulate] is not allowed in a config");
  RunConfig::Emulate slow;
  slow.slow_rank = 0;
  EXPECT_EQ(read_run_config(folder / "run.toml", {}, 1, Libraries::present, slow).emulate, slow);
}

TEST(EmulateKeys, AreReadFromFilesAndSettings) {
  const TemporaryDirectory folder;
  const std::string file = (folder / "emulate.toml").string();
  std::ofstream(file) << "[emulate]\nforward = \"10ms\"\nlatency = 2\n";
  const RunConfig::Emulate emulate = read_emulation({"latency=1", "delay=3", file, "forward=4", "delayed_link=[0,1]"});
  EXPECT_EQ(emulate.latency, 2);
  EXPECT_EQ(emulate.delay, 3);
  EXPECT_EQ(emulate.forward, 4);
  EXPECT_EQ(emulate.delayed_link, (std::vector<Index>{0, 1}));
  std::ofstream(file) << all_emulate_keys(emulate);
  EXPECT_EQ(read_emulation({file}), emulate);
  EXPECT_EQ(read_emulation({}), RunConfig::Emulate{});
  const auto error_of_given = [](const std::string& given) { return usage_error_of([&] { read_emulation({given}); }); };
  EXPECT_CONTAINS(error_of_given("foward=1"), "emulate.foward: unknown key; did you mean \"forward\"?");
  EXPECT_CONTAINS(error_of_given("forward=fast"), "emulate.forward: got");
  EXPECT_CONTAINS(error_of_given((folder / "absent.toml").string()), "absent.toml");
  std::ofstream(file) << "forward = 1\n";
  EXPECT_CONTAINS(error_of_given(file), "forward: is not in any [section]; it belongs in [emulate]");
}

}  // namespace
}  // namespace espalier::test

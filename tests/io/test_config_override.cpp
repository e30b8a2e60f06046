// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Values from a command line, and numbers of configs: each means what it says, or is refused with what to write.
#include <cstdlib>

#include "io/config/toml_config.hpp"
#include "io/home_path.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

struct KeysRead {
  Index steps = -1, tokens = -1;
  double rate = -1, duration = -1;
  bool async = false;
  std::string directory = "default";
  std::vector<std::string> train;
};

// Empty, or what is wrong.
std::string problems_of(const std::string& text, const std::vector<std::string>& overrides, KeysRead& settings) {
  ConfigReader reader(text, "c", overrides);
  reader.read("run", "steps", settings.steps, {.min = 0});
  reader.read_count("run", "tokens", settings.tokens, {.min = 0});
  reader.read_seconds("run", "max_duration", settings.duration, {.min = 0, .max = 1e12});
  reader.read("run", "directory", settings.directory);
  reader.read("optimizer", "learning_rate", settings.rate);
  reader.read("checkpoint", "async", settings.async);
  reader.read("data", "train", settings.train);
  reader.check_unknown();
  std::string lines;
  for (const std::string& line : reader.problems())
    lines += line + "\n";
  return lines;
}

KeysRead read_from(const std::string& override) {
  KeysRead settings;
  EXPECT_EQ(problems_of("", {override}, settings), "") << override;
  return settings;
}

void expect_refused(const std::string& override, const std::string& hint) {
  KeysRead settings;
  const std::string lines = problems_of("", {override}, settings);
  EXPECT_NE(lines.find(hint), std::string::npos) << override << " gives\n" << lines;
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
  EXPECT_EQ(settings.directory, "default");
  EXPECT_EQ(settings.steps, -1);
}

}  // namespace

TEST(ConfigOverride, a_text_is_what_was_typed) {
  EXPECT_EQ(read_from("run.directory=r/c#b").directory, "r/c#b");
  EXPECT_EQ(read_from("run.directory=\"r/c#b\"").directory, "r/c#b") << "within quotes # begins no comment";
  EXPECT_EQ(read_from("run.directory='a=b # c'").directory, "a=b # c");
  EXPECT_EQ(read_from("run.directory=it's \"here\"").directory, "it's \"here\"");
  EXPECT_EQ(read_from("run.directory = \"spaces around\" ").directory, "spaces around");
  EXPECT_EQ(read_from("run.directory=2024-11-26").directory, "2024-11-26");
  EXPECT_EQ(read_from("run.directory=true").directory, "true");
  EXPECT_EQ(read_from("data.train=[\"a,b\", 'c]']").train, (std::vector<std::string>{"a,b", "c]"}));
  EXPECT_EQ(read_from("run.max_duration=01:30:00").duration, 5400);
}

TEST(ConfigOverride, whatever_stands_in_it_a_built_one_reads_back) {
  for (const std::string value :
       {"[x].toml", "\"a\"", "it's", "a#b", "{", "~x", "a\\b", "a\nb\t\x1b", "caf\xc3\xa9", " a "})
    EXPECT_EQ(read_from(override_text("run.directory", value)).directory, value);
}

TEST(ConfigOverride, what_begins_like_toml_is_toml_or_is_refused_with_the_way_to_quote_it) {
  expect_refused("data.train=[inputs/train.bin]", R"(wanted 'data.train=["inputs/train.bin"]')");
  expect_refused("data.train=[a.bin, \"b.bin]", R"(wanted 'data.train=["a.bin", "b.bin"]')");
  expect_refused("data.train=[\"a.bin\" \"b.bin\"]", R"(wanted 'data.train=["a.bin", "b.bin"]')");
  expect_refused("data.train=a.bin,b.bin", R"(wanted 'data.train=["a.bin", "b.bin"]')");
  expect_refused("run.directory=[a]", R"(wanted 'run.directory=["a"]')");
  expect_refused("run.directory=[\"a\"]", "(a list), wanted a string");
  expect_refused("run.directory={a}", R"(wanted 'run.directory="{a}"')");
  expect_refused("run.directory=\"a", R"(wanted 'run.directory="a"')");
  expect_refused("run.directory=\"a\" # b", "is not a TOML value");
  expect_refused("run.directory='it's'", R"(wanted 'run.directory="it'\''s"')");
  expect_refused("run.directory=r/caf\xe9", "not UTF-8");
  expect_refused("run.steps=[1", "wanted 'run.steps=[1]'");
  expect_refused("run.steps=5 # five", "wanted an integer");
  expect_refused("run.steps=5\nrun.steps=6", "wanted an integer");
}

TEST(ConfigOverride, another_spelling_of_a_value_is_told_the_right_one) {
  expect_refused("run.steps=1e5", "got 1e5 (a floating-point number), wanted an integer; write 100000");
  expect_refused("run.steps=\"5\"", "write 5");
  expect_refused("run.steps=10k", "write 10000");
  expect_refused("run.steps=010", "write 10");
  expect_refused("optimizer.learning_rate=.5", "write 0.5");
  expect_refused("optimizer.learning_rate=1e400", "wanted a number");
  expect_refused("checkpoint.async=True", "write true");
  expect_refused("checkpoint.async=0", "write false");
}

TEST(ConfigOverride, other_programs_names_are_known) {
  expect_refused("optimizer.lr=1e-3", "did you mean optimizer.learning_rate?");
  expect_refused("train.max_steps=5", "did you mean run.steps?");
  expect_refused("run.output_dir=x", "did you mean run.directory?");
  KeysRead settings;
  EXPECT_NE(problems_of("lr = 1", {}, settings).find("did you mean optimizer.learning_rate?"), std::string::npos);
}

TEST(ConfigOverride, a_section_written_as_a_list_is_named_as_one) {
  KeysRead settings;
  EXPECT_EQ(problems_of("[[data]]\ntrain = \"a\"\n", {}, settings),
            "c:1:3: [[data]]: is a list of sections, wanted one: [data]\n");
}

TEST(ConfigOverride, numbers_are_in_range_however_they_are_written) {
  for (const char* const value :
       {"0x7fffffffffffffff", "9007199254740993000", "1e300", "inf", "nan", "-inf", "-1", "0x20000000000001"}) {
    KeysRead settings;
    EXPECT_NE(problems_of(std::string("[run]\nmax_duration = ") + value, {}, settings), "") << value;
    EXPECT_EQ(settings.duration, -1) << value;
    EXPECT_NE(problems_of("", {std::string("run.max_duration=") + value}, settings), "") << value;
  }
  KeysRead settings;
  EXPECT_NE(problems_of("[optimizer]\nlearning_rate = inf\n", {}, settings), "");
  EXPECT_EQ(problems_of("[run]\nmax_duration = 0x10\ntokens = 0x20000000000001\n", {}, settings), "");
  EXPECT_EQ(settings.duration, 16);
  EXPECT_EQ(settings.tokens, 0x20000000000001) << "exact beyond 2^53";
}

TEST(ConfigOverride, paths_at_home_are_what_a_shell_makes_of_them) {
  const std::string home = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
  ASSERT_EQ(::setenv("HOME", "/home/of mine", 1), 0);
  EXPECT_EQ(read_from("run.directory=~/x").directory, "/home/of mine/x");
  EXPECT_EQ(read_from("data.train=[\"~/x\", \"y/~/z\"]").train, (std::vector<std::string>{"/home/of mine/x", "y/~/z"}));
  EXPECT_EQ(expand_home("~"), "/home/of mine");
  EXPECT_EQ(expand_home("~draft"), "~draft");
  expect_refused("run.directory=~other/x", "./~other/x");
  ::setenv("HOME", "/caf\xe9", 1);
  expect_refused("run.directory=~/x", "UTF-8");
  ::unsetenv("HOME");
  expect_refused("run.directory=~/x", "HOME");
  ::setenv("HOME", home.c_str(), 1);
}

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "io/config/toml_config.hpp"
#include "io/nearest_word.hpp"
#include "io/units.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

struct Settings {
  Index micro_batch_size = 1, global_batch_size = 8, tokens = 0, memory = 0;
  double learning_rate = 1e-3, time = 0;
  bool tied = true;
  std::string directory = "runs/default", schedule = "cosine";
  std::vector<Index> layers = {};
};

void read_all(ConfigReader& reader, Settings& settings) {
  reader.read("batch", "micro_batch_size", settings.micro_batch_size, {.min = 1});
  reader.read("batch", "global_batch_size", settings.global_batch_size, {.min = 1, .max = 1000});
  reader.read("optimizer", "learning_rate", settings.learning_rate, {.min = 0, .min_open = true});
  reader.read("optimizer", "schedule", settings.schedule, {"cosine", "linear", "constant"});
  reader.read("model", "tied_embeddings", settings.tied);
  reader.read("run", "directory", settings.directory);
  reader.read_count("run", "tokens", settings.tokens, {.min = 1});
  reader.read_seconds("run", "time", settings.time);
  reader.read_bytes("run", "device_memory", settings.memory);
  reader.read("parallel", "layers_per_stage", settings.layers, {.min = 1});
}

}  // namespace

TEST(TomlConfig, reads_values_and_where_they_come_from) {
  ConfigReader reader(
      R"([batch]
micro_batch_size = 4
[optimizer]
learning_rate = 1
schedule = "linear"
[model]
tied_embeddings = false
[run]
tokens = "1.5B tokens"
time = "1h30m"
device_memory = "2 GiB"
[parallel]
layers_per_stage = [3, 4]
)",
      "run.toml",
      {"batch.global_batch_size=32", "run.directory=runs/a b", "run.tokens=64M", "optimizer.learning_rate=3e-4"});
  Settings settings;
  read_all(reader, settings);
  reader.finish();
  EXPECT_EQ(settings.micro_batch_size, 4);
  EXPECT_EQ(settings.global_batch_size, 32);
  EXPECT_EQ(settings.learning_rate, 3e-4);
  EXPECT_EQ(settings.schedule, "linear");
  EXPECT_FALSE(settings.tied);
  EXPECT_EQ(settings.directory, "runs/a b");
  EXPECT_EQ(settings.tokens, 64000000);
  EXPECT_EQ(settings.time, 5400);
  EXPECT_EQ(settings.memory, Index{2} << 30);
  EXPECT_EQ(settings.layers, (std::vector<Index>{3, 4}));
}

TEST(TomlConfig, all_problems_are_reported_at_once) {
  ConfigReader reader(R"(seed = 3
[batch]
micro_batchsize = 4
global_batch_size = "eight"
[optimiser]
learning_rate = 1e-3
[optimizer]
learning_rate = -1.0
schedule = "cosin"
tokens = 5
[parallel]
layers_per_stage = [3, 0]
)",
                      "run.toml",
                      {"model.tied_embeddings=yes", "batch.micro_batch_size=0", "nonsense", "run.time=soon"});
  Settings settings;
  read_all(reader, settings);
  reader.problem("batch", "global_batch_size", "not divisible by 3");
  reader.problem("run", "steps", "needs a value");
  const Error error = caught([&] { reader.finish(); });
  EXPECT_EQ(error.code(), ExitCode::usage);
  EXPECT_EQ(error.report().what, R"(the config has 13 problems
  run.toml:1:1: seed: is not in any [section]
  run.toml:3:1: batch.micro_batchsize: unknown key; did you mean "micro_batch_size"?
  run.toml:4:21: batch.global_batch_size: got "eight" (a string), wanted an integer
  run.toml:5:2: [optimiser]: unknown section; did you mean "optimizer"?
  run.toml:8:17: optimizer.learning_rate: got -1, wanted more than 0
  run.toml:9:12: optimizer.schedule: got "cosin", wanted one of "cosine", "linear", "constant"; did you mean "cosine"?
  run.toml:10:1: optimizer.tokens: unknown key; it belongs in [run]
  run.toml:12:20: parallel.layers_per_stage: got 0 at place 2, wanted at least 1
  run.toml: run.steps: needs a value
  command line: model.tied_embeddings: got "yes" (a string), wanted true or false; write true
  command line: batch.micro_batch_size: got 0, wanted at least 1
  command line: nonsense: wanted section.key=value
  command line: run.time: got "soon" (a string), wanted a duration, like "90s", "2h" or "01:30:00")");
  EXPECT_EQ(settings.global_batch_size, 8);  // wrong values leave the variable alone
}

TEST(TomlConfig, types_are_strict) {
  Settings settings;
  ConfigReader reader(
      "[batch]\nmicro_batch_size = 1.5\nglobal_batch_size = true\n[model]\ntied_embeddings = "
      "1\n[run]\ndirectory = 7\ntokens = -3\n",
      "c", {"run.directory=2024", "optimizer.learning_rate=fast", "parallel.layers_per_stage=[1,\"a\"]"});
  read_all(reader, settings);
  EXPECT_EQ(settings.directory, "2024");  // an override needs no quotes to be a string
  const std::string text = caught([&] { reader.finish(); }).what();
  for (const char* const part : {"got 1.5 (a number with a fraction), wanted an integer", "got true (a boolean)",
                                 "got 1 (an integer), wanted true or false", "got -3, wanted at least 1",
                                 "got \"fast\" (a string), wanted a number", "a list of integers"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " not in\n" << text;
  ConfigReader second("[run]\ndirectory = 7\n", "c", {});
  read_all(second, settings);
  expect_error(ExitCode::usage,
               {"the config has a problem", "c:2:13: run.directory: got 7 (an integer), wanted a string"},
               [&] { second.finish(); });
  double nan = 1;
  ConfigReader third("[a]\nx = nan\n", "c", {});
  third.read("a", "x", nan);
  EXPECT_TRUE(third.has_problems());
}

TEST(TomlConfig, syntax_errors_have_a_position) {
  expect_error(ExitCode::usage, {"run.toml:2:", "not valid TOML"},
               [] { ConfigReader("[a]\nb = = 3\n", "run.toml", {}); });
  expect_error(ExitCode::usage, {"run.toml:3:"}, [] { ConfigReader("[a]\nb = 1\nb = 2\n", "run.toml", {}); });
  expect_error(ExitCode::usage, {"file not found", "absent.toml"}, [] { ConfigReader("absent.toml", {}); });
}

TEST(TomlConfig, syntax_errors_show_the_line) {
  const ErrorReport report = caught([] { ConfigReader("[a]\nmemory = 80 GiB\n", "c.toml", {}); }).report();
  EXPECT_EQ(report.where, "c.toml:2:13");
  EXPECT_EQ(report.got, "memory = 80 GiB");
  EXPECT_EQ(report.what.find("Error while"), std::string::npos) << report.what;
  const Error binary = caught([] { ConfigReader(std::string(200, '\x1b'), "c.toml", {}, {.name = "cluster file"}); });
  const std::string shown = binary.what();
  EXPECT_EQ(binary.report().got, std::string(80, '\x1b') + "...");
  EXPECT_NE(shown.find("\\x1b\\x1b"), std::string::npos) << shown;
  EXPECT_NE(shown.find("the cluster file is not valid TOML"), std::string::npos) << shown;
}

TEST(TomlConfig, a_file_of_another_kind_has_its_own_words) {
  ConfigReader reader("[device]\nmemory = 80\n[runs]\nsteps = 3\n[run]\nstep = 3\n", "c.toml", {},
                      {.name = "cluster file", .help = "read the manual"});
  reader.leave("run");
  std::string text = "untouched";
  EXPECT_FALSE(reader.read_text("device", "memory", text, "bytes with a unit"));
  EXPECT_EQ(text, "untouched");
  const Error error = caught([&] { reader.finish(); });
  EXPECT_EQ(error.report().what,
            "the cluster file has 2 problems\n"
            "  c.toml:2:10: device.memory: got 80 (an integer), wanted bytes with a unit\n"
            "  c.toml:3:2: [runs]: unknown section; did you mean \"run\"?");
  EXPECT_EQ(error.report().todo, "read the manual");
}

// The explanation of a key does not help where its value is right by itself.
TEST(TomlConfig, a_rule_between_keys_needs_no_explanation_of_keys) {
  const auto todo_with = [](const char* steps) {
    ConfigReader reader(std::string("[run]\nsteps = ") + steps, "c.toml", {});
    Index value = 1;
    reader.read("run", "steps", value);
    reader.rule_problem("batch", "global_batch_size", "8 is not divisible by data 3", {"parallel.data"});
    reader.problem("batch", "micro_batch_size", "is above global_batch_size 8", {"batch.global_batch_size"});
    return caught([&] { reader.finish(); }).report().todo;
  };
  EXPECT_EQ(todo_with("3"), "");
  EXPECT_EQ(todo_with("true"), ConfigKind().help);
}

// Names of clusters and models come into comments: none may become a key.
TEST(TomlConfig, a_comment_stays_one_whatever_is_in_it) {
  ConfigWriter writer;
  writer.comment("a name\n[run]\nsteps = 1\r\x1B[2J\x7F\ttab");
  EXPECT_EQ(writer.text(), "# a name\n# [run]\n# steps = 1\\r\\x1b[2J\\x7f\\ttab\n");
}

TEST(TomlConfig, what_is_written_reads_back_equal) {
  const TemporaryDirectory directory;
  Settings wanted{
      .micro_batch_size = 3, .learning_rate = 0.1 + 0.2, .tied = false, .directory = "a \"b\"\\c\n\x01\xc3\xa9"};
  wanted.layers = {1, 2, 3};
  ConfigWriter writer;
  writer.comment("all values as used");
  writer.write("batch", "micro_batch_size", wanted.micro_batch_size, "sequences per forward");
  writer.write("optimizer", "learning_rate", wanted.learning_rate);
  writer.write("optimizer", "schedule", "linear");
  writer.write("model", "tied_embeddings", wanted.tied);
  writer.write("run", "directory", wanted.directory);
  writer.write("run", "time", 60.0);
  writer.write("run", "names", std::vector<std::string>{"x", "y z"});
  writer.write("parallel", "layers_per_stage", wanted.layers);
  write_bytes(directory / "c.toml", writer.text());
  EXPECT_NE(writer.text().find("# sequences per forward"), std::string::npos);
  ConfigReader reader(directory / "c.toml", {});
  Settings found;
  std::vector<std::string> names;
  read_all(reader, found);
  reader.read("run", "names", names);
  reader.finish();
  EXPECT_EQ(found.micro_batch_size, 3);
  EXPECT_EQ(found.learning_rate, wanted.learning_rate);
  EXPECT_EQ(found.directory, wanted.directory);
  EXPECT_EQ(found.time, 60);
  EXPECT_EQ(found.layers, wanted.layers);
  EXPECT_EQ(names, (std::vector<std::string>{"x", "y z"}));
}

TEST(TomlConfig, differences_ignore_order_and_comments) {
  EXPECT_TRUE(diff_configs("[a]\nx = 1 # c\ny = 2.0\n[b]\nz = \"s\"\n", "[b]\nz = 's'\n[a]\ny = 2.0\nx = 1\n").empty());
  const auto differences = diff_configs("[a]\nx = 1\ny = 2\n", "[a]\nx = 3\nw = [1]\n");
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].key, "a.w");
  EXPECT_EQ(differences[0].old_value, "");
  EXPECT_EQ(differences[1].key, "a.x");
  EXPECT_EQ(differences[1].old_value + differences[1].new_value, "13");
  EXPECT_EQ(differences[2].new_value, "");
}

TEST(Units, counts_sizes_and_durations) {
  EXPECT_EQ(parse_count("64"), 64);
  EXPECT_EQ(parse_count("9007199254740993"), 9007199254740993);
  EXPECT_EQ(parse_count("64M"), 64000000);
  EXPECT_EQ(parse_count("1.5B tokens"), 1500000000);
  EXPECT_EQ(parse_count("10k"), 10000);
  EXPECT_FALSE(parse_count("1.5"));
  EXPECT_FALSE(parse_count("-3"));
  EXPECT_FALSE(parse_count("3 apples"));
  EXPECT_FALSE(parse_count(""));
  EXPECT_EQ(parse_bytes("64 MiB"), 64 << 20);
  EXPECT_EQ(parse_bytes("64M"), 64 << 20);
  EXPECT_EQ(parse_bytes("2GB"), 2000000000);
  EXPECT_EQ(parse_bytes("123"), 123);
  EXPECT_EQ(parse_bytes("1.1 MiB"), 1153434);  // 1153433.6
  EXPECT_EQ(parse_bytes("1.1MiB"), 1153434);
  EXPECT_EQ(parse_bytes("1.1M"), 1153434);
  EXPECT_EQ(parse_bytes("0.3 kB"), 300);
  EXPECT_FALSE(parse_bytes("1.5"));
  EXPECT_FALSE(parse_bytes("64X"));
  EXPECT_FALSE(parse_bytes("99999999T"));
  EXPECT_EQ(parse_seconds("90"), 90);
  EXPECT_EQ(parse_seconds("1.5h"), 5400);
  EXPECT_EQ(parse_seconds("1h 30m"), 5400);
  EXPECT_EQ(parse_seconds("250ms"), 0.25);
  EXPECT_EQ(parse_seconds("01:30:00"), 5400);
  EXPECT_EQ(parse_seconds("1-12:00:00"), 129600);
  EXPECT_FALSE(parse_seconds("1:30"));
  EXPECT_FALSE(parse_seconds("soon"));
}

TEST(Units, sizes_are_printed_to_the_nearest_and_budgets_rounded_up) {
  EXPECT_EQ(bytes_text(1), "1 B");
  EXPECT_EQ(bytes_text(1153434), "1.1 MiB");
  EXPECT_EQ(bytes_text(std::size_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(budget_text(1023), "1023 B");
  EXPECT_EQ(budget_text(1153433), "1.1 MiB");
  EXPECT_EQ(budget_text(1153434), "1.2 MiB");
  EXPECT_EQ(budget_text((std::size_t{3} << 29) + 1), "1.51 GiB");
  EXPECT_EQ(budget_text(std::size_t{1} << 50), "1.0 PiB");
}

TEST(Units, nearest_words) {
  EXPECT_EQ(nearest_word("laerning_rate", {"learning_rate", "beta1"}), "learning_rate");
  EXPECT_EQ(nearest_word("zzz", {"learning_rate", "ab"}), "");
  EXPECT_EQ(nearest_word("a100", {"v100", "a100-40", "a100-80"}), "a100-40") << "cut short, not misspelled";
  EXPECT_EQ(nearest_word("GPT2-124M", {"gpt2-124m", "gpt2-355m"}), "gpt2-124m");
}

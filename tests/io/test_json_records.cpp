// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// JSON and TOML that somebody made to do harm, and records whose fields are of the wrong kind.
#include <algorithm>
#include <limits>

#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/config/toml_config.hpp"
#include "io/input_limits.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/records/metrics.hpp"
#include "io/records/run_directory.hpp"
#include "io/records/run_progress.hpp"
#include "io/records/trace_file.hpp"
#include "tests/io/checkpoint_support.hpp"

using namespace espalier;
using namespace espalier::test;
using nlohmann::json;

namespace {

std::string repeated(const std::string& part, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i)
    text += part;
  return text;
}

// Deep in every way that the formats know.
const std::vector<std::string> deep_json = {repeated("[", 200000), repeated("{\"a\":", 200000),
                                            repeated("[", 200000) + repeated("]", 200000),
                                            repeated("{\"a\":[", 100000) + "1" + repeated("]}", 100000)};
const std::vector<std::string> deep_toml = {"a = " + repeated("[", 200000),
                                            "a = " + repeated("{a=", 200000),
                                            repeated("a.", 100000) + "a = 1\n",
                                            "[" + repeated("a.", 100000) + "a]\n",
                                            "[[" + repeated("a . ", 100000) + "a]]\n",
                                            "b = {" + repeated("'a'.", 100000) + "a = 1}\n"};

void expect_config_refused(const std::string& text) {
  expect_error(ExitCode::usage, {"nested too deep"}, [&] { ConfigReader(text, "deep.toml", {}); });
}

}  // namespace

TEST(JsonReader, what_is_nested_too_deep_is_refused) {
  for (const std::string& text : deep_json)
    EXPECT_THROW(parse_json(text), JsonError);
  EXPECT_NO_THROW(parse_json(repeated("[", deepest_nesting) + repeated("]", deepest_nesting)));
  EXPECT_THROW(parse_json(repeated("[", deepest_nesting + 1) + repeated("]", deepest_nesting + 1)), JsonError);
}

TEST(JsonReader, what_is_ambiguous_or_no_number_is_refused) {
  for (const char* const text : {R"({"a": 1, "a": 1})", R"([{"b": {"a": 1, "c": {}, "a": 2}}])", "[1e999]", "[-1e999]",
                                 "\"\xff\"", "\"\xed\xa0\x80\"", "[NaN]", "", "{", "1 2", "\xff\xfe[\0", "[\"\x1b\"]"})
    EXPECT_THROW(parse_json(text), JsonError) << text;
  EXPECT_EQ(parse_json(R"({"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]})").size(), 2U);
}

TEST(JsonReader, every_record_that_is_nested_too_deep_is_damaged) {
  for (const std::string& text : deep_json) {
    const TemporaryDirectory directory;
    write_bytes(directory / "run.json", text);
    EXPECT_FALSE(read_run_record(directory.path()));
    write_bytes(directory / "metrics.jsonl", text + "\n{\"step\": 1}\n");
    const std::vector<json> lines = read_metrics(directory / "metrics.jsonl");
    ASSERT_EQ(lines.size(), 2U);
    EXPECT_FALSE(lines[0].is_object());
    EXPECT_TRUE(lines[1].is_object());
    write_trace(directory.path(), 0, "rank 0", {});
    std::string trace = read_bytes(directory / "rank-00000.json");
    trace.insert(trace.rfind("\n]"), ",\n" + text);
    write_bytes(directory / "rank-00000.json", trace);
    expect_error(ExitCode::data, {"rank-00000.json:"}, [&] { read_trace(directory / "rank-00000.json"); });

    const Path good = save(directory / "checkpoints", 1);
    const Path deep = save(directory / "checkpoints", 2);
    write_bytes(deep / "manifest.json", "{\"manifest_xxh3_128\": \"" + std::string(32, '0') + "\", \"a\": " + text);
    EXPECT_EQ(resolve_checkpoint(directory.path()), good);
  }
}

TEST(JsonReader, no_file_is_read_that_is_larger_than_any_of_its_kind) {
  const TemporaryDirectory directory;
  const Path good = save(directory / "checkpoints", 1);
  for (const Path& path : {directory / "run.json", save(directory / "checkpoints", 2) / "manifest.json"}) {
    write_bytes(path, "{");
    std::filesystem::resize_file(path, std::uintmax_t{1} << 40);
  }
  EXPECT_FALSE(read_run_record(directory.path()));
  EXPECT_EQ(resolve_checkpoint(directory.path()), good);
  write_bytes(directory / "config.toml", "");
  std::filesystem::resize_file(directory / "config.toml", std::uintmax_t{1} << 40);
  expect_error(ExitCode::usage, {"too large for its kind"}, [&] { ConfigReader(directory / "config.toml", {}); });
}

TEST(TomlText, what_is_nested_too_deep_is_refused) {
  for (const std::string& text : deep_toml) {
    expect_config_refused(text);
    expect_config_refused("x = \"" + repeated("a.", 100) + "\"\ny = '''\n'' [[ '''''\nz = \"\"\"\\\"\"\"\"\"\n# [[[\n" +
                          text);
  }
}

// Dots and brackets of strings, comments and numbers nest nothing.
TEST(TomlText, long_lists_of_paths_are_not_deep) {
  const std::string text =
      "[data]\n# " + repeated("a.[", 500) + "\ntrain = [" + repeated("\"a.b/c.bin[{\", ", 500) + "]\n";
  std::vector<std::string> files;
  ConfigReader reader(text, "config", {});
  EXPECT_TRUE(reader.read("data", "train", files));
  EXPECT_EQ(files.size(), 500U);
}

TEST(JsonFields, are_of_their_type_and_within_their_range) {
  const json values = parse_json(R"({"five": 5, "minus": -5, "real": 5.5, "huge": 18446744073709551615, "large": 1e300,
                                     "text": "5", "long": ")" +
                                 std::string(5000, 'x') + R"(", "yes": true, "none": null,
                                     "list": [1, 2], "mixed": [1, "2"], "object": {}, "nan": "nan"})");
  EXPECT_EQ(field<Index>(values, "five"), 5);
  EXPECT_EQ(field<double>(values, "five"), 5);
  EXPECT_EQ(values_field<int>(values, "list"), (std::vector<int>{1, 2}));
  EXPECT_TRUE(std::isnan(number_field(values, "nan")));
  const auto refused = [&](const auto& read, const std::string& part) {
    try {
      read();
      ADD_FAILURE() << "nothing was refused: " << part;
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_LT(std::string(error.what()).size(), 200U);
    }
  };
  for (const char* const key : {"minus", "real", "huge", "large", "text", "yes", "none", "list", "object", "absent"})
    refused([&] { field<Index>(values, key, count_range); }, key);
  refused([&] { field<std::uint8_t>(json{{"n", 256}}, "n"); }, "\"n\" is 256");
  refused([&] { field<std::uint64_t>(values, "minus"); }, "\"minus\" is -5");
  refused([&] { field<int>(json{{"n", Index{1} << 31}}, "n"); }, "2147483648");
  for (const char* const key : {"text", "yes", "none", "nan", "list"})
    refused([&] { field<double>(values, key); }, key);
  refused([&] { field<double>(values, "minus", FloatRange{.min = 0}); }, "at least 0");
  for (const char* const key : {"five", "yes", "none", "long"})
    refused([&] { field<std::string>(values, key); }, key);
  refused([&] { field<bool>(values, "five"); }, "true or false");
  refused([&] { values_field<int>(values, "mixed"); }, "mixed");
  refused([&] { list_field(values, "list", 1); }, "at most 1");
  refused([&] { object_field(values, "list"); }, "\"list\" is [1,2]");
}

TEST(JsonFields, of_run_json_are_sane) {
  RunRecord record_of_a_run;
  record_of_a_run.state = RunState::running;
  const json good = to_json(record_of_a_run);
  EXPECT_EQ(run_record_from_json(good).state, RunState::running);
  for (const auto& [key, bad] : std::vector<std::pair<const char*, json>>{{"state", "on fire"},
                                                                          {"state", 5},
                                                                          {"exit_code", -1},
                                                                          {"exit_code", 1e9},
                                                                          {"pid", -1},
                                                                          {"pid", Index{1} << 40},
                                                                          {"starts", std::numeric_limits<Index>::max()},
                                                                          {"starts", 1.5},
                                                                          {"details", json::array()},
                                                                          {"host", nullptr},
                                                                          {"cause", json::object()},
                                                                          {"process_start", "x"}}) {
    json record = good;
    record[key] = bad;
    EXPECT_THROW(run_record_from_json(record), std::runtime_error) << key << " = " << bad;
  }
}

TEST(RunProgress, that_no_rank_can_have_written_are_left_out) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "state");
  const auto left_by = [&](const std::function<void(RankProgress&)>& change) {
    ProgressFile file(directory / "state", 0, sizeof(RankProgress));
    file.as<RankProgress>() = RankProgress{};
    change(file.as<RankProgress>());
    return run_progress(directory.path()).size();
  };
  EXPECT_EQ(left_by([](RankProgress&) {}), 1U);
  EXPECT_EQ(left_by([](RankProgress& p) { p.host.fill('x'); }), 0U);
  EXPECT_EQ(left_by([](RankProgress& p) { p.operation.fill('x'); }), 0U);
  EXPECT_EQ(left_by([](RankProgress& p) { p.waits_for.fill('\x1b'); }), 0U);
  EXPECT_EQ(left_by([](RankProgress& p) { p.communicator.fill('x'); }), 0U);
  EXPECT_EQ(left_by([](RankProgress& p) { p.rank = 7; }), 0U);
  EXPECT_EQ(left_by([](RankProgress& p) { p.world_size = 0; }), 0U);
  EXPECT_EQ(left_by([](RankProgress& p) { p.num_peers = -1; }), 0U);
  EXPECT_EQ(left_by([](RankProgress& p) { p.since = std::numeric_limits<double>::quiet_NaN(); }), 0U);
  EXPECT_EQ(left_by([](RankProgress& p) { p.alive = 1e300; }), 0U);
}

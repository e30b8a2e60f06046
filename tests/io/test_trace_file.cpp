// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "io/records/trace_file.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;
using nlohmann::json;

namespace {

std::vector<json> events_of(const Path& path, const std::string& phase) {
  std::vector<json> found;
  const json root = json::parse(read_bytes(path));
  for (const json& event : root.at("traceEvents"))
    if (event.at("ph") == phase)
      found.push_back(event);
  return found;
}

std::string name_of_thread(const Path& path, const json& event) {
  for (const json& item : events_of(path, "M"))
    if (item.at("name") == "thread_name" && item.at("tid") == event.at("tid") && item.at("pid") == event.at("pid"))
      return item.at("args").at("name");
  return "";
}

const std::vector<TimelineEvent> two_events = {
    {"forward 3", "forward", 1, 3, 0.25, 0.250001234, operations_track, 7},
    {"bucket \"0\"\n\xff", "data_comm", 0, -1, 0.2500005, 0.26, communication_track, 7}};

TEST(TraceFile, is_json_with_the_events_and_their_names) {
  const TemporaryDirectory directory;
  write_trace(directory / "trace", 3, trace_process_name(3, 1, 0, 1), two_events);
  const Path path = directory / "trace/rank-00003.json";
  const std::vector<json> events = events_of(path, "X");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].at("name"), "forward 3");
  EXPECT_EQ(events[0].at("cat"), "forward");
  EXPECT_EQ(events[0].at("pid"), 4);
  EXPECT_EQ(events[0].at("ts"), 250000.0) << "microseconds";
  EXPECT_EQ(events[0].at("dur"), 1.234) << "with nanoseconds";
  EXPECT_EQ(events[0].at("args"), (json{{"step", 7}, {"chunk", 1}, {"microbatch", 3}}));
  EXPECT_EQ(events[1].at("ts"), 250000.5);
  EXPECT_TRUE(events[1].at("name").get<std::string>().starts_with("bucket \"0\"\n"));
  EXPECT_EQ(name_of_thread(path, events[0]), "operations");
  EXPECT_EQ(name_of_thread(path, events[1]), "communication");
  bool named = false;
  for (const json& item : events_of(path, "M"))
    named = named ||
            (item.at("name") == "process_name" && item.at("args").at("name") == "rank 3: stage 1, replica 0, tensor 1");
  EXPECT_TRUE(named);
}

TEST(TraceFile, touching_events_share_a_thread_and_overlapping_ones_do_not) {
  const TemporaryDirectory directory;
  std::vector<TimelineEvent> events;
  for (int i = 0; i < 1000; ++i)  // end of one = begin of the next, at no round number
    events.push_back({"touching", "", 0, i, i / 3e3, (i + 1) / 3e3, operations_track, 0});
  events.push_back({"outer", "", 0, 0, 1, 2, communication_track, 0});
  events.push_back({"inner", "", 0, 0, 1, 1.5, communication_track, 0});
  events.push_back({"overlapping", "", 0, 0, 1.4, 2.5, communication_track, 0});
  events.push_back({"after", "", 0, 0, 2, 3, communication_track, 0});
  write_trace(directory.path(), 0, "rank 0", events);
  const Path path = directory / "rank-00000.json";
  std::map<std::string, std::string> threads;
  for (const json& event : events_of(path, "X"))
    if (auto& name = threads[event.at("name")]; name.empty() || event.at("args").at("microbatch") == 999)
      name = name_of_thread(path, event);
  EXPECT_EQ(threads["touching"], "operations");
  EXPECT_EQ(threads["outer"], "communication");
  EXPECT_EQ(threads["inner"], "communication");
  EXPECT_EQ(threads["overlapping"], "communication (2)");
  EXPECT_EQ(threads["after"], "communication");
  double end = 0;
  for (const json& event : events_of(path, "X"))
    if (event.at("name") == "touching") {
      EXPECT_NEAR(event.at("ts").get<double>(), end, 1e-6);
      end = event.at("ts").get<double>() + event.at("dur").get<double>();
    }
}

TEST(TraceFile, ranks_are_joined_and_missing_ones_named) {
  const TemporaryDirectory directory;
  for (const int rank : {0, 2, 3})
    write_trace(directory.path(), rank, trace_process_name(rank, rank, 0, 0), two_events);
  write_trace(directory.path(), 1, "rank 1", {});
  EXPECT_TRUE(merge_traces(directory.path(), 4).empty());
  EXPECT_EQ(events_of(directory / "trace.json", "X").size(), 6u);
  std::filesystem::remove(directory / "rank-00000.json");
  write_bytes(directory / "rank-00002.json", read_bytes(directory / "rank-00002.json").substr(0, 200));
  EXPECT_EQ(merge_traces(directory.path(), 5), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(events_of(directory / "trace.json", "X").size(), 2u);
  EXPECT_TRUE(json::parse(read_bytes(directory / "trace.json")).is_object());
}

TEST(TraceFile, what_was_written_is_read_back) {
  const TemporaryDirectory directory;
  const std::vector<TimelineEvent> events = {
      {.name = "F0 \"x\"", .category = "forward", .chunk = 1, .microbatch = 3, .begin = 1.5, .end = 1.75, .step = 7},
      {.name = "dp", .category = "data_comm", .begin = 1.6, .end = 2.5, .track = communication_track, .step = 7},
      {.name = "dp too", .category = "data_comm", .begin = 1.7, .end = 2.6, .track = communication_track, .step = 8}};
  write_trace(directory.path(), 3, "rank 3", events);
  const Path path = directory / "rank-00003.json";
  const std::vector<TimelineEvent> read = read_trace(path);
  ASSERT_EQ(read.size(), events.size());
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(read[i].name, events[i].name);
    EXPECT_STREQ(read[i].category, events[i].category);
    EXPECT_EQ(read[i].chunk, events[i].chunk);
    EXPECT_EQ(read[i].microbatch, events[i].microbatch);
    EXPECT_NEAR(read[i].begin, events[i].begin, 1e-9);
    EXPECT_NEAR(read[i].end, events[i].end, 1e-9);
    EXPECT_EQ(read[i].track, events[i].track);
    EXPECT_EQ(read[i].step, events[i].step);
  }
  expect_error(ExitCode::data, {"no-such"}, [&] { read_trace(directory / "no-such"); });
}

TEST(TraceFile, damage_is_told_with_its_line) {
  const TemporaryDirectory directory;
  write_trace(directory.path(), 0, "rank 0", two_events);
  const Path path = directory / "rank-00000.json";
  const std::string bytes = read_bytes(path);
  const auto refuses = [&](const std::string& text, const std::string& where) {
    write_bytes(path, text);
    expect_error(ExitCode::data, {"a trace cannot be read", path.string() + where}, [&] { read_trace(path); });
  };
  refuses(bytes.substr(0, bytes.size() - 30), ":9");    // in the last event
  refuses(bytes.substr(0, bytes.find("]}\n")), ":10");  // between two lines
  refuses("", ":1");
  refuses("{\"traceEvents\": [\n{\"ph\": \"X\", \"cat\": \"gc\"}\n]}", ":1");  // of another program
  std::string without = bytes;
  without.replace(without.find("\"args\": {\"step\""), 6, "\"orgs\"");
  refuses(without, ":6");
  std::string other = bytes;  // of another version
  other.replace(other.find("\"cat\": \"forward\""), 16, "\"cat\": \"rewind\"");
  write_bytes(path, other);
  EXPECT_EQ(read_trace(path).size(), 1u);
}

TEST(TraceFile, nothing_at_all_is_still_json) {
  const TemporaryDirectory directory;
  EXPECT_EQ(merge_traces(directory.path(), 1), (std::vector<int>{0}));
  EXPECT_TRUE(json::parse(read_bytes(directory / "trace.json")).at("traceEvents").empty());
}

TEST(TraceFile, an_unwritable_place_is_a_write_error) {
  expect_error(ExitCode::write, {"/proc/trace"}, [] { write_trace("/proc/trace", 0, "rank 0", {}); });
}

}  // namespace

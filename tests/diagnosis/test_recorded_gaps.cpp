// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What a run directory lacks, and what lies in it in the wrong order.
#include <gmock/gmock.h>

#include "io/records/trace_file.hpp"
#include "tests/diagnosis/recorded_run_test.hpp"

namespace espalier::test {
namespace {

using testing::Contains;
using testing::HasSubstr;

// Ranks with the same hole are told of at once.
TEST_F(RecordedRunTest, StepsThatAreLeftOutAreAGap) {
  const auto skip_to_6 = [&](const char* rank) {
    append(rank, R"({"step":6,"step_seconds":0.5,"seconds":{"forward":0.1},"bytes_sent":{"tp":0,"dp":0,"pp":0}})");
  };
  skip_to_6("ranks/rank-00000.jsonl");
  EXPECT_THAT(read().gaps, testing::Contains("ranks/ has nothing between steps 3 and 6 of rank 0"));
  skip_to_6("ranks/rank-00001.jsonl");
  EXPECT_THAT(read().gaps, testing::Contains("ranks/ has nothing between steps 3 and 6 of ranks 0, 1"));
}

TEST_F(RecordedRunTest, StepsBehindTheEndOfARecordAreAGap) {
  const auto gaps_when_done = [&](int steps) {
    std::vector<std::string> gaps;
    nlohmann::json run = nlohmann::json::parse(std::ifstream(path("run.json")));
    run["details"]["steps_done"] = steps;
    write("run.json", run.dump());
    for (const std::string& gap : read().gaps)
      if (gap.find("nothing after") != std::string::npos)
        gaps.push_back(gap);
    return gaps;
  };
  EXPECT_TRUE(gaps_when_done(3).empty());
  EXPECT_THAT(gaps_when_done(5), testing::ElementsAre("metrics.jsonl has nothing after step 3 of 5",
                                                      "ranks/ has nothing after step 3 of 5 of ranks 0, 1"));
}

TEST_F(RecordedRunTest, ARunEndsAtTheFirstOfItsLimits) {
  const std::string config = read_file(path("config.toml"), ExitCode::data);
  const auto total_with = [&](const std::string& keys) {
    write("config.toml", config + "[run]\n" + keys);
    return read().config.total_steps();
  };
  EXPECT_EQ(total_with("steps = 9\ntokens = 500\n"), 4) << "8 sequences x 16 tokens a step";
  EXPECT_EQ(total_with("steps = 3\ntokens = 500\n"), 3);
  EXPECT_EQ(total_with("steps = 0\ntokens = 500\n"), 4);
  EXPECT_EQ(total_with("steps = 7\ntokens = 0\n"), 7);
}

// Steps that go back are two runs in one file, or lines in the wrong order: no times follow from them.
TEST_F(RecordedRunTest, StepsThatGoBackAreDamage) {
  append("ranks/rank-00000.jsonl",
         R"({"step":2,"step_seconds":0.5,"seconds":{"forward":0.1},"bytes_sent":{"tp":0,"dp":0,"pp":0}})");
  const ErrorReport report = refusal(ExitCode::data);
  EXPECT_EQ(report.where, path("ranks/rank-00000.jsonl").string() + ":4");
  EXPECT_EQ(report.got, "step 2 after step 3");
}

TEST_F(RecordedRunTest, MissingRanksAreANote) {
  std::filesystem::remove(path("ranks/rank-00001.jsonl"));
  RecordedRun run = read();
  ASSERT_EQ(run.ranks.size(), 2u);
  EXPECT_EQ(run.ranks[0].size(), 3u);
  EXPECT_TRUE(run.ranks[1].empty());
  EXPECT_EQ(run.gaps.front(), "ranks/ has no times of rank 1: times are shown only if all ranks have them");
  std::filesystem::remove(path("ranks/rank-00000.jsonl"));
  run = read();
  EXPECT_EQ(run.ranks[0][2].seconds[Phase::backward], 0.2) << "from metrics.jsonl";
  EXPECT_THAT(run.gaps.front(), HasSubstr("ranks 0, 1: "));
}

// Traces of step 2, as the config asks for.
TEST_F(RecordedRunTest, MissingTracesAreANoteAndDamagedOnesDamage) {
  append("config.toml", "[run]\ntrace_steps = 1\ntrace_first_step = 2\n");
  EXPECT_THAT(read().gaps, Contains(HasSubstr("trace/ has no file of ranks 0, 1: the timeline of a step cannot")));
  set_state(RunState::failed);  // after step 3: it had written them
  EXPECT_THAT(read().gaps, Contains(HasSubstr("trace/ has no file of ranks 0, 1")));
  write_trace(path("trace").string(), 1, "rank 1", {});
  const RecordedRun run = read();
  EXPECT_THAT(run.gaps, Contains(HasSubstr("trace/ has no file of rank 0: the timeline shows what the others did")));
  EXPECT_EQ(run.traces, (std::vector<Path>{"", directory_ / "trace/rank-00001.json"}));
  write_trace(path("trace").string(), 0, "rank 0", {});
  EXPECT_THAT(read().gaps, Not(Contains(HasSubstr("trace/"))));
  append("trace/rank-00001.json", "[");
  const ErrorReport report = refusal(ExitCode::data);
  EXPECT_EQ(report.what, "a trace cannot be read");
  EXPECT_THAT(report.where, HasSubstr("trace/rank-00001.json:8"));
}

}  // namespace
}  // namespace espalier::test

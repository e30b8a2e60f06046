// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Blends and splits of token files in whole runs: what a launch tells, repeats and refuses.
#include <gtest/gtest.h>

#include "io/records/run_directory.hpp"
#include "io/tokens/megatron_writer.hpp"
#include "tests/training/run_starts.hpp"
#include "training/step/loaders.hpp"

namespace espalier::test {
namespace {

// Two of our files, and a Megatron set of 500 documents of ten tokens.
class DataOrder : public ::testing::Test {
 protected:
  DataOrder()
      : folder_("data_order"),
        a_(write_tokens(folder_ / "a.bin", 3000, 61)),
        b_(write_tokens(folder_ / "b.bin", 300, 61)),
        documents_((folder_ / "documents").string()) {
    write_documents(10);
  }

  void write_documents(Index length) {
    on_root([&] {
      const MegatronPair pair{documents_ + ".bin", documents_ + ".idx"};
      std::filesystem::remove(pair.tokens);
      std::filesystem::remove(pair.index);
      MegatronWriter writer(pair, 2);
      for (Index token = 0; token < 5000; ++token) {
        writer.append(std::vector<TokenId>{static_cast<TokenId>((token * 7) % 61)});
        if ((token + 1) % length == 0)
          writer.end_document();
      }
      writer.finish();
    });
  }
  std::string both() const { return "data.train=[\"" + a_ + "\", \"" + b_ + "\"]"; }
  RunConfig config(const std::string& name, std::vector<std::string> more) const {
    more.emplace_back("checkpoint.interval=4");
    return config_in(folder_, name, more);
  }

  SharedFolder folder_;
  std::string a_;
  std::string b_;
  std::string documents_;
};

TEST_F(DataOrder, ABlendTellsItsSharesAndResumesInItsOrder) {
  const RunConfig straight = config("straight", {both(), "data.weights=[0.25, 0.75]"});
  const Start start = start_run(straight, {});
  EXPECT_TRUE(start.says("a.bin", "25.00 % of the samples, 0.13 epochs"));  // 16 of 124
  EXPECT_TRUE(start.says("b.bin", "75.00 % of the samples, 4.00 epochs"));  // 48 of 12
  const RunConfig stopped = config("stopped", {both(), "data.weights=[0.25, 0.75]"});
  start_run(stopped, stop_after(3));
  start_run(stopped, {});
  EXPECT_EQ(losses(stopped), losses(straight));
  const RunConfig repeated = config("repeated", {both(), "data.epochs=[1, 100]"});
  EXPECT_TRUE(start_run(repeated, {}).says("warning: much repeated", "b.bin: 90.63 % of the samples"));
}

TEST_F(DataOrder, APatternIsOneSet) {
  const std::string pattern = "data.train=[\"" + (folder_ / "[ab].bin").string() + "\"]";
  const RunConfig by_pattern = config("pattern", {pattern});
  start_run(by_pattern, {});
  const RunConfig by_name = config("names", {both()});
  start_run(by_name, {});
  EXPECT_EQ(losses(by_pattern), losses(by_name));
  EXPECT_TRUE(start_run(config("one_set", {pattern, "data.weights=[1]"}), {}).says("100.00 % of the samples"));
  const std::string none = "data.train=[\"" + (folder_ / "*.absent").string() + "\"]";
  expect_refusal(ExitCode::data, {"no token file matches", "*.absent"}, [&] { start_run(config("none", {none}), {}); });
}

TEST_F(DataOrder, AnotherOrderIsRefusedOnResumeButWithNewData) {
  start_run(config("run", {both(), "data.weights=[0.25, 0.75]"}), stop_after(4));
  const std::vector<std::pair<std::vector<std::string>, std::string>> changes = {
      {{"data.weights=[0.5, 0.5]"}, "data.weights: [ 0.25, 0.75 ] -> [ 0.5, 0.5 ]"},
      {{"data.weights=[]", "data.epochs=[1, 1]"}, "data.epochs: [] -> [ 1.0, 1.0 ]"},
      {{"data.document_end=3"}, "data.document_end: -1 -> 3"},
      {{"data.document_end=3", "data.validation_fraction=0.1"}, "data.validation_fraction: 0 -> 0.1"}};
  for (const auto& [change, line] : changes) {
    std::vector<std::string> keys = {both(), "data.weights=[0.25, 0.75]"};
    keys.insert(keys.end(), change.begin(), change.end());
    expect_refusal(ExitCode::usage, {"another config", line, "--new-data"},
                   [&] { start_run(config("run", keys), {}); });
  }
  TrainOptions on_new_data;
  on_new_data.new_data = true;
  const Start start = start_run(config("run", {both(), "data.weights=[0.5, 0.5]"}), on_new_data);
  EXPECT_EQ(start.outcome, TrainOutcome::completed);
  EXPECT_TRUE(start.says("config changed: data.weights"));
}

TEST_F(DataOrder, DocumentsThatHaveMovedAreOtherFiles) {
  const RunConfig run = config("run", {"data.train=[\"" + documents_ + "\"]"});
  start_run(run, stop_after(4));
  write_documents(20);  // the same tokens in the same .bin
  expect_refusal(ExitCode::data, {"data.train[0]", "other documents", "--new-data"}, [&] { start_run(run, {}); });
  write_documents(10);
  EXPECT_TRUE(start_run(run, {}).says("resumed from"));
}

TEST_F(DataOrder, DocumentsAreHeldOutForValidation) {
  const RunConfig run = config("run", {"data.train=[\"" + documents_ + "\"]", "data.validation_fraction=0.2"});
  const Start start = start_run(run, {});
  EXPECT_TRUE(start.says("validates on", "of other documents"));
  if (world().rank() == 0) {
    ASSERT_EQ(start.validations.size(), 1u);
    EXPECT_TRUE(std::isfinite(start.validations[0].second));
  }
  expect_refusal(ExitCode::data, {"does not say where its documents are", "b.bin", "data.document_end"}, [&] {
    start_run(config("refused", {"data.train=[\"" + b_ + "\"]", "data.validation_fraction=0.2"}), {});
  });
  if (world().rank() == 0) {  // who alone takes notes
    EXPECT_FALSE(start.says("run.eval_samples"));
  }
  const RunConfig by_token = config("by_token", {"data.train=[\"" + a_ + "\"]", "data.validation_fraction=0.2",
                                                 "data.document_end=3", "run.eval_samples=10000"});
  const Start start_by_token = start_run(by_token, {});
  EXPECT_TRUE(start_by_token.says("validates on", "of other documents"));
  EXPECT_TRUE(start_by_token.says("warning: run.eval_samples = 10000, but validation has only "));
}

TEST_F(DataOrder, ASetThatIsTooShortIsNamed) {
  const std::string tiny = write_tokens(folder_ / "tiny.bin", 24, 61);
  expect_refusal(ExitCode::data, {"shorter than one sequence", "tiny.bin", "at least 25"}, [&] {
    start_run(config("short", {"data.train=[\"" + a_ + "\", \"" + tiny + "\"]", "data.epochs=[1, 1]"}), {});
  });
}

}  // namespace
}  // namespace espalier::test

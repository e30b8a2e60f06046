// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "io/records/metrics.hpp"
#include "io/records/metrics_csv.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;
using nlohmann::ordered_json;

namespace {

const ordered_json example = {
    {"step", 1}, {"loss", 1}, {"seconds", {{"forward", 1}, {"backward", 1}}}, {"validation_loss", 1}};
constexpr const char* header = "step,loss,seconds.forward,seconds.backward,validation_loss\n";

ordered_json line(int step, double loss = 0.1) {
  return {{"step", step}, {"loss", loss}, {"seconds", {{"forward", 0.25}, {"backward", 0.5}}}};
}

}  // namespace

TEST(MetricsCsv, has_a_row_for_each_line) {
  const TemporaryDirectory directory;
  const Path path = directory / "metrics.csv";
  MetricsWriter metrics(directory / "metrics.jsonl", -1);
  const auto open = [&] { return MetricsCsv(path, directory / "metrics.jsonl", example); };
  {
    MetricsCsv csv = open();
    EXPECT_EQ(read_bytes(path), header);
    for (const ordered_json& added : {line(1), line(2, std::numeric_limits<double>::quiet_NaN())}) {
      metrics.append(added, 44);
      csv.append(added);
    }
    csv.add_to_last(1, "validation_loss", 9);  // not the last one
    EXPECT_EQ(read_bytes(path), std::string(header) + "1,0.1,0.25,0.5,\n2,nan,0.25,0.5,\n");
    for (const double loss : {3.25, 4.0}) {  // the shorter one leaves nothing of the other
      metrics.add_to_last(2, "validation_loss", loss);
      csv.add_to_last(2, "validation_loss", loss);
    }
    EXPECT_EQ(read_bytes(path), std::string(header) + "1,0.1,0.25,0.5,\n2,nan,0.25,0.5,4.0\n");
    metrics.append(line(3));
    csv.append(line(3));
  }
  const std::string whole = std::string(header) + "1,0.1,0.25,0.5,\n2,nan,0.25,0.5,4.0\n3,0.1,0.25,0.5,\n";
  EXPECT_EQ(read_bytes(path), whole);
  for (const std::string& left : {std::string(), whole.substr(0, whole.size() - 5), whole + "4,0"}) {
    write_bytes(path, left);
    MetricsCsv csv = open();
    EXPECT_EQ(read_bytes(path), whole);
    csv.add_to_last(3, "validation_loss", 5);  // of a launch that only validates
    EXPECT_EQ(read_bytes(path), whole.substr(0, whole.size() - 1) + "5.0\n");
  }
}

TEST(MetricsCsv, another_file_is_not_replaced) {
  const TemporaryDirectory directory;
  write_bytes(directory / "metrics.jsonl", "");
  write_bytes(directory / "metrics.csv", "mine");
  expect_error(ExitCode::write, {"metrics.csv", "a table of metrics"},
               [&] { MetricsCsv(directory / "metrics.csv", directory / "metrics.jsonl", example); });
  EXPECT_EQ(read_bytes(directory / "metrics.csv"), "mine");
}

TEST(MetricsCsv, a_resumed_run_has_the_rows_of_its_lines) {
  const TemporaryDirectory directory;
  const Path path = directory / "metrics.csv";
  for (const int last : {0, 2}) {
    MetricsWriter metrics(directory / "metrics.jsonl", last);
    MetricsCsv csv(path, directory / "metrics.jsonl", example);
    for (int step = last + 1; step <= 4; ++step) {
      metrics.append(line(step, 0.5 + last));
      csv.append(line(step, 0.5 + last));
    }
  }
  EXPECT_EQ(read_bytes(path), std::string(header) +
                                  "1,0.5,0.25,0.5,\n2,0.5,0.25,0.5,\n3,2.5,0.25,0.5,\n"
                                  "4,2.5,0.25,0.5,\n");
}

TEST(MetricsCsv, passes_over_lines_that_are_none) {
  const TemporaryDirectory directory;
  write_bytes(directory / "metrics.jsonl", "{\"step\":1}\n[]\nnonsense\n{\"step\":2,\"old\":3}\n{\"st");
  const MetricsCsv csv(directory / "metrics.csv", directory / "metrics.jsonl", example);
  EXPECT_EQ(read_bytes(directory / "metrics.csv"), std::string(header) + "1,,,,\n2,,,,\n");
}

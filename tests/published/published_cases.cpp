// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Predicts every row of a table of published runs: published_cases TABLE.csv [--cluster NAME|FILE]... [--json].
// Exit codes are those of docs/errors.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "core/error.hpp"
#include "io/input_limits.hpp"
#include "tests/published/case_report.hpp"

namespace {

using namespace espalier;

void predict(const std::string& path, const std::vector<std::string>& clusters, bool json) {
  std::vector<Cluster> calibrated;
  for (const std::string& cluster : clusters)
    calibrated.push_back(cluster_from(cluster));
  PublishedTable table = read_cases(read_file(path, ExitCode::data, LargestFile::record), path, calibrated);
  if (!table.unknown_columns.empty())
    fmt::print(stderr, "note: {} has columns that are not read: {}\n", path, fmt::join(table.unknown_columns, ", "));
  std::vector<PricedCase> cases;
  for (PublishedCase& published : table.cases)
    cases.push_back(price_case(std::move(published)));
  fmt::print("{}", json ? case_report_json(cases) : case_report(cases));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Predicts every row of a table of published runs");
  std::string table;
  std::vector<std::string> clusters;
  bool json = false;
  app.add_option("table", table, "CSV; tests/published/README.md names the columns")->required();
  app.add_option("--cluster", clusters, "Stands for the rows of its device: preset or TOML file");
  app.add_flag("--json", json, "For programs");
  CLI11_PARSE(app, argc, argv);
  try {
    predict(table, clusters, json);
  } catch (const std::exception& error) {
    const Error known = error_from(error, ExitCode::data);
    fmt::print(stderr, "published_cases: error: {}\n", known.what());
    return static_cast<int>(known.code());
  }
  return 0;
}

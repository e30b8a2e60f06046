// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Predicts every row of a table of published runs. Exit codes are those of docs/errors.md.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "core/error.hpp"
#include "core/printable_text.hpp"
#include "io/file.hpp"
#include "io/input_limits.hpp"
#include "tests/published/case_report.hpp"

namespace espalier {
namespace {

struct Options {
  std::string table;
  std::vector<std::string> clusters;  ///< each stands for all rows of its device type
  bool json = false;
};

Options options_from(int argc, char** argv) {
  CLI::App app("Predicts every row of a table of published runs, and compares the prediction with what was measured",
               "published_cases");
  Options options;
  app.add_option("table", options.table, "CSV; tests/published/README.md names its columns")
      ->type_name("TABLE.csv")
      ->required();
  app.add_option("--cluster", options.clusters, "Preset or TOML file with the curves for its device type")
      ->type_name("NAME|FILE")
      ->allow_extra_args(false);
  app.add_flag("--json", options.json, "For programs");
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    std::exit(app.exit(request));
  } catch (const CLI::ParseError& error) {
    throw Error(ExitCode::usage, {.what = error.what(), .todo = "published_cases --help"});
  }
  return options;
}

void compare(const Options& options) {
  std::vector<Cluster> calibrated;
  for (const std::string& cluster : options.clusters)
    calibrated.push_back(cluster_from(cluster));
  PublishedTable table =
      read_cases(read_file(options.table, ExitCode::data, LargestFile::record), options.table, calibrated);
  const auto note = [](const std::string& text) { std::fputs(printable_text(text).c_str(), stderr); };
  if (!table.unknown_columns.empty())
    note(fmt::format("note: {} has columns that are not read: {}\n", options.table,
                     fmt::join(table.unknown_columns, ", ")));
  if (!table.tells_programs)
    note(
        fmt::format("note: {} has no column program: all rows are predicted as those of a PyTorch program of today. "
                    "tests/published/add_columns.py adds the columns that sources and notes tell\n",
                    options.table));
  std::vector<PricedCase> cases;
  for (PublishedCase& published : table.cases)
    cases.push_back(price_case(std::move(published)));
  std::fputs(printable_text(options.json ? case_report_json(cases) : case_report(cases)).c_str(), stdout);
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw Error(ExitCode::write, {.what = "cannot write the output",
                                  .where = "standard output",
                                  .todo = "free some space there, or send the output to another place"});
}

int published_cases(int argc, char** argv) {
  try {
    compare(options_from(argc, argv));
    return 0;
  } catch (const std::exception& exception) {
    const Error error = error_from(exception, ExitCode::defect);
    std::fprintf(stderr, "published_cases: error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) { return espalier::published_cases(argc, argv); }

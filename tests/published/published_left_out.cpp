// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Cross-validation of the planner: published_left_out TABLE.csv... prices each row by constants that were fitted to the
// rows of other sources, of other device types, of other frameworks. docs/planner.md has the errors.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>

#include "core/error.hpp"
#include "io/file.hpp"
#include "io/input_limits.hpp"
#include "tests/published/case_report.hpp"
#include "tests/published/kind_interval.hpp"
#include "tests/published/left_out.hpp"

namespace espalier {
namespace {

constexpr const char* other_devices = "published cases on devices without fitted constants";

// Of the rows, on either side, as few as let nine of ten of left-out sources lie in intervals of others.
constexpr double outside_of_time = 0.03;
constexpr double outside_of_memory = 0.04;

using KindOf = std::function<std::string(const PricedCase&)>;

struct Grouping {
  const char* name;
  std::string (*group_of)(const PublishedCase&);
};

constexpr Grouping groupings[] = {
    {"source", [](const PublishedCase& row) { return row.origin; }},
    {"hardware", [](const PublishedCase& row) { return row.problem.cluster.device.name; }},
    {"framework", [](const PublishedCase& row) { return row.framework.empty() ? row.origin : row.framework; }},
};

std::vector<PricedCase> priced_rows(int argc, char** argv) {
  std::vector<PricedCase> cases;
  for (int i = 1; i < argc; ++i)
    if (argv[i][0] != '-')
      for (PublishedCase& read : read_cases(read_file(argv[i], ExitCode::data, LargestFile::record), argv[i]).cases)
        cases.push_back(price_case(std::move(read)));
  return cases;
}

std::string summary_text(const std::string& name, const std::vector<double>& errors) {
  const ErrorSummary summary = summary_of(errors);
  return fmt::format("  {:<60.60} {:>4} {:>7.1f} {:>7.1f} {:>7.1f} {:>+7.1f}\n", name, summary.count,
                     100 * summary.median, 100 * summary.p95, 100 * summary.worst, 100 * summary.bias);
}

std::vector<double> values_of(const std::vector<ConstantFit::RowError>& errors) {
  std::vector<double> values;
  for (const auto& each : errors)
    values.push_back(each.error);
  return values;
}

void report(const std::string& what, const ConstantFit& fit) {
  std::fputs(fmt::format("{}: {:<56} {:>4} {:>7} {:>7} {:>7} {:>7}\n", what, "left out", "rows", "median", "p95",
                         "worst", "bias %")
                 .c_str(),
             stdout);
  const auto all_rows = [](const PublishedCase&) { return true; };
  const LogFactors today(fit.constants().size(), 0);
  std::fputs(summary_text("nothing: constants of today", values_of(fit.errors(today, all_rows))).c_str(), stdout);
  const LogFactors best = fit.fit(all_rows);
  std::fputs(summary_text("nothing: constants fitted to these rows", values_of(fit.errors(best, all_rows))).c_str(),
             stdout);
  for (const Grouping& grouping : groupings) {
    const auto errors = fit.left_out_errors(grouping.group_of);
    std::map<std::string, std::vector<double>> by_group;
    for (const auto& each : errors)
      by_group[grouping.group_of(fit.cases()[each.row].published)].push_back(each.error);
    std::fputs(summary_text(fmt::format("each {}", grouping.name), values_of(errors)).c_str(), stdout);
    for (const auto& [group, of_group] : by_group)
      std::fputs(summary_text("  " + group, of_group).c_str(), stdout);
  }
  std::fputs("\n  constant                                   factor\n", stdout);
  for (std::size_t i = 0; i < best.size(); ++i)
    std::fputs(fmt::format("  {:<40} {:>8.3f}\n", fit.constants()[i].name, std::exp(best[i])).c_str(), stdout);
}

// The left-out errors by source where one constant stays what it is.
void report_each_constant(ConstantFit& fit) {
  for (std::size_t i = 0; i < fit.constants().size(); ++i) {
    fit.hold(i, true);
    std::fputs(summary_text("each source; held: " + fit.constants()[i].name,
                            values_of(fit.left_out_errors(groupings[0].group_of)))
                   .c_str(),
               stdout);
    std::fflush(stdout);
    fit.hold(i, false);
  }
}

void report_rows(const ConstantFit& fit) {
  for (const auto& each : fit.left_out_errors(groupings[0].group_of)) {
    const PricedCase& row = fit.cases()[each.row];
    std::fputs(fmt::format("{:+6.1f} % {:<60.60} {:<40.40} {}\n", 100 * each.error, row.published.id,
                           row.published.origin, row.layout.text())
                   .c_str(),
               stdout);
  }
}

// What rows of each kind took, of what was predicted without their source: the constants of planning/interval.cpp. Then
// how many rows lie in the intervals that other sources alone would give.
void report_intervals(const ConstantFit& fit, const KindOf& kind_of, bool has_devices, double outside) {
  std::vector<KindError> errors;
  for (const auto& each : fit.left_out_errors(groupings[0].group_of)) {
    const PricedCase& row = fit.cases()[each.row];
    if (row.price)
      errors.push_back({kind_of(row), row.published.origin, 1 / (1 + each.error)});
  }
  std::vector<KindError> of_devices;
  if (has_devices)
    for (const auto& each : fit.left_out_errors(groupings[1].group_of)) {
      const PricedCase& row = fit.cases()[each.row];
      if (row.price)
        of_devices.push_back({other_devices, row.published.origin, 1 / (1 + each.error)});
    }
  std::fputs(fmt::format("  {:<60} {:>5} {:>7} {:>6} {:>6} {:>7}\n", "measured / predicted", "rows", "sources", "low",
                         "high", "held %")
                 .c_str(),
             stdout);
  std::vector<KindInterval> found = kind_intervals(errors, outside);
  for (KindInterval kind : kind_intervals(of_devices, outside))
    if (kind.sources > 0) {
      kind.kind = "the same by rows of each device type, left out";
      found.push_back(kind);
    }
  for (const KindInterval& kind : found)
    std::fputs(fmt::format("  {:<60} {:>5} {:>7} {:>6.2f} {:>6.2f} {:>7.0f}\n", kind.kind, kind.rows, kind.sources,
                           kind.low, kind.high, 100 * kind.held)
                   .c_str(),
               stdout);
}

// By how much the predictions of two layouts must differ: the constant `published_resolution` of planning/interval.cpp.
void report_pairs(const ConstantFit& fit) {
  std::map<std::string, std::vector<LayoutRow>> problems;
  for (const auto& each : fit.left_out_errors(groupings[0].group_of)) {
    const PublishedCase& row = fit.cases()[each.row].published;
    if (fit.cases()[each.row].price)
      problems[fmt::format("{} {} {} {} {} {} {} {}", row.origin, row.problem.model.num_layers,
                           row.problem.model.hidden_size, row.problem.sequence_length, row.problem.cluster.device.name,
                           row.space.num_devices, row.space.global_batch, to_string(row.space.precisions.front()))]
          .push_back({row.origin, fit.cases()[each.row].layout.text(), row.measured_seconds * (1 + each.error),
                      row.measured_seconds});
  }
  std::vector<LayoutPair> pairs;
  for (const auto& [problem, rows] : problems)
    add_pairs(rows, pairs);
  const std::size_t count = pairs.size();
  std::fputs(fmt::format("  {} pairs of layouts of one problem; 9 of 10 that are predicted to differ by more than "
                         "{:.1f} % are in the predicted order\n",
                         count, 100 * resolution_of(std::move(pairs)))
                 .c_str(),
             stdout);
}

// Factors that no knowledge holds near those of today, which were fitted to rows of the table, too.
std::vector<FittedConstant> freed(std::vector<FittedConstant> constants, bool free) {
  constexpr double times = 10;
  for (FittedConstant& each : constants)
    each.spread *= free ? times : 1;
  return constants;
}

int published_left_out(int argc, char** argv) {
  bool free = false;
  for (int i = 1; i < argc; ++i)
    free = free || std::strcmp(argv[i], "--free") == 0;
  std::vector<PricedCase> timed;
  std::vector<PricedCase> measured;
  std::vector<PublishedCase> published;
  for (const PricedCase& each : priced_rows(argc, argv)) {
    if (each.published.timed && each.predicted_seconds) {
      timed.push_back(each);
      published.push_back(each.published);
    }
    if (each.published.measured_bytes > 0 && each.price && !each.published.analytic)
      measured.push_back(each);
  }
  ConstantFit time(std::move(timed), freed(constants_of_time(published), free), time_target());
  report("time", time);
  const ConstantFit memory(std::move(measured), constants_of_memory(), memory_target());
  report("memory", memory);
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--each-constant") == 0)
      report_each_constant(time);
    if (std::strcmp(argv[i], "--intervals") == 0) {
      report_intervals(
          time, [](const PricedCase& row) { return time_kind(row.published.problem, *row.price).name; }, true,
          outside_of_time);
      report_pairs(time);
      report_intervals(
          memory, [](const PricedCase& row) { return memory_kind(row.published.problem).name; }, false,
          outside_of_memory);
    }
    if (std::strcmp(argv[i], "--rows") == 0) {
      report_rows(time);
      report_rows(memory);
    }
  }
  return 0;
}

}  // namespace
}  // namespace espalier

int main(int argc, char** argv) {
  try {
    return espalier::published_left_out(argc, argv);
  } catch (const std::exception& exception) {
    const espalier::Error error = espalier::error_from(exception, espalier::ExitCode::defect);
    std::fprintf(stderr, "published_left_out: error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/case_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/median.hpp"
#include "core/memory_text.hpp"
#include "io/json_by_name.hpp"
#include "io/pack/json_text.hpp"

namespace espalier {
namespace {

bool has_time(const PricedCase& each) { return each.published.timed && each.predicted_seconds; }
bool has_memory(const PricedCase& each) { return each.published.measured_bytes > 0 && each.predicted_bytes; }

bool is_compared(const PricedCase& each) { return has_time(each) || has_memory(each); }

std::string shortened(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : fmt::format("{}..", text.substr(0, width - 2));
}

std::string rows_text(const std::vector<PricedCase>& cases) {
  std::string text = fmt::format("{:<46} {:>10} {:>10} {:>8}   {:>9} {:>9} {:>7}  {}\n", "row", "predicted", "measured",
                                 "error", "predicted", "measured", "error", "layout");
  for (const PricedCase& each : cases) {
    if (!is_compared(each))
      continue;
    text += fmt::format("{:<46}", shortened(each.published.id, 46));
    if (has_time(each))
      text += fmt::format(" {:>8.4g} s {:>8.4g} s {:>+6.1f} %", *each.predicted_seconds,
                          each.published.measured_seconds, 100 * each.time_error());
    else
      text += fmt::format("{:31}", "");
    if (has_memory(each))
      text += fmt::format("   {:>5.1f} GiB {:>5.1f} GiB {:>+5.1f} %", in_gib(*each.predicted_bytes),
                          in_gib(each.published.measured_bytes), 100 * each.memory_error());
    else
      text += fmt::format("{:30}", "");
    if (const int experts = each.published.problem.implementation.experts.count; experts > 0)
      text += fmt::format("  {} experts (train has none),", experts);
    text += fmt::format("  {}", each.price ? each.price->layout.text() : each.published.one_block ? "one block" : "");
    text += each.too_large.empty() ? "\n" : fmt::format(" (predicted: {})\n", each.too_large);
  }
  return text;
}

std::string reasons_text(const std::vector<PricedCase>& cases) {
  std::string text;
  for (const PricedCase& each : cases)
    if (!is_compared(each))
      text += fmt::format("not priced: {}: {}\n", each.published.id, each.published.why_not);
  return text;
}

std::string line(const std::string& name, const ErrorSummary& errors, std::size_t all) {
  const std::string counts = fmt::format("{:<66} {:>3} of {:>3}: ", name, errors.count, all);
  if (errors.count == 0)
    return counts + "none is priced\n";
  return counts + fmt::format("median {:>5.1f} %, p95 {:>5.1f} %, worst {:>5.1f} %, bias {:>+5.1f} %\n",
                              100 * errors.median, 100 * errors.p95, 100 * errors.worst, 100 * errors.bias);
}

std::string heading(const std::string& subject, const std::string& rows) {
  return fmt::format(
      "\n{} by source: of the {} how many are priced, and the errors of these "
      "(bias: their median with its sign)\n",
      subject, rows);
}

std::string last_line(const ErrorSummary& errors, std::size_t all) {
  const std::string counts = fmt::format("priced {} of {} timed rows: ", errors.count, all);
  if (errors.count == 0)
    return counts + (all == 0 ? "no row has a time to compare with\n" : "none, so there is no error to tell\n");
  return counts + fmt::format("median {:.1f} %, p95 {:.1f} %, worst {:.1f} %\n", 100 * errors.median, 100 * errors.p95,
                              100 * errors.worst);
}

struct Group {
  std::vector<double> errors;
  std::size_t all = 0;
};

std::string groups_text(const std::vector<std::string>& order, const std::map<std::string, Group>& groups) {
  std::string text;
  for (const std::string& name : order)
    if (const Group& group = groups.at(name); group.all > 0)
      text += line(name, summary_of(group.errors), group.all);
  return text;
}

// Errors by source, in the order of the table, and of all.
struct Summaries {
  std::vector<std::string> order;
  std::map<std::string, Group> time;
  std::map<std::string, Group> memory;
  Group all;  // of time
  Group analytic;
  Group measured;
};

Summaries summaries_of(const std::vector<PricedCase>& cases) {
  Summaries made;
  for (const PricedCase& each : cases) {
    const std::string& source = each.published.origin;
    if (!made.time.contains(source))
      made.order.push_back(source);
    Group& mine = made.time[source];
    Group& mine_memory = made.memory[source];
    if (each.published.timed) {
      ++mine.all;
      ++made.all.all;
      if (has_time(each)) {
        mine.errors.push_back(each.time_error());
        made.all.errors.push_back(each.time_error());
      }
    }
    if (each.published.measured_bytes > 0) {
      Group& kind = each.published.analytic ? made.analytic : made.measured;
      ++mine_memory.all;
      ++kind.all;
      if (has_memory(each)) {
        mine_memory.errors.push_back(each.memory_error());
        kind.errors.push_back(each.memory_error());
      }
    }
  }
  return made;
}

// Errors of nothing are no numbers.
nlohmann::ordered_json to_json(const Group& group) {
  const ErrorSummary errors = summary_of(group.errors);
  if (errors.count == 0)
    return {{"rows", group.all}, {"priced", 0}};
  return {{"rows", group.all}, {"priced", errors.count}, {"median", errors.median},
          {"p95", errors.p95}, {"worst", errors.worst},  {"bias", errors.bias}};
}

}  // namespace

ErrorSummary summary_of(std::vector<double> errors) {
  ErrorSummary summary{.count = errors.size()};
  if (errors.empty())
    return summary;
  summary.bias = median_of(errors);
  for (double& error : errors)
    error = std::abs(error);
  std::sort(errors.begin(), errors.end());
  summary.median = median_of(errors);
  const auto rank = static_cast<std::size_t>(std::ceil(0.95 * static_cast<double>(errors.size())));
  summary.p95 = errors[std::max<std::size_t>(rank, 1) - 1];
  summary.worst = errors.back();
  return summary;
}

std::string case_report(const std::vector<PricedCase>& cases) {
  const auto [order, time, memory, all, analytic, measured] = summaries_of(cases);
  std::string text = rows_text(cases) + "\n" + reasons_text(cases);
  if (analytic.all + measured.all > 0)
    text += heading("memory", "rows with memory") + groups_text(order, memory);
  for (const auto& [name, group] : {std::pair("all analytic rows", analytic), {"all measured rows", measured}})
    if (group.all > 0)
      text += line(name, summary_of(group.errors), group.all);
  if (all.all > 0)
    text += heading("time", "timed rows") + groups_text(order, time);
  text += fmt::format("\n{}", last_line(summary_of(all.errors), all.all));
  return text;
}

std::string case_report_json(const std::vector<PricedCase>& cases) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const PricedCase& each : cases) {
    nlohmann::ordered_json row{
        {"id", each.published.id}, {"source", each.published.source}, {"origin", each.published.origin}};
    if (has_time(each))
      row.update({{"predicted_seconds", *each.predicted_seconds},
                  {"measured_seconds", each.published.measured_seconds},
                  {"error", each.time_error()}});
    if (has_memory(each))
      row.update({{"predicted_bytes", *each.predicted_bytes},
                  {"measured_bytes", each.published.measured_bytes},
                  {"memory_error", each.memory_error()}});
    if (each.price) {
      if (!each.too_large.empty())
        row["too_large"] = each.too_large;
      row["layout"] = each.price->layout.text();
      row["seconds"] = json_by_name<Phase>(each.price->seconds.seconds);
      row["memory"] =
          json_by_name<Category>(each.price->memory[static_cast<std::size_t>(each.price->peak_stage)].bytes);
    }
    if (!each.published.why_not.empty())
      row["why_not"] = each.published.why_not;
    rows.push_back(std::move(row));
  }
  const Summaries summaries = summaries_of(cases);
  nlohmann::ordered_json json{
      {"rows", rows},
      {"time", to_json(summaries.all)},
      {"memory", {{"analytic", to_json(summaries.analytic)}, {"measured", to_json(summaries.measured)}}},
      {"sources", nlohmann::ordered_json::array()}};
  for (const std::string& source : summaries.order)
    json["sources"].push_back({{"origin", source},
                               {"time", to_json(summaries.time.at(source))},
                               {"memory", to_json(summaries.memory.at(source))}});
  return json_text(json, 1) + "\n";
}

}  // namespace espalier

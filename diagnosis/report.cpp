// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/report.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "diagnosis/chart_scale.hpp"
#include "diagnosis/diagnose.hpp"
#include "diagnosis/report_cards.hpp"
#include "io/own_output.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

constexpr std::uintmax_t most_bytes_at_end = 256u << 20;

std::string name_of(const RecordedRun& run) {
  std::error_code error;
  const Path absolute = std::filesystem::absolute(run.directory, error);
  const Path normal = (error ? run.directory : absolute).lexically_normal();
  return normal.has_filename() ? normal.filename().string() : normal.parent_path().filename().string();
}

std::string subtitle_of(const RecordedRun& run) {
  if (run.steps.empty())
    return "no step was recorded";
  return fmt::format("{}, {} tokens", counted(static_cast<Index>(run.steps.size()), "step"),
                     count_text(static_cast<double>(run.steps.back().tokens)));
}

// What run.json says is what counts, but a process that is gone says nothing any more.
std::string cause_of(const RecordedRun& run, const Finding* grave) {
  switch (run.life) {
    case Life::gone:
      return fmt::format(
          "run.json says running, but process {} on {} is gone: killed before it could sign off. `espalier diagnose` "
          "says where its ranks were.",
          run.record.pid, run.record.host);
    case Life::silent:
      return fmt::format(
          "run.json says running, but there is no sign of life since {:%Y-%m-%d %H:%M} UTC; whether process {} on {} "
          "still runs cannot be seen from here. `espalier diagnose` says where its ranks were.",
          fmt::gmtime(static_cast<std::time_t>(run.last_sign_of_life)), run.record.pid, run.record.host);
    case Life::signed_off:
    case Life::alive: break;
  }
  const std::string spoilt = grave != nullptr ? grave->title : "";
  return run.record.cause + (run.record.cause.empty() || spoilt.empty() ? "" : "\n") + spoilt;
}

// A page is drawn of any run: what cannot be diagnosed is missing from it.
Diagnosis diagnosis_for_page(const RecordedRun& run, std::vector<std::string>& gaps) {
  try {
    return diagnose(run);
  } catch (const Error& error) {
    gaps.push_back(fmt::format("what stands out: {}", error.report().what));
    return {};
  }
}

std::vector<ReportFinding> findings_of(const Diagnosis& diagnosis) {
  std::vector<ReportFinding> findings;
  for (const Finding& finding : diagnosis.findings) {
    ReportFinding shown{
        .heading = heading(concern_of(finding.cause)), .title = finding.title, .evidence = finding.evidence};
    if (finding.seconds > 0)
      shown.cost = fmt::format("{} of a step, {:.0f} %", seconds_text(finding.seconds), 100 * finding.share);
    for (const Change& change : finding.changes)
      shown.changes.push_back(change.priced_by.empty()
                                  ? change.setting
                                  : fmt::format("{}: gains {} a step ({})", change.setting,
                                                seconds_text(change.gain_seconds), change.priced_by));
    findings.push_back(std::move(shown));
  }
  return findings;
}

void add(std::vector<ReportCard>& cards, std::optional<ReportCard> card) {
  if (card)
    cards.push_back(std::move(*card));
}

std::uintmax_t bytes_of_records(const Path& run) {
  std::error_code error;
  std::uintmax_t bytes = std::filesystem::file_size(run / "metrics.jsonl", error);
  if (error)
    bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run / "ranks", error))
    if (const std::uintmax_t more = entry.file_size(error); !error)
      bytes += more;
  return bytes;
}

}  // namespace

std::string report_html(const RecordedRun& run) {
  std::vector<std::string> gaps = run.gaps;
  const Diagnosis diagnosis = diagnosis_for_page(run, gaps);
  const Finding* const grave = gravest(diagnosis);
  ReportPage page{.title = name_of(run),
                  .subtitle = subtitle_of(run),
                  .state = run.record.state,
                  .verdict = grave != nullptr ? grave->verdict : "",
                  .cause = cause_of(run, grave),
                  .tiles = report_tiles(run),
                  .facts = report_facts(run),
                  .findings = findings_of(diagnosis),
                  .cards = curve_cards(run),
                  .gaps = std::move(gaps),
                  .footer = fmt::format("Drawn {:%Y-%m-%d %H:%M} UTC from {}", fmt::gmtime(std::time(nullptr)),
                                        run.directory.string())};
  add(page.cards, memory_card(run));
  add(page.cards, phases_card(run));
  add(page.cards, ranks_card(run));
  try {
    add(page.cards, timeline_card(run));
  } catch (const Error& error) {
    page.gaps.push_back(fmt::format("the timeline: {}", error.report().what));
  }
  if (run.traces.empty() && run.setup.trace_steps == 0)
    page.gaps.emplace_back("no trace/: the timeline of a step is drawn for runs with run.trace_steps=1");
  if (run.steps.size() == 1)
    page.gaps.emplace_back("only one step was recorded: a curve is a point");
  return to_html(page);
}

void write_report(const RecordedRun& run, const Path& output) {
  write_output(output, {.kind = "a report", .begin = "<!DOCTYPE html>\n", .part = " - Espalier report</title>"},
               report_html(run));
}

std::string write_report_at_end(const Path& run) noexcept {
  try {
    if (const std::uintmax_t bytes = bytes_of_records(run); bytes > most_bytes_at_end)
      return fmt::format("the records of this run are {}: `espalier report {}` draws them", bytes_text(bytes),
                         run.string());
    write_report(read_recorded_run(run), run / "report.html");
    return {};
  } catch (const std::exception& error) {
    return fmt::format("report.html could not be written: {}", error.what());
  }
}

}  // namespace espalier

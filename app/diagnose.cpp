// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/diagnose.hpp"

#include <fmt/format.h>

#include <memory>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/print.hpp"
#include "diagnosis/recorded_run.hpp"
#include "diagnosis/report.hpp"
#include "io/records/run_paths.hpp"

namespace espalier {
namespace {

struct DiagnoseArguments {
  std::string run;
  std::string against;
  bool json = false;
};

int diagnose_command(const DiagnoseArguments& options) {
  const RecordedRun run = read_recorded_run(options.run);
  std::optional<RecordedRun> against;
  if (!options.against.empty())
    against = read_recorded_run(options.against);
  const Diagnosis diagnosis = diagnose(run, against ? &*against : nullptr);
  print_answer("{}", options.json ? diagnosis_json(run, diagnosis) : diagnosis_text(run, diagnosis));
  return 0;
}

struct ReportArguments {
  std::string run;
  std::string output;
  bool json = false;
};

int report(const ReportArguments& options) {
  if (options.json) {
    print_answer("{}", report_json(read_recorded_run(options.run)));
    return 0;
  }
  const Path output = options.output.empty() ? Path(options.run) / RunFile::report : Path(options.output);
  write_report(read_recorded_run(options.run), output);
  print_answer("wrote {}\n", output.string());
  return 0;
}

}  // namespace

void add_diagnose(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<DiagnoseArguments>();
  CLI::App* const command =
      app.add_subcommand("diagnose", "Find out why a run is slow, unstable or dead, and what to change");
  command->add_option("run", options->run, "run.directory of the run")->required()->type_name("RUN");
  command
      ->add_option("--against", options->against,
                   "compare with another run: what differs, and which difference explains the times")
      ->type_name("RUN");
  command->add_flag("--json", options->json, "print JSON; docs/diagnose.md lists the fields");
  command->footer(
      "  espalier diagnose runs/today\n"
      "  espalier diagnose runs/today --against runs/yesterday\n"
      "  espalier diagnose runs/today --json | jq '.findings[0]'");
  command->callback([options, command, &chosen] {
    refuse_empty_values(*command);
    chosen.prints_only = true;
    chosen.action = [options](Runtime*) { return diagnose_command(*options); };
  });
}

void add_report(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<ReportArguments>();
  CLI::App* const command =
      app.add_subcommand("report", "Write an HTML page about a run: findings, curves, times, memory and timeline");
  command->add_option("run", options->run, "directory of a run, running or ended")->required();
  CLI::Option* const output =
      command->add_option("--output", options->output, "file to write; default: RUN/report.html")
          ->type_name("FILE.html");
  command
      ->add_flag("--json", options->json,
                 "print the data of the page and write no file; docs/report.md lists the fields")
      ->excludes(output);
  command->footer(
      "  espalier report runs/quickstart\n"
      "  espalier report runs/quickstart --output quickstart.html\n"
      "  espalier report runs/quickstart --json | jq .head");
  command->callback([options, command, &chosen] {
    refuse_empty_values(*command);
    chosen.action = [options](Runtime*) { return report(*options); };
  });
}

}  // namespace espalier

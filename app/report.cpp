// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/report.hpp"

#include <fmt/format.h>

#include <memory>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/print.hpp"
#include "app/read_run.hpp"

namespace espalier {
namespace {

struct ReportArguments {
  std::string run;
  std::string output;
  bool json = false;
};

int report(const ReportArguments& options) {
  if (options.json) {
    print_answer("{}", report_json(read_run(options.run)));
    return 0;
  }
  const Path output = options.output.empty() ? Path(options.run) / "report.html" : Path(options.output);
  write_report(read_run(options.run), output);
  print_answer("wrote {}\n", output.string());
  return 0;
}

}  // namespace

void add_report(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<ReportArguments>();
  CLI::App* const command = app.add_subcommand(
      "report", "Write the page of a run: one HTML file with its findings, curves, times, memory and timeline");
  command->add_option("run", options->run, "directory of a run, running or ended")->required();
  CLI::Option* const output =
      command->add_option("--output", options->output, "file to write; default: RUN/report.html")
          ->type_name("FILE.html");
  command
      ->add_flag("--json", options->json, "print the data of the page, write no file; the fields are in docs/report.md")
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

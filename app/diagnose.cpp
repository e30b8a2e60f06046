// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "diagnosis/diagnose.hpp"

#include <fmt/format.h>

#include <memory>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/print.hpp"
#include "app/read_run.hpp"

namespace espalier {
namespace {

struct DiagnoseArguments {
  std::string run;
  std::string against;
  bool json = false;
};

int diagnose_command(const DiagnoseArguments& options) {
  const RecordedRun run = read_run(options.run);
  std::optional<RecordedRun> against;
  if (!options.against.empty())
    against = read_run(options.against);
  const Diagnosis diagnosis = diagnose(run, against ? &*against : nullptr);
  print_answer("{}", options.json ? diagnosis_json(run, diagnosis) : diagnosis_text(run, diagnosis));
  return 0;
}

}  // namespace

void add_diagnose(CLI::App& app, Chosen& chosen) {
  const auto options = std::make_shared<DiagnoseArguments>();
  CLI::App* const command =
      app.add_subcommand("diagnose", "Say where the time and the stability of a run went, and what to change");
  command->add_option("run", options->run, "run.directory of the run")->required()->type_name("RUN");
  command
      ->add_option("--against", options->against,
                   "compare with another run: what differs, and what of it explains the times")
      ->type_name("RUN");
  command->add_flag("--json", options->json, "print JSON; the fields are in docs/diagnose.md");
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

}  // namespace espalier

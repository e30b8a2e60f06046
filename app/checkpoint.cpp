// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/console.hpp"
#include "app/convert.hpp"
#include "app/print.hpp"
#include "core/printable_text.hpp"
#include "core/tensor.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/units.hpp"
#include "training/checkpoint/stored_state.hpp"
#include "training/config/stored_config.hpp"

namespace espalier {
namespace {

int inspect(const std::string& directory, bool whole_config) {
  const CheckpointReader checkpoint(resolve_checkpoint(directory, note_to_stderr));
  const StoredState state = read_state(checkpoint);
  const auto show = [](const char* name, const std::string& value) {
    print_answer("  {:<10} {}\n", name, printable_line(value));
  };
  print_answer("{}\n", checkpoint.path().string());
  show("run", checkpoint.info().run);
  show("step", fmt::format("{}", checkpoint.info().step));
  show("written by", checkpoint.info().layout.text.empty() ? "an unknown layout" : checkpoint.info().layout.text);
  show("loss", fmt::format("{}", state.loss));
  show("seen", fmt::format("{}, {}", counted(state.tokens, "token"), counted(state.data_position, "sample")));
  if (const auto& next = state.next_loss)
    show("next loss", fmt::format("{} of the next {}, in {}", next->loss, counted(next->samples, "sample"),
                                  next->compute.empty() ? "?" : next->compute));
  show("seed", fmt::format("{}", state.seed));
  show("GEMM", state.matmul.empty() ? "an unknown library" : state.matmul);
  print_answer("\n{}\n", whole_config ? state.config : model_section(state.config));
  Index elements = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    print_answer("  {:<44} {:<5} {}\n", printable_line(tensor.name), to_string(tensor.type),
                 shape_text(tensor.global_shape));
    elements += num_elements(tensor.global_shape);
  }
  std::size_t bytes = 0;
  for (const StoredFile& file : checkpoint.files())
    bytes += static_cast<std::size_t>(file.bytes);
  print_answer("\n  {}, {}, {} in {}\n", counted(static_cast<Index>(checkpoint.tensors().size()), "tensor"),
               counted(elements, "element"), bytes_text(bytes),
               counted(static_cast<Index>(checkpoint.files().size()), "file"));
  return 0;
}

void verify_one(const Path& path) {
  const CheckpointReader checkpoint(path);
  read_state(checkpoint);
  const Index bytes = checkpoint.verify();
  print_answer("{}: {} read, every checksum is right\n", path.string(), bytes_text(static_cast<std::size_t>(bytes)));
}

// Of a run all, but for saves that were never finished: damage is told whichever of them it is in.
int verify(const std::string& directory) {
  const Path newest = resolve_checkpoint(directory);
  if (newest == directory) {
    verify_one(newest);
    return 0;
  }
  std::string damaged;
  Index of_others = 0;
  for (const CheckpointEntry& entry : checkpoints_of_run(directory, of_others)) {
    if (entry.unfinished)
      continue;
    try {
      verify_one(entry.path);
    } catch (const Error& error) {
      damaged += fmt::format("\n  {}: {}", entry.path.string(), entry.complete ? error.report().what : entry.reason);
    }
  }
  if (!damaged.empty())
    throw Error(ExitCode::checkpoint,
                {.what = "damaged checkpoints:" + damaged,
                 .where = directory,
                 .wanted = "checkpoints whose every checksum is right",
                 .todo = "restore them from a copy; a launch resumes from the newest intact one"});
  if (of_others > 0)
    note_to_stderr(fmt::format("{} of other runs in the same place: not read", counted(of_others, "checkpoint")));
  return 0;
}

CLI::App* add_subcommand_of_a_checkpoint(CLI::App& parent, const std::string& name, const char* help,
                                         const std::string& whole_run, const std::shared_ptr<std::string>& directory) {
  CLI::App* const command = parent.add_subcommand(name, help);
  command->add_option("directory", *directory, whole_run + ", or RUN/checkpoints/step-XXXXXXXX")->required();
  command->footer("  espalier checkpoint " + name + " runs/quickstart");
  return command;
}

void add_checkpoint_inspect(CLI::App& parent, Chosen& chosen) {
  const auto directory = std::make_shared<std::string>();
  const auto whole_config = std::make_shared<bool>(false);
  CLI::App* const command =
      add_subcommand_of_a_checkpoint(parent, "inspect", "Step, layout, data position, [model] and a table of tensors",
                                     "a run, for its newest complete checkpoint", directory);
  command->add_flag("--config", *whole_config, "the whole config of the run that wrote it, instead of [model]");
  command->callback([=, &chosen] { chosen.action = [=](Runtime*) { return inspect(*directory, *whole_config); }; });
}

void add_checkpoint_verify(CLI::App& parent, Chosen& chosen) {
  const auto directory = std::make_shared<std::string>();
  CLI::App* const command = add_subcommand_of_a_checkpoint(parent, "verify", "Read every byte against its checksum",
                                                           "a run, for all its checkpoints", directory);
  command->callback([=, &chosen] { chosen.action = [=](Runtime*) { return verify(*directory); }; });
}

}  // namespace

void add_checkpoint(CLI::App& app, Chosen& chosen) {
  CLI::App* const command = app.add_subcommand("checkpoint", "Look inside a checkpoint, check it, convert it");
  command->require_subcommand(1);
  command->footer("  espalier checkpoint verify runs/quickstart");
  add_checkpoint_inspect(*command, chosen);
  add_checkpoint_verify(*command, chosen);
  add_checkpoint_import(*command, chosen);
  add_checkpoint_export(*command, chosen);
}

}  // namespace espalier

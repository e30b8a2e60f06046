// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "app/commands.hpp"
#include "app/console.hpp"
#include "core/tensor.hpp"
#include "io/checkpoint_directory.hpp"
#include "io/checkpoint_reader.hpp"
#include "io/units.hpp"
#include "training/stored_config.hpp"

namespace espalier {
namespace {

int inspect(const std::string& directory) {
  const CheckpointReader checkpoint(resolve_checkpoint(directory));
  const nlohmann::json& state = checkpoint.state();
  fmt::print("{}\n  run      {}\n  step     {}\n  written  by {}\n  loss     {}\n  tokens   {} seen\n\n",
             checkpoint.path().string(), checkpoint.info().run, checkpoint.info().step,
             checkpoint.info().layout.value("text", "an unknown layout"), state.value("loss", 0.0),
             state.value("tokens", Index{0}));
  fmt::print("{}\n", model_section(state.value("config", "")));
  Index elements = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    fmt::print("  {:<44} {:<5} {}\n", tensor.name, to_string(tensor.type), shape_text(tensor.global_shape));
    elements += num_elements(tensor.global_shape);
  }
  std::size_t bytes = 0;
  for (const StoredFile& file : checkpoint.files())
    bytes += static_cast<std::size_t>(file.bytes);
  fmt::print("\n  {}, {}, {} in {}\n", counted(static_cast<Index>(checkpoint.tensors().size()), "tensor"),
             counted(elements, "element"), bytes_text(bytes),
             counted(static_cast<Index>(checkpoint.files().size()), "file"));
  return 0;
}

int verify(const std::string& directory) {
  const CheckpointReader checkpoint(resolve_checkpoint(directory));
  const Index bytes = checkpoint.verify();
  fmt::print("{}: {} read, every checksum is right\n", checkpoint.path().string(),
             bytes_text(static_cast<std::size_t>(bytes)));
  return 0;
}

void add(CLI::App& parent, Chosen& chosen, const std::string& name, const char* help,
         int (*action)(const std::string&)) {
  const auto directory = std::make_shared<std::string>();
  CLI::App* const command = parent.add_subcommand(name, help);
  command
      ->add_option("directory", *directory,
                   "a run, for its newest complete checkpoint, or RUN/checkpoints/step-XXXXXXXX")
      ->required();
  command->footer("  espalier checkpoint " + name + " runs/quickstart");
  command->callback([=, &chosen] { chosen.action = [=](Runtime*) { return action(*directory); }; });
}

}  // namespace

void add_checkpoint(CLI::App& app, Chosen& chosen) {
  CLI::App* const command = app.add_subcommand("checkpoint", "Look inside a checkpoint and check it");
  command->require_subcommand(1);
  command->footer("  espalier checkpoint verify runs/quickstart");
  add(*command, chosen, "inspect", "Step, layout, [model] and a table of tensors", inspect);
  add(*command, chosen, "verify", "Read every byte against its checksum", verify);
}

}  // namespace espalier

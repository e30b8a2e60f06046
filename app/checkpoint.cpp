// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "app/command_line.hpp"
#include "app/commands.hpp"
#include "app/console.hpp"
#include "app/print.hpp"
#include "core/printable_text.hpp"
#include "core/tensor.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/partial_directory.hpp"
#include "io/config/key_reader.hpp"
#include "io/records/run_paths.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "training/checkpoint/checkpoint_tokenizer.hpp"
#include "training/checkpoint/stored_state.hpp"
#include "training/config/stored_config.hpp"
#include "training/pretrained/hugging_face.hpp"

// `espalier checkpoint import` and `export`: models of Hugging Face.

namespace espalier {
namespace {

struct ConvertArguments {
  std::string from;
  std::string output;
  std::string dtype = "fp32";
  std::string shard_size = "5 GB";
  bool dry_run = false;
};

void print_tensor(const std::string& name, ScalarType type, const std::vector<Index>& shape, const std::string& other) {
  print_answer("  {:<44} {:<5} {:<16} {}\n", printable_line(name), to_string(type), shape_text(shape), other);
}

// What a dry run ends with.
void print_plan(const std::string& output, Index tensors, std::size_t bytes, const std::vector<std::string>& files) {
  print_answer("\nwould write {}: {} of {}, in {}\n", printable_line(output), counted(tensors, "tensor"),
               bytes_text(bytes), fmt::join(files, ", "));
}

void print_model(const HuggingFaceModel& model) {
  const ModelConfig& config = model.config;
  print_answer("{}: {} layers, hidden size {}, {} heads, vocabulary {}, {} parameters\n", to_string(model.architecture),
               config.num_layers, config.hidden_size, config.num_heads, config.vocab_size, num_parameters(config));
}

// The fingerprint of the model's tokenizer. One that cannot be used is copied all the same.
std::string tokenizer_name(const Path& directory) {
  if (!has_tokenizer(directory))
    return "";
  try {
    return load_tokenizer(directory.string())->name();
  } catch (const Error& error) {
    note_to_stderr(fmt::format("warning: the model's tokenizer cannot be used: {}", error.report().what));
    return "";
  }
}

// Nothing is written into what is read.
void require_outside(const Path& from, const Path& output) {
  const auto whole = [](const Path& path) {
    std::error_code ignored;
    return (std::filesystem::weakly_canonical(std::filesystem::absolute(path), ignored) / "").lexically_normal();
  };
  if (whole(output).string().starts_with(whole(from).string()))
    throw Error(ExitCode::usage, {.what = "the output would lie inside the input directory",
                                  .where = output.string(),
                                  .wanted = fmt::format("a folder outside {}", from.string()),
                                  .todo = "choose another --output"});
}

int import_model(const ConvertArguments& arguments) {
  const HuggingFaceWeights weights(arguments.from);
  require_outside(arguments.from, arguments.output);
  print_model(weights.model());
  if (arguments.dry_run) {
    require_new_directory(arguments.output);
    std::size_t bytes = 0;
    for (const HuggingFaceParameter& parameter : weights.parameters()) {
      print_tensor(parameter.name, weights.type(parameter), parameter.shape, "from " + parameter.part.tensor);
      bytes += tensor_bytes(parameter.shape, weights.type(parameter));
    }
    std::vector<std::string> files = {"checkpoints/step-00000000"};
    for (const std::string& name : tokenizer_files(arguments.from))
      files.push_back("tokenizer/" + name);
    print_plan(arguments.output, static_cast<Index>(weights.parameters().size()), bytes, files);
    return 0;
  }
  PartialDirectory output(arguments.output);
  const Path name =
      import_hugging_face(weights, arguments.from, output.path(), tokenizer_name(arguments.from)).filename();
  output.publish();
  const Path checkpoint = Path(arguments.output) / RunFolder::checkpoints / name;
  print_answer(
      "wrote {}\nto use it, run espalier train CONFIG.toml --init-from {}, with this model in CONFIG.toml:\n\n{}",
      checkpoint.string(), arguments.output, changed_model_section(stored_config(CheckpointReader(checkpoint))));
  if (const Index length = usual_sequence_length(weights.model().config);
      length < weights.model().config.max_sequence_length)
    print_answer("\n[batch]\nsequence_length = {}  # or another one that fits the memory\n", length);
  return 0;
}

ScalarType type_named(const std::string& name) {
  for (const ScalarType type : all_scalar_types)
    if (name == to_string(type))
      return type;
  throw Error(ExitCode::usage, {.what = "--dtype: unknown type",
                                .got = name,
                                .wanted = fmt::format("one of {}", fmt::join(words_of(all_scalar_types), ", ")),
                                .todo = "name one of these"});
}

Index shard_bytes_of(const std::string& text) {
  const std::optional<Index> bytes = parse_bytes(text);
  if (bytes && *bytes > 0)
    return *bytes;
  throw Error(ExitCode::usage, {.what = "--shard-size: not a size",
                                .got = text,
                                .wanted = "bytes, such as 5 GB",
                                .todo = "change --shard-size"});
}

int export_model(const ConvertArguments& arguments) {
  const ScalarType type = type_named(arguments.dtype);
  const Index shard_bytes = shard_bytes_of(arguments.shard_size);
  const CheckpointReader checkpoint(resolve_checkpoint(arguments.from));
  require_outside(checkpoint.path(), arguments.output);
  ExportPlan plan = plan_export(checkpoint, type);
  plan.model.token_ids = kept_token_ids(tokenizer_beside(checkpoint.path()));
  print_model(plan.model);
  std::vector<std::string> files = tokenizer_files(tokenizer_beside(checkpoint.path()));
  if (arguments.dry_run) {
    require_new_directory(arguments.output);
    std::size_t bytes = 0;
    for (const SafetensorsWriter::Tensor& tensor : plan.tensors) {
      print_tensor(tensor.name, tensor.type, tensor.shape, "");
      bytes += tensor_bytes(tensor.shape, tensor.type);
    }
    std::ranges::copy(SafetensorsWriter(arguments.output, plan.tensors, shard_bytes).files(),
                      std::back_inserter(files));
    files.emplace_back(hugging_face_config_name);
    print_plan(arguments.output, static_cast<Index>(plan.tensors.size()), bytes, files);
    return 0;
  }
  PartialDirectory output(arguments.output);
  copy_tokenizer(tokenizer_beside(checkpoint.path()), output.path());
  std::ranges::copy(export_hugging_face(checkpoint, plan, output.path(), shard_bytes), std::back_inserter(files));
  output.publish();
  print_answer("wrote {}: {}\n", arguments.output, fmt::join(files, ", "));
  return 0;
}

void require_names(const CLI::App& command, const ConvertArguments& arguments) {
  refuse_empty_values(command);
  if (arguments.from.empty())
    throw CLI::ValidationError("directory", "is empty");
}

void add_checkpoint_import(CLI::App& parent, Chosen& chosen) {
  const auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* const command = parent.add_subcommand("import", "Make a checkpoint from a Hugging Face model");
  command->add_option("directory", arguments->from, "a directory with config.json and model.safetensors")->required();
  command->add_option("--output", arguments->output, "new directory, for `espalier train --init-from`")->required();
  command->add_flag("--dry-run", arguments->dry_run, "print what would be written, but write nothing");
  command->footer("  espalier checkpoint import gpt2/ --output models/gpt2");
  command->callback([=, &chosen] {
    require_names(*command, *arguments);
    chosen.action = [=](Runtime*) { return import_model(*arguments); };
  });
}

void add_checkpoint_export(CLI::App& parent, Chosen& chosen) {
  const auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* const command = parent.add_subcommand("export", "Write a checkpoint as a Hugging Face model");
  command->add_option("directory", arguments->from, "a run (its newest checkpoint), or RUN/checkpoints/step-XXXXXXXX")
      ->required();
  command->add_option("--output", arguments->output, "new directory, for transformers' from_pretrained()")->required();
  command->add_option(
      "--dtype", arguments->dtype,
      fmt::format("type of the weights, one of {}; default fp32", fmt::join(words_of(all_scalar_types), ", ")));
  command->add_option("--shard-size", arguments->shard_size, "largest file; default 5 GB");
  command->add_flag("--dry-run", arguments->dry_run, "print what would be written, but write nothing");
  command->footer("  espalier checkpoint export runs/quickstart --output model --dtype bf16");
  command->callback([=, &chosen] {
    require_names(*command, *arguments);
    chosen.action = [=](Runtime*) { return export_model(*arguments); };
  });
}

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
  print_answer("{}: {} read, all checksums are right\n", path.string(), bytes_text(static_cast<std::size_t>(bytes)));
}

// Of a run all, but for saves that were never finished: damage is reported whichever of them it is in.
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
                 .wanted = "checkpoints with correct checksums",
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
  command->add_flag("--config", *whole_config, "print the whole config of its run instead of [model]");
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
  CLI::App* const command = app.add_subcommand("checkpoint", "Inspect, check and convert checkpoints");
  command->require_subcommand(1);
  command->footer("  espalier checkpoint verify runs/quickstart");
  add_checkpoint_inspect(*command, chosen);
  add_checkpoint_verify(*command, chosen);
  add_checkpoint_import(*command, chosen);
  add_checkpoint_export(*command, chosen);
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// `espalier checkpoint import` and `export`: models of Hugging Face.
#include "app/convert.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "app/command_line.hpp"
#include "app/print.hpp"
#include "core/printable_text.hpp"
#include "core/tensor.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/partial_directory.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "training/checkpoint/checkpoint_tokenizer.hpp"
#include "training/config/stored_config.hpp"
#include "training/pretrained/hugging_face.hpp"

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
    throw Error(ExitCode::usage, {.what = "the result would lie in the directory that is read",
                                  .where = output.string(),
                                  .wanted = fmt::format("a folder outside {}", from.string()),
                                  .todo = "name another one in --output"});
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
  const Path checkpoint = Path(arguments.output) / "checkpoints" / name;
  print_answer("wrote {}\nuse it: espalier train CONFIG.toml --init-from {}, with this model in CONFIG.toml:\n\n{}",
               checkpoint.string(), arguments.output,
               changed_model_section(stored_config(CheckpointReader(checkpoint))));
  if (const Index length = usual_sequence_length(weights.model().config);
      length < weights.model().config.max_sequence_length)
    print_answer("\n[batch]\nsequence_length = {}  # or another one that memory has room for\n", length);
  return 0;
}

ScalarType type_named(const std::string& name) {
  for (const ScalarType type : {ScalarType::fp32, ScalarType::bf16, ScalarType::fp16, ScalarType::fp64})
    if (name == to_string(type))
      return type;
  throw Error(ExitCode::usage, {.what = "--dtype: unknown type",
                                .got = name,
                                .wanted = "fp32, bf16, fp16 or fp64",
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
    files.emplace_back("config.json");
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

}  // namespace

void add_checkpoint_import(CLI::App& parent, Chosen& chosen) {
  const auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* const command = parent.add_subcommand("import", "Make a checkpoint of a Hugging Face model");
  command->add_option("directory", arguments->from, "a directory with config.json and model.safetensors")->required();
  command->add_option("--output", arguments->output, "new directory, for `espalier train --init-from`")->required();
  command->add_flag("--dry-run", arguments->dry_run, "list what would be written, and write nothing");
  command->footer("  espalier checkpoint import gpt2/ --output models/gpt2");
  command->callback([=, &chosen] {
    require_names(*command, *arguments);
    chosen.action = [=](Runtime*) { return import_model(*arguments); };
  });
}

void add_checkpoint_export(CLI::App& parent, Chosen& chosen) {
  const auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* const command = parent.add_subcommand("export", "Write a checkpoint as a Hugging Face model");
  command
      ->add_option("directory", arguments->from, "a run, for its newest checkpoint, or RUN/checkpoints/step-XXXXXXXX")
      ->required();
  command->add_option("--output", arguments->output, "new directory, for transformers' from_pretrained()")->required();
  command->add_option("--dtype", arguments->dtype, "fp32 (default), bf16, fp16 or fp64");
  command->add_option("--shard-size", arguments->shard_size, "largest file; default 5 GB");
  command->add_flag("--dry-run", arguments->dry_run, "list what would be written, and write nothing");
  command->footer("  espalier checkpoint export runs/quickstart --output model --dtype bf16");
  command->callback([=, &chosen] {
    require_names(*command, *arguments);
    chosen.action = [=](Runtime*) { return export_model(*arguments); };
  });
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/pretrained/hugging_face.hpp"

#include <fmt/format.h>

#include "core/tensor.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_index.hpp"
#include "io/checkpoint/checkpoint_names.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/input_limits.hpp"
#include "io/json_reader.hpp"
#include "io/pack/json_text.hpp"
#include "io/records/run_paths.hpp"
#include "io/text/tokenizer_files.hpp"
#include "training/checkpoint/stored_state.hpp"
#include "training/config/run_config.hpp"
#include "training/config/stored_config.hpp"
#include "training/pretrained/hugging_face_config.hpp"
#include "training/step/loss_scaler.hpp"
#include "training/step/spike_guard.hpp"

namespace espalier {
namespace {

constexpr const char* generation_config = "generation_config.json";

// Of a run that has done nothing yet: its config holds the model, and all defaults.
CheckpointInfo info_of(const HuggingFaceModel& model, const std::string& tokenizer) {
  RunConfig config;
  config.model.shape = model.config;
  config.sequence_length = usual_sequence_length(model.config);
  CheckpointInfo info;
  info.run = "import";
  info.layout = {fmt::format("an import of {}", to_string(model.architecture)), 1};
  info.state = to_json(StoredState{.passed_over = {},
                                   .next_loss = {},
                                   .seed = config.run.seed,
                                   .tokenizer = tokenizer,
                                   .matmul = {},
                                   .config = to_toml(config),
                                   .loss_scaler = LossScaler().state(),
                                   .spike_guard = SpikeGuard({}).state(),
                                   .data_files = {}});
  return info;
}

}  // namespace

Path import_hugging_face(const HuggingFaceWeights& weights, const Path& from, const Path& directory,
                         const std::string& tokenizer) {
  weights.require_tied_head();
  const Path checkpoints = directory / RunFolder::checkpoints;
  make_directories(checkpoints);
  const CheckpointInfo info = info_of(weights.model(), tokenizer);
  Index bytes = 0;
  for (const HuggingFaceParameter& parameter : weights.parameters())
    bytes += static_cast<Index>(tensor_bytes(parameter.shape, weights.type(parameter)));
  const Path partial = begin_checkpoint(checkpoints, info.step, bytes);
  std::vector<ShardRecord> records;  // tensor by tensor, appended to one file
  std::vector<unsigned char> data;
  ShardSlot slot = own_file(0);
  for (const HuggingFaceParameter& parameter : weights.parameters()) {
    const ScalarType type = weights.type(parameter);
    data.resize(tensor_bytes(parameter.shape, type));
    weights.read(parameter, std::vector<Index>(parameter.shape.size(), 0), parameter.shape, type, data.data());
    require_finite_weights(type, data, ExitCode::data, from, parameter.part.tensor);
    const TensorBlock block =
        whole_tensor(tensor_name(weights_group, parameter.name), type, parameter.shape, data.data());
    slot.completes = &parameter == &weights.parameters().back();
    records.push_back(write_shard(partial, slot, {&block, 1}));
    ++slot.turn;
    ++slot.first_block;
  }
  std::vector<StoredBlock> blocks;
  for (const ShardRecord& record : records)
    blocks.insert(blocks.end(), record.blocks.begin(), record.blocks.end());
  copy_tokenizer(from, directory / RunFolder::tokenizer);
  keep_token_ids(from, directory / RunFolder::tokenizer);
  return publish_checkpoint(checkpoints, info, records, write_index(partial, info, blocks));
}

ExportPlan plan_export(const CheckpointReader& checkpoint, ScalarType type) {
  ExportPlan plan;
  plan.model.config = stored_model(checkpoint);
  plan.model.architecture = architecture_of(plan.model.config);
  for (const HuggingFaceParameter& parameter : hugging_face_parameters(plan.model)) {
    const std::string stored = tensor_name(weights_group, parameter.name);
    if (checkpoint.tensor(stored).global_shape != parameter.shape)
      throw Error(ExitCode::checkpoint, {.what = "a tensor of the checkpoint does not match its model",
                                         .where = checkpoint.path().string(),
                                         .got = stored + " " + shape_text(checkpoint.tensor(stored).global_shape),
                                         .wanted = shape_text(parameter.shape),
                                         .todo = "use another checkpoint"});
    if (plan.tensors.empty() || plan.tensors.back().name != parameter.part.tensor)
      plan.tensors.push_back({parameter.part.tensor, type, parameter.part.shape});
  }
  return plan;
}

std::vector<std::string> export_hugging_face(const CheckpointReader& checkpoint, const ExportPlan& plan,
                                             const Path& directory, Index shard_bytes) {
  const auto parameters = hugging_face_parameters(plan.model);
  SafetensorsWriter writer(directory, plan.tensors, shard_bytes);
  std::vector<unsigned char> tensor, ours;
  std::size_t next = 0;
  for (const SafetensorsWriter::Tensor& planned : plan.tensors) {
    tensor.resize(tensor_bytes(planned.shape, planned.type));
    // The parameters of a tensor, such as Q, K and V, are neighbours and stand one below the other, as (out, in).
    for (; next < parameters.size() && parameters[next].part.tensor == planned.name; ++next) {
      const HuggingFaceParameter& parameter = parameters[next];
      const std::size_t row = tensor_bytes({parameter.shape.begin() + 1, parameter.shape.end()}, planned.type);
      unsigned char* const target = tensor.data() + static_cast<std::size_t>(parameter.part.first) * row;
      checkpoint.read(tensor_name(weights_group, parameter.name), parameter.shape, planned.type, target);
    }
    require_finite_weights(planned.type, tensor, ExitCode::checkpoint, checkpoint.path(), planned.name);
    if (!parameters[next - 1].part.transposed) {
      writer.write(tensor.data());
      continue;
    }
    ours.resize(tensor.size());
    transpose_weights(ours.data(), tensor.data(), planned.shape.back(), planned.shape.front(), planned.type);
    writer.write(ours.data());
  }
  writer.finish();
  const ScalarType type = plan.tensors.empty() ? ScalarType::fp32 : plan.tensors.front().type;
  write_file_atomically(directory / hugging_face_config_name,
                        json_text(hugging_face_config(plan.model, type), 2) + "\n");
  std::vector<std::string> files = writer.files();
  files.emplace_back(hugging_face_config_name);
  return files;
}

std::vector<std::string> tokenizer_files(const Path& directory) {
  // What lies beside the weights and says how text is made of tokens, and tokens are chosen.
  const std::string names[] = {TokenizerFile::json,
                               TokenizerFile::config,
                               "special_tokens_map.json",
                               "vocab.json",
                               "merges.txt",
                               TokenizerFile::model,
                               tiktoken_rules(TokenizerFile::model).string(),
                               "added_tokens.json",
                               TokenizerFile::chat_template,
                               generation_config};
  std::vector<std::string> found;
  std::error_code missing;
  for (const std::string& name : names)
    if (std::filesystem::is_regular_file(directory / name, missing))
      found.push_back(name);
  return found;
}

void copy_tokenizer(const Path& from, const Path& to) {
  for (const std::string& name : tokenizer_files(from)) {
    make_directories(to);
    write_file_atomically(to / name, read_file(from / name, ExitCode::data, LargestFile::manifest));
  }
}

void keep_token_ids(const Path& from, const Path& to) {
  std::error_code missing;
  if (std::filesystem::exists(to / generation_config, missing))
    return;
  std::string text;
  if (std::filesystem::is_regular_file(from / generation_config, missing))
    text = read_file(from / generation_config, ExitCode::data, LargestFile::manifest);
  else if (kind_of_directory(from) == DirectoryKind::hugging_face)
    if (const auto ids = read_hugging_face_config(from).token_ids; !ids.empty())
      text = json_text(ids, 2) + "\n";
  if (text.empty())
    return;
  make_directories(to);
  write_file_atomically(to / generation_config, text);
}

nlohmann::ordered_json kept_token_ids(const Path& directory) {
  const Path path = directory / generation_config;
  std::error_code missing;
  if (!std::filesystem::exists(path, missing))
    return nlohmann::ordered_json::object();
  std::string reason;
  try {
    return token_ids_in(parse_json(read_file(path, ExitCode::data, LargestFile::record)));
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    reason = error.what();
  }
  throw Error(ExitCode::data, {.what = "the ids of special tokens cannot be read",
                               .where = path.string(),
                               .got = reason,
                               .wanted = fmt::format("{} as transformers writes it", generation_config),
                               .todo = "correct the file or remove it"});
}

}  // namespace espalier

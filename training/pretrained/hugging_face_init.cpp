// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/pretrained/hugging_face_init.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "io/checkpoint/block_copy.hpp"
#include "io/input_limits.hpp"
#include "models/model_section.hpp"
#include "parallel/collectives/agreement.hpp"
#include "training/checkpoint/training_state.hpp"
#include "training/config/config_visitors.hpp"
#include "training/pretrained/hugging_face_weights.hpp"

namespace espalier {
namespace {

std::string key_of(const std::string& setting) { return setting.substr(0, setting.find('=')); }

// Those keys that the file or the command line give.
std::set<std::string> given_keys(const Path& config_file, const std::vector<std::string>& overrides) {
  std::set<std::string> keys;
  for (const std::string& setting : overrides)
    keys.insert(key_of(setting));
  for (const ConfigDifference& key : diff_configs("", read_file(config_file, ExitCode::usage, LargestFile::config)))
    keys.insert(key.key);
  return keys;
}

// Without settings that change nothing of the weights.
ModelConfig in_one_way(ModelConfig model) {
  model.qkv_bias = model.has_qkv_bias();
  if (model.window_of(model.num_layers - 1) == 0)
    model.window = model.full_layers = 0;
  if (model.positions != Positions::learned)
    model.max_sequence_length = 1;  // the longest sequence is no part of what is computed
  model.rotary.size = model.rotary_size();
  if (model.positions != Positions::rotary)
    model.rotary = {};
  model.embedding_dropout = model.attention_dropout = model.residual_dropout = 0;
  return model;
}

// Numbers of 16 bits may overflow where the file does not: the first step reports it.
void read_box(const HuggingFaceWeights& weights, const WantedBox& box) {
  const std::string name = box.name.substr(box.name.find('/') + 1);
  const HuggingFaceParameter& parameter = weights.parameter(name);
  weights.read(parameter, box.start, box.count, box.type, box.destination);
  const std::size_t bytes = tensor_bytes(box.count, box.type);
  const auto* const data = static_cast<const unsigned char*>(box.destination);
  if (size_of(box.type) > 2)
    require_finite_weights(box.type, {data, bytes}, ExitCode::data, weights.directory(), parameter.part.tensor);
}

}  // namespace

void require_same_model(const HuggingFaceWeights& weights, const RunConfig& config) {
  ModelConfig of_file = in_one_way(weights.model().config), of_run = in_one_way(config.model.shape);
  if (of_file.positions != of_run.positions)  // that is the difference; of one kind the lengths mean nothing
    of_file.max_sequence_length = of_run.max_sequence_length;
  const std::vector<std::string> theirs = settings_of(of_file), ours = settings_of(of_run);
  std::string differences;
  for (std::size_t i = 0; i < theirs.size(); ++i)
    if (ours[i] != theirs[i])
      differences += fmt::format("\n  {}, and config.json says {}", ours[i], theirs[i].substr(theirs[i].find('=') + 1));
  if (!differences.empty())
    throw Error(
        ExitCode::usage,
        {.what = "the config and config.json describe different models:" + differences,
         .where = weights.directory().string(),
         .todo = "correct these keys; or leave out [model] and [rotary], then config.json describes the model"});
}

std::vector<std::string> settings_from_hugging_face(const Path& directory, const Path& config_file,
                                                    const std::vector<std::string>& overrides) {
  if (kind_of_directory(directory) != DirectoryKind::hugging_face)
    return {};
  const std::set<std::string> given = given_keys(config_file, overrides);
  if (given.contains("model.preset"))
    return {};
  const ModelConfig model = read_hugging_face_config(directory).config;
  std::vector<std::string> settings = settings_of(model);
  if (!given.contains("model.max_sequence_length"))
    settings.push_back(fmt::format("batch.sequence_length={}", usual_sequence_length(model)));
  std::erase_if(settings, [&](const std::string& setting) { return given.contains(key_of(setting)); });
  return settings;
}

void load_hugging_face_weights(const Path& directory, const RunConfig& config, const Communicator& world,
                               const Trainer& trainer) {
  attempt_together(world, ExitCode::data, [&] {
    const HuggingFaceWeights weights(directory);
    require_same_model(weights, config);
    if (world.rank() == 0)
      weights.require_tied_head();
    load_weights(
        [&](std::span<const WantedBox> boxes) {
          for (const WantedBox& box : boxes)
            read_box(weights, box);
        },
        trainer);
  });
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/verify/saved_reference.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/ops/matmul_library.hpp"
#include "io/checkpoint/checkpoint_directory.hpp"
#include "io/checkpoint/checkpoint_reader.hpp"
#include "io/checkpoint/checkpoint_writer.hpp"
#include "io/json_fields.hpp"
#include "io/pack/json_text.hpp"
#include "io/tokens/token_file.hpp"
#include "io/units.hpp"
#include "models/declared_parameters.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/collectives.hpp"
#include "training/checkpoint/stored_state.hpp"
#include "training/config/data_files.hpp"
#include "training/config/stored_config.hpp"
#include "training/loop/check_token_files.hpp"
#include "training/step/loss_scaler.hpp"

namespace espalier {
namespace {

// Of the keys that a resumed run may change, those that leave the numbers alone. Checksums compare the data.
bool may_differ(const std::string& key) {
  const bool changes_numbers = is_dropout(key) || key.starts_with("optimizer.") || key.starts_with("precision.") ||
                               key == "run.steps" || key == "run.tokens";
  return key == "model.preset" || names_files(key) || (may_change_on_resume(key) && !changes_numbers);
}

// Of each file to train on: "5000 tokens, checksum 0123456789abcdef". Of formats without one it is of samples.
nlohmann::json token_files(const RunConfig& config) {
  nlohmann::json files = nlohmann::json::array();
  for (const std::string& path : token_files_of(config.data.train)) {
    const TokenFile file(path);
    files.push_back(
        fmt::format("{}, checksum {}", counted(file.num_tokens(), "token"), file.fingerprint(false).checksum()));
  }
  return files;
}

std::string list_of(const nlohmann::json& texts) {
  std::string list;
  for (const nlohmann::json& text : texts)
    list += (list.empty() ? "" : "; ") + (text.is_string() ? text.get<std::string>() : json_text(text));
  return list.empty() ? "none" : list;
}

// From the oldest on, none missing. @throws Error (checkpoint).
Index count_steps(const Path& directory) {
  const std::vector<CheckpointEntry> entries = find_checkpoints(directory);
  const auto refuse = [&](const std::string& what, const std::string& got) {
    throw Error(ExitCode::checkpoint,
                {.what = what,
                 .where = directory.string(),
                 .got = got,
                 .wanted = "step-00000001, step-00000002, ... as `espalier verify --save` writes them",
                 .todo = "name the folder of --save, or save the reference again"});
  };
  if (entries.empty())
    refuse("there is no saved reference", "no folder step-XXXXXXXX");
  Index step = static_cast<Index>(entries.size());
  for (const CheckpointEntry& entry : entries) {  // newest first
    if (!entry.complete)
      refuse("a step of the saved reference is not complete",
             fmt::format("{}: {}", entry.path.filename().string(), entry.reason));
    if (entry.step != step--)
      refuse("a step of the saved reference is missing", entry.path.filename().string());
  }
  return static_cast<Index>(entries.size());
}

void require_same_config(const CheckpointReader& reference, const RunConfig& config) {
  const auto theirs = reference.state().find(reference_files_key);
  if (theirs == reference.state().end())
    throw Error(ExitCode::checkpoint, {.what = "this checkpoint is not a step of a saved reference",
                                       .where = reference.path().string(),
                                       .wanted = "one that `espalier verify --save` has written"});
  std::string lines;
  for (const ConfigDifference& difference : differences_from(stored_config(reference), config))
    if (!may_differ(difference.key))
      lines += fmt::format("\n  {}: {} -> {}", difference.key, difference.old_value, difference.new_value);
  if (!lines.empty())
    throw Error(ExitCode::usage, {.what = "the reference was saved with another config:" + lines,
                                  .where = reference.path().string(),
                                  .wanted = "the same model, batch, optimizer, precision and seed",
                                  .todo = "use the config of the reference (`espalier checkpoint inspect --config` "
                                          "shows it), or save another one"});
  const nlohmann::json ours = token_files(config);
  if (*theirs != ours)
    throw Error(ExitCode::data, {.what = "the reference was saved with other token files",
                                 .where = reference.path().string(),
                                 .got = list_of(ours),
                                 .wanted = list_of(*theirs),
                                 .todo = "copy the token files along with the reference"});
}

std::string array_name(std::size_t array, const std::string& tensor) {
  return fmt::format("{}/{}", snapshot_array_names[array], tensor);
}

// All arrays of all tensors, whole, on rank 0. Collective.
class WholeArrays {
 public:
  WholeArrays(const Communicator& world, const Snapshot& snapshot, const std::vector<Parameter>& whole,
              ScalarType state)
      : state_(state) {
    std::vector<std::vector<LogicalTensor>> groups = in_groups(logical_tensors(whole));
    for (std::size_t array = 0; array < snapshot.arrays.size(); ++array)
      for (std::vector<LogicalTensor>& group : groups) {
        assemble(world, snapshot.arrays[array], group);
        if (world.rank() == 0)
          for (LogicalTensor& tensor : group)
            add(array_name(array, tensor.name), tensor);
      }
  }

  const std::vector<TensorBlock>& blocks() const { return blocks_; }

 private:
  void add(const std::string& name, LogicalTensor& tensor) {
    const void* const values = state_ == ScalarType::fp64 ? keep(doubles_, tensor) : keep(floats_, tensor);
    blocks_.push_back(whole_tensor(name, state_, tensor.shape, values));
    tensor.values = {};
  }

  template <class S>
  static const void* keep(std::vector<std::vector<S>>& values, const LogicalTensor& tensor) {
    return values.emplace_back(tensor.values.begin(), tensor.values.end())
        .data();  // as exact: they come from this type
  }

  ScalarType state_;
  std::vector<std::vector<float>> floats_;  // whose own arrays stay where they are
  std::vector<std::vector<double>> doubles_;
  std::vector<TensorBlock> blocks_;
};

CheckpointInfo info_of(const Snapshot& snapshot, Index step, const RunConfig& config, const std::string& layout) {
  return {.run = "reference",
          .step = step,
          .layout = {.text = layout},
          .state = {{"loss", snapshot.loss},
                    {"gradient_norm", snapshot.gradient_norm},
                    {"steps_done", snapshot.steps_done},
                    {"data_position", snapshot.data_position},
                    {"loss_scale", snapshot.loss_scaler},
                    {"seed", config.run.seed},
                    {"config", to_toml(config)},
                    {reference_files_key, token_files(config)},
                    {"matmul", to_string(matmul_library())}}};
}

void read_snapshot(const CheckpointReader& reader, const std::vector<Parameter>& whole, Snapshot& snapshot) {
  const nlohmann::json& state = reader.state();
  snapshot.loss = field<double>(state, "loss");
  snapshot.gradient_norm = field<double>(state, "gradient_norm");
  snapshot.steps_done = field<Index>(state, "steps_done", steps_range);
  snapshot.data_position = field<Index>(state, "data_position", steps_range);
  snapshot.loss_scaler = object_field(state, "loss_scale");
  LossScaler().restore(snapshot.loss_scaler);  // is it one?
  Index flat_size = 0;
  for (const Parameter& parameter : whole)
    flat_size = std::max(flat_size, parameter.flat_range().end);
  for (std::size_t array = 0; array < snapshot.arrays.size(); ++array) {
    snapshot.arrays[array] = {whole, {{0, flat_size}}, std::vector<double>(static_cast<std::size_t>(flat_size), 0.0)};
    for (LogicalTensor& tensor : logical_tensors(whole)) {
      tensor.values.resize(static_cast<std::size_t>(num_elements(tensor.shape)));
      reader.read(array_name(array, tensor.name), tensor.shape, ScalarType::fp64, tensor.values.data());
      scatter(tensor, whole, snapshot.arrays[array].values);
    }
  }
}

}  // namespace

void save_reference(const RunConfig& config, const VerifyOptions& options, const Communicator& world,
                    const Path& directory, const std::function<void(const std::string&)>& done) {
  const auto on_root = [&](const std::function<void()>& action) {
    attempt_together(world, ExitCode::write, [&] {
      if (world.rank() == 0)
        action();
    });
  };
  on_root([&] {
    std::error_code error;
    const bool is_new = !std::filesystem::exists(directory, error) && !error;
    if (!is_new && !std::filesystem::is_directory(directory, error))
      throw Error(ExitCode::usage, {.what = "the steps of a reference are written into a folder",
                                    .where = directory.string(),
                                    .got = "a file",
                                    .wanted = "a new or empty folder",
                                    .todo = "name another one"});
    if (!is_new && !std::filesystem::is_empty(directory, error))
      throw Error(ExitCode::usage, {.what = find_checkpoints(directory).empty()
                                                ? "the folder of --save has other files"
                                                : "the folder of --save holds a reference or checkpoints already",
                                    .where = directory.string(),
                                    .wanted = "a new or empty folder",
                                    .todo = "name another one, or remove it"});
  });
  check_token_files(config, world);
  const std::vector<Parameter> whole = whole_parameters(config.model.shape);
  Reference reference(config, options, world);
  for (Index step = 1; step <= options.steps; ++step) {
    const Snapshot snapshot = reference.step();
    const WholeArrays arrays(world, snapshot, whole, types_of_run(config).state());
    on_root([&] {
      const Path path = save_checkpoint(directory, info_of(snapshot, step, config, reference.text()), arrays.blocks());
      done(fmt::format("{}: loss {:.6f}, gradient norm {:.6f}, {}", path.string(), snapshot.loss,
                       snapshot.gradient_norm, reference.text()));
    });
  }
}

SavedReference::SavedReference(const Path& directory, const RunConfig& config, const Communicator& world)
    : directory_(directory), world_(world) {
  attempt_together(world, ExitCode::checkpoint, [&] {
    if (world.rank() != 0)
      return;
    num_steps_ = count_steps(directory);
    require_same_config(CheckpointReader(checkpoint_path(directory, 1)), config);
  });
  broadcast(world, std::span<Index>(&num_steps_, 1), 0);
}

Snapshot SavedReference::step(Index step, const std::vector<Parameter>& whole) const {
  Snapshot snapshot;
  attempt_together(world_, ExitCode::checkpoint, [&] {
    if (world_.rank() == 0)
      read_snapshot(CheckpointReader(checkpoint_path(directory_, step + 1)), whole, snapshot);
  });
  share_numbers(snapshot, world_);
  return snapshot;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/checkpoint/training_state.hpp"

#include <fmt/format.h>

#include <set>
#include <sstream>

#include "core/ops/finite.hpp"
#include "core/ops/matmul_library.hpp"
#include "core/with_scalar_type.hpp"
#include "io/checkpoint/checkpoint_names.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/texts.hpp"
#include "training/checkpoint/next_loss.hpp"
#include "training/checkpoint/sharded_save.hpp"
#include "training/checkpoint/stored_state.hpp"
#include "training/config/run_layout.hpp"
#include "training/config/stored_config.hpp"
#include "training/step/matmul_choices.hpp"

namespace espalier {
namespace {

StoredState state_of(const Trainer& trainer, const RunConfig& config) {
  return {.step = trainer.steps_done(),
          .data_position = trainer.data_position(),
          .passed_over = trainer.passed_over(),
          .tokens = trainer.tokens(),
          .loss = trainer.last_loss(),
          .next_loss = {},
          .seed = config.run.seed,
          .tokenizer = trainer.tokenizer(),
          .matmul = to_string(matmul_library()),
          .config = to_toml(config),
          .kokkos = KOKKOS_VERSION,
          .loss_scaler = trainer.loss_scaler().state(),
          .spike_guard = trainer.spike_guard().state(),
          .data_files = trainer.data_files()};
}

CheckpointInfo info_of(const Trainer& trainer, const RunConfig& config, const ProcessMesh& mesh,
                       const std::string& run_name, const std::string& owner, const StoredState& state) {
  return {.run = run_name,
          .step = trainer.steps_done(),
          .layout = {make_run_layout(config, mesh.world().size()).short_text(), mesh.world().size()},
          .state = to_json(state),
          .owner = owner};
}

// Of every rank all that it holds: replicas as well, which nobody writes.
void require_finite_state(const Trainer& trainer, const Communicator& world) {
  attempt_together(world, ExitCode::numerical, [&] {
    for (const UniqueArray& unique : unique_arrays(trainer, {}))
      if (const std::string tensor = not_finite_tensor(ExecSpace(), trainer.parameters(), unique.array);
          !tensor.empty())
        throw Error(ExitCode::numerical,
                    {.what = "the training diverged: an update left numbers that are not finite",
                     .where = fmt::format("{}, after step {}", tensor, trainer.steps_done()),
                     .got = "nan or inf",
                     .wanted = "finite numbers",
                     .todo = fmt::format("nothing was saved of this step; {}", todo_when_diverged)});
  });
}

void require_sound_moments(const CheckpointReader& checkpoint, const Trainer& trainer) {
  const TrainedArrays arrays = trainer.arrays();
  const Index element = with_state_type(arrays.exp_avg.type, [&]<class S>() {
    return first_unsound_moment<S>(ExecSpace(), arrays.exp_avg.values<S>(), arrays.exp_avg_sq.values<S>());
  });
  if (const std::string tensor = tensor_at(trainer.parameters(), arrays.exp_avg_sq, element); !tensor.empty())
    throw Error(ExitCode::checkpoint,
                {.what = "a checkpoint holds impossible optimizer moments",
                 .where = checkpoint.path().string(),
                 .got = "a negative second moment, or a first moment far above its root, in " + tensor,
                 .wanted = "the moments of an AdamW optimizer",
                 .todo = "use an older checkpoint"});
}

// A checkpoint of another model is refused as a whole, before anything is read. Tensors of other stages are known by
// their names only.
void require_tensors(const CheckpointReader& checkpoint, const std::vector<Parameter>& parameters,
                     const std::vector<std::string>& model_tensors) {
  const auto refuse = [&](const std::string& got, const std::string& wanted) {
    throw of_another_model(checkpoint, "", got, wanted);
  };
  for (const Parameter& parameter : parameters) {
    const std::string name = tensor_name(weights_group, parameter.spec.name);
    if (!checkpoint.contains(name))
      refuse("no tensor " + name, name + " " + shape_text(parameter.spec.shape));
    if (checkpoint.tensor(name).global_shape != parameter.spec.shape)
      refuse(name + " " + shape_text(checkpoint.tensor(name).global_shape),
             name + " " + shape_text(parameter.spec.shape));
  }
  std::set<std::string> expected;
  for (const std::string& tensor : model_tensors) {
    const std::string name = tensor_name(weights_group, tensor);
    expected.insert(name);
    if (!checkpoint.contains(name))
      refuse("no tensor " + name, "all tensors of the model");
  }
  for (const TensorInfo& tensor : checkpoint.tensors())
    if (tensor.name.starts_with(tensor_name(weights_group, "")) && !expected.contains(tensor.name))
      refuse("a tensor " + tensor.name + " that the model has not", "only the model's tensors");
}

UniqueArray unique_weights(const Trainer& trainer, const StateOwnership& ownership) {
  const TrainedArrays arrays = trainer.arrays();
  return {arrays.master_weights, arrays.has_master_weights() ? ownership.moments : ownership.weights};
}

}  // namespace

StateOwnership ownership_of(const Trainer& trainer) {
  return {.weights = trainer.unique_weights(), .moments = trainer.unique_owned()};
}

std::vector<UniqueArray> unique_arrays(const Trainer& trainer, const StateOwnership& ownership) {
  const TrainedArrays arrays = trainer.arrays();
  return {
      unique_weights(trainer, ownership), {arrays.exp_avg, ownership.moments}, {arrays.exp_avg_sq, ownership.moments}};
}

CheckpointInfo checkpoint_info(Trainer& trainer, const RunConfig& config, const ProcessMesh& mesh,
                               const std::string& run_name, const std::string& owner) {
  require_finite_state(trainer, mesh.world());
  StoredState state = state_of(trainer, config);
  state.matmul_kernels = gather_matmul_choices(mesh.world());
  if (config.checkpoint.check_loss)
    state.next_loss = next_loss_of(trainer);
  else if (trainer.steps_done() == config.total_steps())
    require_finite_loss(trainer);
  return info_of(trainer, config, mesh, run_name, owner, state);
}

KeptCheckpoints kept_checkpoints(const RunConfig& config) {
  return {config.checkpoint.keep_last, config.checkpoint.keep_every};
}

Path save_training_state(const Path& directory, Trainer& trainer, const RunConfig& config, const ProcessMesh& mesh,
                         const std::string& run_name, const StateOwnership& ownership, const std::string& owner) {
  const auto ours = view_state(ExecSpace(), trainer.parameters(), unique_arrays(trainer, ownership));
  return save_sharded(directory, checkpoint_info(trainer, config, mesh, run_name, owner), ours.blocks, ours.tensors,
                      mesh.world(), config.checkpoint.ranks_per_file, kept_checkpoints(config));
}

Path save_weights(const Path& directory, const Trainer& trainer, const RunConfig& config, const ProcessMesh& mesh,
                  const std::string& run_name, const StateOwnership& ownership, const std::string& owner) {
  const auto ours = view_state(ExecSpace(), trainer.parameters(), {unique_weights(trainer, ownership)});
  return save_sharded(directory, info_of(trainer, config, mesh, run_name, owner, state_of(trainer, config)),
                      ours.blocks, ours.tensors, mesh.world(), config.checkpoint.ranks_per_file);
}

std::vector<std::string> names_of(const std::vector<Parameter>& parameters) {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters)
    names.push_back(parameter.spec.name);
  return names;
}

std::vector<std::string> model_tensors(const Communicator& world, const std::vector<Parameter>& parameters) {
  std::string ours;
  for (const Parameter& parameter : parameters)
    ours += parameter.spec.name + '\n';
  std::set<std::string> names;
  for (const std::string& lines : gather_texts(world, ours)) {
    std::istringstream stream(lines);
    for (std::string name; std::getline(stream, name);)
      names.insert(name);
  }
  return broadcast_texts(world, {names.begin(), names.end()}, 0);
}

void require_tensors(const CheckpointReader& checkpoint, const std::vector<Parameter>& parameters) {
  require_tensors(checkpoint, parameters, names_of(parameters));
}

void load_weights(const CheckpointReader& checkpoint, const std::vector<Parameter>& parameters,
                  const FlatArray& weights, const std::vector<std::string>& model_tensors) {
  require_tensors(checkpoint, parameters, model_tensors);
  read_flat_arrays(ExecSpace(), checkpoint, parameters, {weights});
}

void load_weights(const CheckpointReader& checkpoint, const Trainer& trainer,
                  const std::vector<std::string>& model_tensors) {
  require_tensors(checkpoint, trainer.parameters(), model_tensors);
  read_flat_arrays(ExecSpace(), checkpoint, trainer.parameters(), trainer.arrays().weights_and_master_weights());
}

void load_weights(const ReadBoxes& read, const Trainer& trainer) {
  read_flat_arrays(ExecSpace(), read, trainer.parameters(), trainer.arrays().weights_and_master_weights());
}

void load_training_state(const CheckpointReader& checkpoint, Trainer& trainer,
                         const std::vector<std::string>& model_tensors) {
  const StoredState state = read_state(checkpoint);
  load_weights(checkpoint, trainer, model_tensors);
  const TrainedArrays arrays = trainer.arrays();
  read_flat_arrays(ExecSpace(), checkpoint, trainer.parameters(), {arrays.exp_avg});
  read_flat_arrays(ExecSpace(), checkpoint, trainer.parameters(), {arrays.exp_avg_sq});
  require_sound_moments(checkpoint, trainer);
  trainer.restore(state.step, state.data_position, state.loss);
  trainer.loss_scaler().restore(state.loss_scaler);
  if (!state.spike_guard.is_null())
    trainer.spike_guard().restore(state.spike_guard);
  trainer.set_passed_over(state.passed_over);
}

}  // namespace espalier

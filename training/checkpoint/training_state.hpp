// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/checkpoint/checkpoint_reader.hpp"
#include "training/checkpoint/state_to_write.hpp"
#include "training/step/trainer.hpp"

namespace espalier {

/// What this rank writes of the training state, as ranges of the flat arrays. One rank must own each element of each
/// logical tensor: one of the replicas, and one of the two stages with a tied embedding. Ranges may begin and end in
/// the padding between parameters.
struct StateOwnership {
  std::vector<IndexRange> weights;
  std::vector<IndexRange> moments;  ///< within what the optimizer holds
};

/// Ownership in a trainer: its unique ranges.
StateOwnership ownership_of(const Trainer& trainer);

/// Master weights (or weights, where there are none) and both moments.
std::vector<UniqueArray> unique_arrays(const Trainer& trainer, const StateOwnership& ownership);

/// All other state. `owner`: the id of the run. Collective over the mesh. @throws Error (numerical) for a state that
/// must not be saved: weights, master weights or moments that are not finite, or weights that give no finite loss
/// (checked with checkpoint.check_loss, and after the last step).
CheckpointInfo checkpoint_info(Trainer& trainer, const RunConfig& config, const ProcessMesh& mesh,
                               const std::string& run_name, const std::string& owner = {});

/// Which of a run's checkpoints stay.
KeptCheckpoints kept_checkpoints(const RunConfig& config);

/// Writes weights, both moments and all other state under `directory`/step-XXXXXXXX, each rank its own part.
/// Collective over the mesh. @returns the checkpoint's path. @throws Error on all ranks when any failed.
Path save_training_state(const Path& directory, Trainer& trainer, const RunConfig& config, const ProcessMesh& mesh,
                         const std::string& run_name, const StateOwnership& ownership, const std::string& owner = {});

/// The same without moments: a checkpoint that load_weights() reads, and that no run can resume from.
Path save_weights(const Path& directory, const Trainer& trainer, const RunConfig& config, const ProcessMesh& mesh,
                  const std::string& run_name, const StateOwnership& ownership, const std::string& owner = {});

std::vector<std::string> names_of(const std::vector<Parameter>& parameters);

/// The names of the parameters of all ranks, sorted, each once: what a checkpoint of the whole model must hold.
/// Collective.
std::vector<std::string> model_tensors(const Communicator& world, const std::vector<Parameter>& parameters);

/// Makes the trainer resume exactly where a checkpoint of any layout was saved. Reads what this rank holds.
/// Not collective. @throws Error (checkpoint) when it is damaged or belongs to another model than `model_tensors`.
void load_training_state(const CheckpointReader& checkpoint, Trainer& trainer,
                         const std::vector<std::string>& model_tensors);

/// The checkpoint must be of the model that has these parameters, which need no memory yet. On a rank that holds the
/// whole model. @throws Error (checkpoint)
void require_tensors(const CheckpointReader& checkpoint, const std::vector<Parameter>& parameters);

/// Weights only: a new run that starts from them; master weights as well.
void load_weights(const CheckpointReader& checkpoint, const Trainer& trainer,
                  const std::vector<std::string>& model_tensors);

/// The same from elsewhere than a checkpoint. `read` fills the boxes of "weights/NAME" that this rank holds.
void load_weights(const ReadBoxes& read, const Trainer& trainer);

/// Weights without an optimizer.
void load_weights(const CheckpointReader& checkpoint, const std::vector<Parameter>& parameters,
                  const FlatArray& weights, const std::vector<std::string>& model_tensors);
template <class T>
void load_weights(const CheckpointReader& checkpoint, const ParameterStore<T>& store,
                  const std::vector<std::string>& model_tensors) {
  load_weights(checkpoint, store.parameters(), weights_of(store), model_tensors);
}

/// The same on a rank that holds the whole model.
template <class T>
void load_weights(const CheckpointReader& checkpoint, const ParameterStore<T>& store) {
  load_weights(checkpoint, store, names_of(store.parameters()));
}

}  // namespace espalier

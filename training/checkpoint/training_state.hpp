// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/checkpoint/checkpoint_reader.hpp"
#include "training/checkpoint/state_to_write.hpp"
#include "training/step/trainer.hpp"

namespace espalier {

/// What this rank writes of the training state, as runs of the store's flat arrays. Over all ranks together every
/// element of every logical tensor must be in exactly one: of replicas one writes, of the two copies of a tied table,
/// too. Runs may begin and end in the padding between parameters.
struct StateOwnership {
  std::vector<IndexRange> weights;
  std::vector<IndexRange> moments;  ///< within what the optimizer holds
};

/// Ownership where all ranks hold the same: one of them writes everything.
template <class T>
StateOwnership ownership_of_one(const ParameterStore<T>& parameters, bool is_writer);

/// Ownership in a trainer: what the rank counts.
template <class P>
StateOwnership ownership_of(const Trainer<P>& trainer);

/// Masters (or weights, where there are none) and both moments.
template <class P>
std::vector<CountedArray<State<Compute<P>>>> counted_arrays(const Trainer<P>& trainer, const StateOwnership& ownership);

/// All other state. `owner`: the id of the run. Collective over the mesh. @throws Error (numerical) for a trainer whose
/// state is not to be saved: weights, masters or moments that are not finite, or weights that give no finite loss
/// (checked with checkpoint.check_loss, and after the last step).
template <class P>
CheckpointInfo checkpoint_info(Trainer<P>& trainer, const RunConfig& config, const ProcessMesh& mesh,
                               const std::string& run_name, const std::string& owner = {});

/// Which of a run's checkpoints stay.
KeptCheckpoints kept_checkpoints(const RunConfig& config);

/// Writes weights, both moments and all other state under `directory`/step-XXXXXXXX, each rank its own part.
/// Collective over the mesh. @returns the checkpoint's path. @throws Error on all ranks when any failed.
template <class P>
Path save_training_state(const Path& directory, Trainer<P>& trainer, const RunConfig& config, const ProcessMesh& mesh,
                         const std::string& run_name, const StateOwnership& ownership, const std::string& owner = {});

/// The same without moments: a checkpoint that load_weights() reads, and that no run can go on from.
template <class P>
Path save_weights(const Path& directory, const Trainer<P>& trainer, const RunConfig& config, const ProcessMesh& mesh,
                  const std::string& run_name, const StateOwnership& ownership, const std::string& owner = {});

/// The names of the parameters of all ranks, sorted, each once: what a checkpoint of the whole model must hold.
/// Collective.
template <class T>
std::vector<std::string> model_tensors(const Communicator& world, const ParameterStore<T>& parameters);

/// Makes the trainer go on exactly where the checkpoint was saved, by whatever layout. Reads what this rank holds.
/// Not collective. @throws Error (checkpoint) when it is damaged or belongs to another model than `model_tensors`.
template <class P>
void load_training_state(const CheckpointReader& checkpoint, Trainer<P>& trainer,
                         const std::vector<std::string>& model_tensors);

/// The checkpoint must be of the model that has these parameters, which need no memory yet. On a rank that holds the
/// whole model. @throws Error (checkpoint)
template <class T>
void require_tensors(const CheckpointReader& checkpoint, const ParameterStore<T>& parameters);

/// Weights only: a new run that starts from them; masters as well.
template <class P>
void load_weights(const CheckpointReader& checkpoint, const Trainer<P>& trainer,
                  const std::vector<std::string>& model_tensors);

/// The same from elsewhere than a checkpoint. `read` fills the boxes of "weights/NAME" that this rank holds.
template <class P>
void load_weights(const ReadBoxes& read, const Trainer<P>& trainer);

/// Weights without an optimizer.
template <class T>
void load_weights(const CheckpointReader& checkpoint, const ParameterStore<T>& parameters,
                  const std::vector<std::string>& model_tensors);

/// The same on a rank that holds the whole model.
template <class T>
void load_weights(const CheckpointReader& checkpoint, const ParameterStore<T>& parameters);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/checkpoint.hpp"
#include "training/trainer.hpp"

namespace espalier {

/// Writes weights, both moments and all other state under `directory`/step-XXXXXXXX. Collective over the mesh; rank 0
/// writes, the others wait. @returns the checkpoint's path.
template <class T>
Path save_training_state(const Path& directory, const Trainer<T>& trainer, const RunConfig& config,
                         const ProcessMesh& mesh, const std::string& run_name);

/// Makes the trainer go on exactly where the checkpoint was saved. @throws Error (checkpoint) when it is damaged or
/// belongs to another model.
template <class T>
void load_training_state(const CheckpointReader& checkpoint, Trainer<T>& trainer);

/// Weights only: a new run that starts from them.
template <class T>
void load_weights(const CheckpointReader& checkpoint, const ParameterStore<T>& parameters);

}  // namespace espalier

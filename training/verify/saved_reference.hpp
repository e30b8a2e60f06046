// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/file.hpp"
#include "training/verify/verify_reference.hpp"

namespace espalier {

/// Runs the first steps of the reference and saves them, for a comparison by another program: a build for GPUs with one
/// for CPUs. Each step is DIRECTORY/step-XXXXXXXX, a checkpoint of the tensors "weights_before/NAME" and so on
/// (snapshot_array_names), whose state holds loss, gradient norm, config and the checksums of the token files. Rank 0
/// holds all of it in memory, some 60 bytes a parameter. `done` is called on rank 0. Collective.
/// @throws Error (usage) where the directory holds some already; (write).
void save_reference(const RunConfig& config, const VerifyOptions& options, const Communicator& world,
                    const Path& directory, const std::function<void(const std::string&)>& done);

/// The steps that save_reference() has left. All of it is collective, every error on all ranks.
class SavedReference {
 public:
  /// @throws Error (checkpoint) where there is none, or a damaged one; (usage) where it is of another config, whose
  /// keys are listed, but for those that only say how it is computed; (data) where it was trained on other tokens.
  SavedReference(const Path& directory, const RunConfig& config, const Communicator& world);

  Index num_steps() const { return num_steps_; }

  /// A step from 0 on, all of it on rank 0. `whole`: the parameters of one rank. @throws Error (checkpoint).
  Snapshot step(Index step, const std::vector<Parameter>& whole) const;

 private:
  Path directory_;
  const Communicator& world_;
  Index num_steps_ = 0;
};

}  // namespace espalier

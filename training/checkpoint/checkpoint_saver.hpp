// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "training/checkpoint/training_state.hpp"

namespace espalier {

/// The saves of a run. With checkpoint.async the state is copied, and a thread writes the copy while training
/// continues; that thread makes no MPI calls, and no other thread calls HDF5 meanwhile. All ranks agree between steps:
/// then a save that all ranks have written is published, and a write that failed on any rank is an error. save(),
/// poll() and drain() are collective over the mesh.
class CheckpointSaver {
 public:
  using Note = std::function<void(const std::string&)>;

  /// Allocates the copy, if one is to be made. What is given must outlive it. `owner`: the id of the run, on all ranks.
  /// `while_waiting` is called by all ranks, some times a second, while they wait for a save in flight.
  CheckpointSaver(const RunConfig& config, const Path& checkpoints, const ProcessMesh& mesh, Trainer& trainer,
                  Note note, std::string owner = {}, std::function<void()> while_waiting = {});
  ~CheckpointSaver();  ///< gives up a save that is being written

  /// Saves the trainer's state of now. Returns when it is published, with checkpoint.async when it is copied; then
  /// waits for the save before, if that is still being written. @throws Error (write), also of the save before;
  /// (numerical) where the state is none to resume from (checkpoint_info()).
  void save();

  /// Call between steps: publishes a save that all ranks have written. @throws Error (write).
  void poll();

  /// Waits for the save in flight, if there is one, and publishes it. @throws Error (write).
  void drain();

  /// Takes the validation loss of the current state. If it is not finite, the save of this step is cancelled, or
  /// renamed if it is published already, so that nothing resumes from it. @throws Error (numerical) then.
  void judge(double validation_loss);

  /// Seconds for which saves have blocked training since the last call.
  double take_seconds() { return std::exchange(seconds_, 0.0); }

 private:
  struct BackgroundSave;  // a save that is being written

  void wait_for_the_one_before();
  bool is_writing();
  void end_turn();
  void prune(Index newest);

  const RunConfig& config_;
  Path checkpoints_;
  const ProcessMesh& mesh_;
  Trainer& trainer_;
  Note note_;
  std::string owner_;
  std::function<void()> while_waiting_;
  double seconds_ = 0;
  Index waits_ = 0;
  std::optional<StateCopy> copy_;
  std::unique_ptr<BackgroundSave> in_flight_;  // last: its thread reads the copy
};

}  // namespace espalier

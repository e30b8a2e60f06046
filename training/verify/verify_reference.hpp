// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "io/checkpoint/checkpoint_names.hpp"
#include "training/step/trainer.hpp"
#include "training/verify/logical_tensors.hpp"
#include "training/verify/verify.hpp"

namespace espalier {

/// The arrays stored of a step: weights and moments before it, its gradients, the weights after it.
enum class SnapshotArray { weights_before, exp_avg, exp_avg_sq, gradients, weights_after };
inline constexpr std::array<const char*, 5> snapshot_array_names = {"weights_before", exp_avg_group, exp_avg_sq_group,
                                                                    "gradients", "weights_after"};

/// One step of the reference, each rank's part.
struct Snapshot {
  std::array<ShardedCopy, snapshot_array_names.size()> arrays;
  ShardedCopy& operator[](SnapshotArray array) { return arrays[static_cast<std::size_t>(array)]; }
  const ShardedCopy& operator[](SnapshotArray array) const { return arrays[static_cast<std::size_t>(array)]; }
  double loss = 0;
  double gradient_norm = 0;
  Index steps_done = 0;     ///< before it
  Index data_position = 0;  ///< before it
  nlohmann::json loss_scaler;
};

/// Broadcasts it from rank 0, but for the arrays. Collective.
void share_numbers(Snapshot& snapshot, const Communicator& world);

/// The reference: a trainer on the ranks of its layout, nothing on the others.
class Reference {
 public:
  Reference(const RunConfig& config, const VerifyOptions& options, const Communicator& world);

  /// The next step. Collective over the world.
  Snapshot step();

  /// Layout::short_text(), on rank 0.
  const std::string& text() const { return text_; }

 private:
  bool taken(Snapshot& snapshot);

  const Communicator& world_;
  Communicator group_;
  bool takes_part_ = false;
  std::string text_;
  std::optional<ProcessMesh> mesh_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "training/step/trainer.hpp"
#include "training/verify/logical_tensors.hpp"
#include "training/verify/verify.hpp"

namespace espalier {

/// What is kept of a step: weights and moments before it, its gradients, the weights after it.
enum class SnapshotArray { weights_before, exp_avg, exp_avg_sq, gradients, weights_after };
inline constexpr std::array<const char*, 5> snapshot_array_names = {"weights_before", "exp_avg", "exp_avg_sq",
                                                                    "gradients", "weights_after"};

/// All that one step of the reference did, each rank's part.
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

/// All of it but the arrays goes from rank 0 to the others. Collective.
void share_numbers(Snapshot& snapshot, const Communicator& world);

/// The reference: a trainer on the ranks that take part in it, nothing on the others.
template <class P>
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
  std::unique_ptr<Trainer<P>> trainer_;
};

}  // namespace espalier

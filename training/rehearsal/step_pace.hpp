// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "models/layer_partition.hpp"
#include "parallel/mesh/process_mesh.hpp"
#include "training/config/run_config.hpp"
#include "training/rehearsal/operation_pace.hpp"

namespace espalier {

/// Lets what this rank computes in a step last as long as --emulate says, by sleeping in it.
class StepPace : public StepObserver {
 public:
  /// Observes the rank as long as it lives, where anything is emulated. `mesh` must outlive it.
  StepPace(const RunConfig& config, const Layout& layout, const ProcessMesh& mesh);
  ~StepPace() override;
  StepPace(const StepPace&) = delete;
  StepPace& operator=(const StepPace&) = delete;

  void work_begins(Phase phase, const Operation* operation) override;
  void block_done(double communicated, const std::function<void()>& progress) override;

 private:
  OperationPace pace_of(const Operation& operation) const;

  RunConfig::Emulate emulate_;
  std::vector<ChunkLayers> chunks_;
  const ProcessMesh& mesh_;
  std::optional<OperationPace> pace_;
};

}  // namespace espalier

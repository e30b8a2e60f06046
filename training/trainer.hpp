// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "core/ops/norm.hpp"
#include "parallel/process_mesh.hpp"
#include "training/forward_backward.hpp"
#include "training/run_config.hpp"

namespace espalier {

/// What one optimizer step did. The same on every rank, but for the seconds.
struct StepReport {
  Index step = 0;  ///< counts from 1
  double loss = 0;
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;
  Index tokens = 0;   ///< seen so far
  bool stop = false;  ///< some rank asked to stop
  double step_seconds = 0;
  PhaseSeconds seconds;
};

/// A model, its optimizer and its data: one step at a time, on any number of data-parallel ranks. Opens no file but the
/// token files, prints nothing.
template <class T>
class Trainer {
 public:
  /// Collective over the mesh. Allocates everything a step needs and initialises the weights from the seed.
  Trainer(const ExecSpace& exec, const RunConfig& config, const ProcessMesh& mesh);

  /// One step: data, forward and backward of all micro-batches, reduction, clipping, update. `stop_requested` of any
  /// rank comes back as report.stop on all of them. @throws Error (numerical) for a loss or gradient that is not
  /// finite, before the weights change.
  StepReport step(bool stop_requested = false);

  /// Mean loss over the validation files, the same on every rank.
  double evaluate();
  bool has_validation() const { return validation_.has_value(); }

  const ParameterStore<T>& parameters() const { return parameters_; }
  const AdamW<T>& optimizer() const { return optimizer_; }
  Index steps_done() const { return steps_done_; }
  Index data_position() const { return loader_.position(); }
  double last_loss() const { return last_loss_; }
  const std::string& tokenizer() const { return tokenizer_; }  ///< that made the token files; empty: unknown
  const ExecSpace& exec() const { return exec_; }
  const TokenLoader& loader() const { return loader_; }

  /// After the weights and moments have been loaded: goes on after `steps_done` at sample `data_position`.
  void restore(Index steps_done, Index data_position, double last_loss);

 private:
  ExecSpace exec_;
  RunConfig config_;
  const ProcessMesh* mesh_;
  LearningRate learning_rate_;
  ParameterStore<T> parameters_;
  Gpt<T> model_;
  std::string tokenizer_;
  TokenLoader loader_;
  std::optional<SequentialLoader> validation_;
  PipelineSchedule schedule_;
  AdamW<T> optimizer_;
  GradientReducer<State<T>> reducer_;
  SquaredNorm squared_norm_;
  Tensor<double, 0> gradient_norm_;
  Tensor<double, 0> clip_;
  Index steps_done_ = 0;
  double last_loss_ = 0;
};

/// Bytes by category that a Trainer will allocate on each rank, from the shapes alone.
template <class T>
MemoryByCategory predict_memory(const RunConfig& config, int replicas);

}  // namespace espalier

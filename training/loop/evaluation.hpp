// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "io/tokens/token_loader.hpp"
#include "parallel/collectives/communicator.hpp"
#include "training/pretrained/loaded_model.hpp"
#include "training/step/step_transfers.hpp"

namespace espalier {

/// Micro-batches of this rank, the same number on every rank.
struct EvaluationData {
  Index valid_tokens = 0;  ///< at most, of all ranks
  Index num_samples = 0;   ///< of all ranks
  Index num_batches = 0;
  std::function<Batch(Index)> batch;

  /// Of a SequentialLoader or a TextLoader, which must outlive it.
  template <class Loader>
  static EvaluationData of(const Loader& loader) {
    return {loader.valid_tokens(), loader.num_samples(), loader.num_batches(),
            [&loader](Index index) { return loader.batch(index); }};
  }
};

struct MeanLoss {
  double loss = 0;         ///< cross-entropy per token, in nats
  Index valid_tokens = 0;  ///< that it is the mean of
};

/// The mean loss over the sequences of `data`, the same on every rank. `add_loss` adds weight * (sum of the token
/// losses) of a batch to `loss`, on the device. All ranks call `must_stop` before each batch and after the last;
/// nothing is returned after a yes, which must come on all ranks. Collective.
/// @throws Error (data) if no target counts
std::optional<MeanLoss> evaluate_loss(const ExecSpace& exec, const Tensor<double, 0>& loss,
                                      const std::function<void(const Batch&, double weight)>& add_loss,
                                      const EvaluationData& data, const Communicator& world,
                                      const std::function<bool(Index batches_done, Index batches)>& must_stop);

/// The same of a model. @pre LoadedModel::allocate_activations() for the micro-batches
template <class P>
std::optional<MeanLoss> evaluate_loss(LoadedModel<P>& model, const EvaluationData& data, const Communicator& world,
                                      const std::function<bool(Index batches_done, Index batches)>& must_stop) {
  const auto add_loss = [&](const Batch& batch, double weight) {
    model.decoder().evaluate(model.exec(), 0, tokens_of(batch), weight);
  };
  return evaluate_loss(model.exec(), model.decoder().loss(), add_loss, data, world, must_stop);
}

}  // namespace espalier

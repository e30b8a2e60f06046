// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "io/tokens/token_loader.hpp"
#include "parallel/collectives/communicator.hpp"
#include "training/pretrained/loaded_model.hpp"

namespace espalier {

/// Micro-batches of this rank, as many on every rank.
struct EvaluationData {
  Index valid_tokens = 0;  ///< the most that may count, of all ranks
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

/// Of the sequences of `data`: the same on every rank. Nothing where
/// `must_stop`, which is asked on every rank before each batch and after the last, says so on all of them. Collective.
/// @pre the model has room for the micro-batches
/// @throws Error (data) where no target of them counts
template <class P>
std::optional<MeanLoss> evaluate_loss(LoadedModel<P>& model, const EvaluationData& data, const Communicator& world,
                                      const std::function<bool(Index batches_done, Index batches)>& must_stop);

}  // namespace espalier

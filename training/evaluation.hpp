// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "io/token_loader.hpp"
#include "parallel/communicator.hpp"
#include "training/loaded_model.hpp"

namespace espalier {

struct MeanLoss {
  double loss = 0;         ///< cross-entropy per token, in nats
  Index valid_tokens = 0;  ///< that it is the mean of
};

/// Of the sequences of `data`, of which each rank takes its micro-batches: the same on every rank. Nothing where
/// `must_stop`, which is asked on every rank before each batch and after the last, says so on all of them. Collective.
/// @pre the model has room for the micro-batches
/// @throws Error (data) where no target of them counts
template <class P>
std::optional<MeanLoss> evaluate_loss(LoadedModel<P>& model, const SequentialLoader& data, const Communicator& world,
                                      const std::function<bool(Index batches_done, Index batches)>& must_stop);

}  // namespace espalier

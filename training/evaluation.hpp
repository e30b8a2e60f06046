// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "io/token_loader.hpp"
#include "parallel/communicator.hpp"
#include "training/loaded_model.hpp"

namespace espalier {

/// Mean cross-entropy per token, in nats, of the sequences of `data`, of which each rank takes its micro-batches: the
/// same on every rank. Nothing where `must_stop`, which is asked on every rank before each batch and after the last,
/// says so on all of them. Collective. @pre the model has room for the micro-batches
template <class P>
std::optional<double> evaluate_loss(LoadedModel<P>& model, const SequentialLoader& data, const Communicator& world,
                                    const std::function<bool(Index batches_done, Index batches)>& must_stop);

}  // namespace espalier

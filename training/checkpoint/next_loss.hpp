// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "training/checkpoint/stored_state.hpp"
#include "training/step/trainer.hpp"

namespace espalier {

/// Refuses weights that give no finite loss: neither of the next samples, nor of those of the step just taken, as
/// single samples may overflow. Collective; one forward pass, two where the first loss is not finite.
/// @returns the loss of the next samples, finite or not. @throws Error (numerical).
template <class P>
double require_finite_loss(Trainer<P>& trainer);

/// Stores the loss of the first samples after this step in a checkpoint's state. Collective; one forward pass.
/// @throws Error (numerical) as require_finite_loss().
template <class P>
void store_next_loss(nlohmann::json& state, Trainer<P>& trainer);

/// Computes the stored loss again in a trainer that has just been resumed: a wrong resume cannot be silent. Collective;
/// as many forward passes as the stored samples fill. `note` is told both numbers, or that none is stored.
/// @throws Error (checkpoint) with both where they differ by more than the precision explains.
template <class P>
void check_next_loss(const std::optional<StoredState::NextLoss>& next, const std::string& checkpoint,
                     Trainer<P>& trainer, const std::function<void(const std::string&)>& note);

/// How far the two may be apart, relatively: another layout or library rounds otherwise.
double next_loss_tolerance(ScalarType compute);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

#include "training/checkpoint/stored_state.hpp"
#include "training/step/trainer.hpp"

namespace espalier {

/// Refuses weights that give no finite loss, neither for the next samples nor for those of the last step: single
/// samples may overflow. Collective; one forward pass, two where the first loss is not finite.
/// @returns the loss of the next samples, finite or not. @throws Error (numerical).
double require_finite_loss(Trainer& trainer);

/// The loss of the first samples after this step, for the state of a checkpoint; none where it is not finite.
/// Collective; one forward pass.
/// @throws Error (numerical) as require_finite_loss().
std::optional<StoredState::NextLoss> next_loss_of(Trainer& trainer);

/// Computes the stored loss again in a trainer that has just been resumed: a wrong resume cannot be silent. Collective;
/// as many forward passes as the stored samples fill. `note` gets both numbers, or that none is stored.
/// @throws Error (checkpoint) with both where they differ by more than the precision explains.
void check_next_loss(const std::optional<StoredState::NextLoss>& next, const std::string& checkpoint, Trainer& trainer,
                     const std::function<void(const std::string&)>& note);

/// The allowed relative difference of the two losses: another layout or library rounds differently.
double next_loss_tolerance(ScalarType compute);

}  // namespace espalier

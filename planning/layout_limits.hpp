// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "planning/price_layout.hpp"

// What a layout cannot be on a machine, and what does not fit a device, in words.

namespace espalier {

/// Why the layout cannot exist on this machine, or anywhere (models/layout_rules.hpp); empty when it can.
std::string why_impossible(const PlanProblem& problem, const Layout& layout);

/// Bytes of a device for what `train` allocates.
std::size_t free_bytes(const PlanProblem& problem);
/// "74.00 GiB free (of 80.00 GiB, 6.00 GiB reserved)".
std::string free_text(const PlanProblem& problem);

/// Bytes that a device must have for a layout that is predicted to need so many: those of the upper end of their
/// interval. Of published cases, which did run, the predicted ones.
std::size_t needed_bytes(const PlanProblem& problem, std::size_t bytes);

/// Whether a device has them.
bool fits_memory(const PlanProblem& problem, std::size_t bytes);

/// "53.23 GiB"; where the upper end alone does not fit: "73.99 GiB (at most 74.73 GiB)".
std::string need_text(const PlanProblem& problem, std::size_t bytes);

/// Why it does not fit a device: what, where, by how much; empty when it fits.
std::string why_too_large(const PlanProblem& problem, const LayoutPrice& price);

}  // namespace espalier

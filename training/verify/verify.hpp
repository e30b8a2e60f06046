// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "parallel/collectives/communicator.hpp"
#include "parallel/collectives/injected_fault.hpp"
#include "training/config/run_config.hpp"
#include "training/config/run_layout.hpp"

namespace espalier {

/// A comparison of layouts: does each of them train the model that the reference trains?
struct VerifyOptions {
  Index steps = 2;
  double tolerance = 0;                          ///< relative; 0: default_tolerance()
  std::vector<std::string> reference;            ///< overrides of [parallel] for the reference; empty: one rank
  std::string against;                           ///< folder of a saved reference of so many steps, or more; empty: none
  InjectedFault injected = InjectedFault::none;  ///< into every layout, not into the reference
};

/// An error and where it is largest.
struct LargestError {
  double value = 0;
  std::string where;
  void note(double error, const std::string& found_at);
};

/// What differs from the reference, each relative.
struct LayoutErrors {
  LargestError loss;           ///< of a step
  LargestError gradient_norm;  ///< of a step
  LargestError gradient;       ///< of a tensor: 2-norm of the difference over max(its norm, 1e-3 x the global norm)
  LargestError update;         ///< the same of the weights' change, from the reference's gradients
  LargestError copies;         ///< between ranks that hold the same part of a tensor: 2-norm
  double worst() const;
};

struct VerifiedLayout {
  std::string text;     ///< "tensor 2 x data 1 x pipeline 4, 1f1b"
  std::string skipped;  ///< why this layout cannot run; empty: it did
  LayoutErrors errors;
};

/// The allowed relative error of layouts.
double default_tolerance(Precision compute);

/// Runs a few steps in every layout. Each step of a layout starts from the reference's weights and moments; its update
/// uses the reference's gradients, as Adam makes full steps of the rounding errors in a gradient of zero (the bias of
/// the keys has one). Collective; the result is the same on all ranks. `done` gets each layout on rank 0.
std::vector<VerifiedLayout> verify(const RunConfig& config, const VerifyOptions& options, const Communicator& world,
                                   const std::function<void(const VerifiedLayout&)>& done);

}  // namespace espalier

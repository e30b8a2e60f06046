// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/optim/adamw_config.hpp"
#include "core/parameter.hpp"

namespace espalier {

/// A run of `size` parameters: where their weights, gradients, and moments with master weights begin in the arrays.
struct AdamWPart {
  Index weight;
  Index gradient;
  Index moment;
  Index size;
  bool weight_decay;
};

/// The same elements in parts that are short enough to share them out, five numbers each, where adamw_update wants
/// them.
Tensor<Index, 1> make_adamw_parts(const std::vector<AdamWPart>& parts);

/// One sweep over parts of the flat arrays, in one kernel:
///   g = clip * gradient;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
///   w -= rate * (mhat / (sqrt(vhat) + eps) + decay * w),  mhat = m / (1 - beta1^step),  vhat = v / (1 - beta2^step)
/// updates master and both moments in the state type and writes the compute weight. Where weights are their own state
/// type they are the master weights, and `master_weights` is not read. The factor `clip` stays on the device; where it
/// is 0, nothing changes (hold_update()). `step` counts from 1. The decay is that of `config`, for the parts that have
/// one. W weights, G gradients and M moments lie here.
template <class T>
void adamw_update(const ExecSpace& exec, Tensor<T, 1> weights /* (W) */, Tensor<State<T>, 1> master_weights /* (M) */,
                  Tensor<State<T>, 1> exp_avg /* (M) */, Tensor<State<T>, 1> exp_avg_sq /* (M) */,
                  Tensor<State<T>, 1> gradients /* (G) */, Tensor<Index, 1> parts /* (5P) */, const AdamWConfig& config,
                  double learning_rate, Tensor<double, 0> clip, Index step);

/// The optimizer state of one parameter store, or of the part of it that this rank updates (ZeRO): both moments, and
/// fp32 master weights of weights of 16 bits.
template <class T>
class AdamW {
 public:
  /// @param owned ascending ranges of the flat arrays that this optimizer updates and keeps moments for; default: all.
  AdamW(const ParameterStore<T>& parameters, const AdamWConfig& config,
        std::optional<std::vector<IndexRange>> owned = std::nullopt);

  /// Gives the master weights the initial values, not rounded to T; nothing to do where there are none.
  void initialize_master_weights(const ExecSpace& exec, std::uint64_t seed) const;

  /// Updates the owned ranges; `step` counts from 1.
  void step(const ExecSpace& exec, double learning_rate, Tensor<double, 0> clip, Index step) const;

  Tensor<State<T>, 1> master_weights() const { return master_weights_; }  ///< (M); empty where weights are their own
  Tensor<State<T>, 1> exp_avg() const { return exp_avg_; }                ///< (M), first moment
  Tensor<State<T>, 1> exp_avg_sq() const { return exp_avg_sq_; }          ///< (M), second moment

  /// The master weights and moments of owned()[i] start at moment_starts()[i] of their arrays, one range after the
  /// other.
  const std::vector<IndexRange>& owned() const { return owned_; }
  const std::vector<Index>& moment_starts() const { return moment_starts_; }

 private:
  const ParameterStore<T>* parameters_;
  AdamWConfig config_;
  std::vector<IndexRange> owned_;
  std::vector<Index> moment_starts_;
  Tensor<Index, 1> parts_;              // (5P)
  Tensor<State<T>, 1> master_weights_;  // (M)
  Tensor<State<T>, 1> exp_avg_;         // (M)
  Tensor<State<T>, 1> exp_avg_sq_;      // (M)
};

}  // namespace espalier

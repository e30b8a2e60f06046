// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/cost.hpp"
#include "models/layout.hpp"
#include "planning/cluster.hpp"
#include "planning/implementation.hpp"

namespace espalier {

/// What one micro-batch asks of one rank in one pass through one block (or the head, or the embedding).
struct PassTime {
  double products = 0;     ///< seconds of matrix products and attention
  double elementwise = 0;  ///< seconds of kernels bound by memory bandwidth
  double tensor = 0;       ///< seconds of collectives on the tensor (and context) axis that do not overlap
  double host = 0;         ///< seconds that the host needs to start the kernels
  /// The device works through its kernels while the host starts later ones: the slower of the two, and a little more
  /// where they are equal.
  double seconds() const;
  PassTime& operator+=(const PassTime& other);
};
PassTime operator*(double count, PassTime pass);

/// Seconds of two activities that go on together and disturb each other: (a^3 + b^3)^(1/3), 26 % over the longer where
/// they are equal (1.1 to 1.3 were measured by Miao et al. 2022, Galvatron).
double overlapped(double a, double b);

/// Seconds of work with messages beside it: overlapped, or one after the other where the same cores do both.
double beside(const Accelerator& device, double work, double messages);

/// A block: forward; the two parts of backward; what recomputation adds to the input part.
struct BlockTime {
  PassTime forward;
  PassTime backward_input;
  PassTime backward_weight;
  PassTime recompute;

  double seconds() const {
    return forward.seconds() + recompute.seconds() + backward_input.seconds() + backward_weight.seconds();
  }
};

BlockTime block_time(const ModelConfig& model, const Cluster& cluster, const Layout& layout,
                     const Implementation& implementation, Index sequence_length);

/// Final norm, logits and loss; the embedding.
BlockTime head_time(const ModelConfig& model, const Cluster& cluster, const Layout& layout,
                    const Implementation& implementation, Index sequence_length);
BlockTime embedding_time(const ModelConfig& model, const Cluster& cluster, const Layout& layout,
                         const Implementation& implementation, Index sequence_length);

}  // namespace espalier

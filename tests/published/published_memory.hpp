// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "planning/price_layout.hpp"

// What programs that Espalier is compared with keep in memory: formulas of their papers and constants of their runs.

namespace espalier {

/// How a program keeps its memory, beside what decides its time (planning/implementation.hpp).
struct PublishedMemory {
  bool copies_logits = false;  ///< fp32 logits, log-softmax and gradient are copies, as PyTorch's; else one is all. A
                               ///< gate's activation is kept, too
  bool keeps_rows = false;     ///< the rows that sequence parallelism gathered are kept for backward
  bool copies_gradients = false;  ///< 16-bit gradients stay beside those that are added up in fp32
  double logit_bytes = 10;    ///< of those copies: of the log-softmax, its gradient, that of the logits, less 16 bits
  double reserved_times = 1;  ///< what an allocator holds, of what is asked of it beside the states
  double library_bytes = 0;   ///< of a device, of context and libraries, where a measurement counts them
  double communicator_bytes = 0;  ///< of a device, of each group of ranks that it is in, where that counts them
  int extra_state_bytes = 0;      ///< of an element, beyond weights, gradients, master weights and two moments
};

/// Bytes of model states of one element, by what they are; mixed precision: 2 + gradients + 12 (master weight and two
/// moments in fp32) [Rajbhandari et al. 2020, 3.1], fp32: 4 + 4 + 8.
struct PublishedStates {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;
  double total() const { return weights + gradients + optimizer; }
};
PublishedStates published_states(Precision precision, int gradient_bytes, int extra_state_bytes = 0);

/// The same on each of `replicas` ranks: ZeRO-1 shards the optimizer, 2 also gradients, 3 also weights [Table 1].
PublishedStates sharded_states(PublishedStates states, int zero_stage, double replicas);

/// Bytes that a block keeps of one micro-batch from forward to backward. For GPT in 16 bit without recomputation or
/// tensor parallelism, with dropout and unfused attention: s b h (34 + 5 a s / h) [Korthikanti et al. 2022, eq. 1-6].
double activation_bytes_per_layer(const PlanProblem& problem, const PublishedMemory& program, const Layout& layout);

/// Bytes of a rank of each stage, by category. @param problem its `implementation` is that of the program
std::vector<MemoryByCategory> published_memory(const PlanProblem& problem, const PublishedMemory& program,
                                               const Layout& layout);

}  // namespace espalier

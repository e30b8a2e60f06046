// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace espalier {

/// AdamW (Loshchilov and Hutter, 2019): Adam with weight decay decoupled from the gradient.
struct AdamWConfig {
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
};

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace espalier {

/// The instruction sets that the compiler was allowed to use, largest first. Constant data, so that it can be read
/// before any code that needs them has run.
struct CpuFeatures {
  bool avx512_bf16;
  bool avx512f;
  bool avx2;
  bool fma;
};
extern const CpuFeatures required_cpu_features;

/// The name given to -march, and the largest instruction set it stands for.
const char* built_for();

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// Compiled like the rest of the program: the compiler's own macros tell what it may use.
#include "app/cpu_features.hpp"

namespace espalier {

#ifdef __AVX512BF16__
#define ESPALIER_AVX512_BF16 true
#else
#define ESPALIER_AVX512_BF16 false
#endif
#ifdef __AVX512F__
#define ESPALIER_AVX512F true
#else
#define ESPALIER_AVX512F false
#endif
#ifdef __AVX2__
#define ESPALIER_AVX2 true
#else
#define ESPALIER_AVX2 false
#endif
#ifdef __FMA__
#define ESPALIER_FMA true
#else
#define ESPALIER_FMA false
#endif

constinit const CpuFeatures required_cpu_features = {ESPALIER_AVX512_BF16, ESPALIER_AVX512F, ESPALIER_AVX2,
                                                     ESPALIER_FMA};

const char* built_for() {
  return ESPALIER_AVX512_BF16 ? ESPALIER_ARCH_NAME " (AVX512_BF16)"
         : ESPALIER_AVX512F   ? ESPALIER_ARCH_NAME " (AVX512)"
         : ESPALIER_AVX2      ? ESPALIER_ARCH_NAME " (AVX2)"
                              : ESPALIER_ARCH_NAME;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/vector_math.hpp"

// The activation functions of feed-forward layers: value and derivative of one number, in the state type S. The table
// in core/ops/activation.cpp names them.

namespace espalier {

/// GELU in the tanh form of GPT-2 (Hendrycks and Gimpel, 2016), written with the logistic function:
///   y = x * sigmoid(2u),  u = sqrt(2/pi) * (x + 0.044715 x^3),  as 1 + tanh(u) = 2 sigmoid(2u)
struct Gelu {
  template <class S>
  KOKKOS_INLINE_FUNCTION static S value(S x) {
    return x * gate(x).sigmoid;
  }
  template <class S>
  KOKKOS_INLINE_FUNCTION static S derivative(S x) {
    const Gate<S> at = gate(x);
    return at.sigmoid * (S(1) + x * (S(1) - at.sigmoid) * at.slope);
  }

 private:
  template <class S>
  struct Gate {
    S sigmoid;  // of 2u
    S slope;    // d(2u)/dx
  };
  template <class S>
  KOKKOS_INLINE_FUNCTION static Gate<S> gate(S x) {
    const S twice_root = S(1.5957691216057308);  // 2 sqrt(2/pi)
    const S cubic = S(0.044715);
    const S exponent = twice_root * x * (S(1) + cubic * x * x);
    return {S(1) / (S(1) + vector_exp(-exponent)), twice_root * (S(1) + S(3) * cubic * x * x)};
  }
};

/// GELU itself (Hendrycks and Gimpel, 2016), Hugging Face's "gelu": y = x * Phi(x), with Phi the distribution function
/// of the normal distribution. Slower on hosts, where erfc is a call for each number.
struct GeluErf {
  template <class S>
  KOKKOS_INLINE_FUNCTION static S value(S x) {
    return x * below(x);
  }
  template <class S>
  KOKKOS_INLINE_FUNCTION static S derivative(S x) {
    const S density = S(0.39894228040143268) * vector_exp(S(-0.5) * x * x);  // 1 / sqrt(2 pi)
    return below(x) + x * density;
  }

 private:
  template <class S>
  KOKKOS_INLINE_FUNCTION static S below(S x) {  // Phi
    return S(0.5) * std::erfc(S(-0.70710678118654752) * x);
  }
};

/// SiLU, or swish (Elfwing et al., 2017): y = x * sigmoid(x)
struct Silu {
  template <class S>
  KOKKOS_INLINE_FUNCTION static S value(S x) {
    return x * sigmoid(x);
  }
  template <class S>
  KOKKOS_INLINE_FUNCTION static S derivative(S x) {
    const S gate = sigmoid(x);
    return gate * (S(1) + x * (S(1) - gate));
  }

 private:
  template <class S>
  KOKKOS_INLINE_FUNCTION static S sigmoid(S x) {
    return S(1) / (S(1) + vector_exp(-x));
  }
};

/// y = max(x, 0); the derivative at 0 is 0.
struct Relu {
  template <class S>
  KOKKOS_INLINE_FUNCTION static S value(S x) {
    return x < S(0) ? S(0) : x;  // NaN stays
  }
  template <class S>
  KOKKOS_INLINE_FUNCTION static S derivative(S x) {
    return x > S(0) ? S(1) : x * S(0);
  }
};

/// Squared ReLU (So et al., Primer, 2021): y = max(x, 0)^2
struct ReluSquared {
  template <class S>
  KOKKOS_INLINE_FUNCTION static S value(S x) {
    return Relu::value(x) * Relu::value(x);
  }
  template <class S>
  KOKKOS_INLINE_FUNCTION static S derivative(S x) {
    return S(2) * Relu::value(x);
  }
};

}  // namespace espalier

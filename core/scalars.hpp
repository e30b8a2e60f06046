// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace espalier {

struct bfloat16;
struct float16;

using Index = std::int64_t;    ///< every extent and offset: parameter counts exceed 2^31
using TokenId = std::int32_t;  ///< a vocabulary entry; negative = ignored by the loss

/// A count as a floating-point number, and a rank, stage or chunk as an index of a vector: compilers want these
/// conversions spelled out (-Wconversion, -Wsign-conversion).
constexpr double to_double(Index value) { return static_cast<double>(value); }
constexpr std::size_t to_size(Index value) { return static_cast<std::size_t>(value); }

constexpr Index round_up(Index value, Index multiple) { return (value + multiple - 1) / multiple * multiple; }

/// The type of master weights, optimizer state, accumulated gradients, mean and rstd, and losses: fp32, and fp64
/// where the whole computation is fp64.
template <class T>
struct StateOf {
  using type = float;
};
template <>
struct StateOf<double> {
  using type = double;
};
template <class T>
using State = typename StateOf<T>::type;

/// True where weights for compute are copies of master weights in another type.
template <class T>
inline constexpr bool has_master_weights = !std::is_same_v<T, State<T>>;

/// F(T) for each type that a model can compute in: instantiates templates at the end of a .cpp file.
#define ESPALIER_FOR_COMPUTE_TYPES(F) ESPALIER_FOR_STATE_TYPES(F) ESPALIER_FOR_16_BIT_TYPES(F)
/// The same for each state type, and for each compute type that has master weights in another.
#define ESPALIER_FOR_STATE_TYPES(F) F(float) F(double)
#define ESPALIER_FOR_16_BIT_TYPES(F) F(::espalier::bfloat16) F(::espalier::float16)

/// The types of a computation (Micikevicius et al., Mixed Precision Training, 2018): the one template parameter of
/// models and trainers.
template <class ComputeType, class ResidualType = ComputeType>
struct MixedPrecision {
  using Compute = ComputeType;    ///< of weights, activations and their gradients
  using Residual = ResidualType;  ///< of the residual stream, its gradients, and messages between pipeline stages:
                                  ///< Compute, or the state type, so that additions along the depth keep fp32
};
template <class P>
using Compute = typename P::Compute;
template <class P>
using Residual = typename P::Residual;

using Fp32 = MixedPrecision<float>;
using Fp64 = MixedPrecision<double>;
using Bf16 = MixedPrecision<bfloat16>;
using Bf16WithFp32Residual = MixedPrecision<bfloat16, float>;
using Fp16 = MixedPrecision<float16>;
using Fp16WithFp32Residual = MixedPrecision<float16, float>;

/// F(P) for each precision that models and trainers are built for.
#define ESPALIER_FOR_PRECISIONS(F) F(Fp32) F(Fp64) F(Bf16) F(Bf16WithFp32Residual) F(Fp16) F(Fp16WithFp32Residual)

/// F(T, R) for each compute type T and type R of the residual stream that go together: R is T, or the state type.
#define ESPALIER_FOR_16_BIT_RESIDUAL_TYPES(F)   \
  F(::espalier::bfloat16, ::espalier::bfloat16) \
  F(::espalier::bfloat16, float)                \
  F(::espalier::float16, ::espalier::float16)   \
  F(::espalier::float16, float)
#define ESPALIER_FOR_RESIDUAL_TYPES(F) F(float, float) F(double, double) ESPALIER_FOR_16_BIT_RESIDUAL_TYPES(F)

/// F(T, Out) for each type T of the factors of a matmul and type Out of what it is written as: T, or the state
/// type.
#define ESPALIER_FOR_MATMUL_TYPES(F) ESPALIER_FOR_RESIDUAL_TYPES(F)
#define ESPALIER_FOR_16_BIT_MATMUL_TYPES(F) ESPALIER_FOR_16_BIT_RESIDUAL_TYPES(F)

enum class ScalarType { fp32, fp64, bf16, fp16 };
inline constexpr std::array all_scalar_types{ScalarType::fp32, ScalarType::fp64, ScalarType::bf16, ScalarType::fp16};

template <class T>
constexpr ScalarType scalar_type_of();
template <>
constexpr ScalarType scalar_type_of<float>() {
  return ScalarType::fp32;
}
template <>
constexpr ScalarType scalar_type_of<double>() {
  return ScalarType::fp64;
}
template <>
constexpr ScalarType scalar_type_of<bfloat16>() {
  return ScalarType::bf16;
}
template <>
constexpr ScalarType scalar_type_of<float16>() {
  return ScalarType::fp16;
}

/// Those that State<T> can be.
constexpr bool is_state_type(ScalarType type) { return type == ScalarType::fp32 || type == ScalarType::fp64; }

constexpr const char* to_string(ScalarType type) {
  switch (type) {
    case ScalarType::fp32: return "fp32";
    case ScalarType::fp64: return "fp64";
    case ScalarType::bf16: return "bf16";
    case ScalarType::fp16: return "fp16";
  }
  return "unknown";
}

constexpr std::size_t size_of(ScalarType type) {
  return type == ScalarType::fp64 ? 8 : type == ScalarType::fp32 ? 4 : 2;
}

}  // namespace espalier

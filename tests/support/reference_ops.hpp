// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "core/random.hpp"
#include "tests/support/op_shapes.hpp"
#include "tests/support/tensors.hpp"

/// The forward ops as plain loops over host arrays in fp64: what the kernels must compute. Row-major throughout.
/// Backward has no loops here; finite differences of these functions take their place.
namespace espalier::test::reference {

inline std::size_t at(Index row, Index col, Index cols) { return static_cast<std::size_t>(row * cols + col); }

/// y (N, C) from x (N, C), weight (C), bias (C)
inline Values layernorm(const Values& x, const Values& weight, const Values& bias, double eps = 1e-5) {
  const auto channels = static_cast<Index>(weight.size());
  const Index rows = static_cast<Index>(x.size()) / channels;
  Values y(x.size());
  for (Index n = 0; n < rows; ++n) {
    double mean = 0;
    double variance = 0;
    for (Index c = 0; c < channels; ++c)
      mean += x[at(n, c, channels)] / static_cast<double>(channels);
    for (Index c = 0; c < channels; ++c)
      variance += std::pow(x[at(n, c, channels)] - mean, 2) / static_cast<double>(channels);
    for (Index c = 0; c < channels; ++c)
      y[at(n, c, channels)] = (x[at(n, c, channels)] - mean) / std::sqrt(variance + eps) * weight[at(0, c, channels)] +
                              bias[at(0, c, channels)];
  }
  return y;
}

/// y (N, G*C) from x (N, G*C), weight (C): each group of C channels by itself
inline Values rmsnorm(const Values& x, const Values& weight, double eps) {
  const auto channels = static_cast<Index>(weight.size());
  Values y(x.size());
  for (Index n = 0; n < static_cast<Index>(x.size()) / channels; ++n) {
    double square = 0;
    for (Index c = 0; c < channels; ++c)
      square += std::pow(x[at(n, c, channels)], 2) / static_cast<double>(channels);
    for (Index c = 0; c < channels; ++c)
      y[at(n, c, channels)] = x[at(n, c, channels)] / std::sqrt(square + eps) * weight[at(0, c, channels)];
  }
  return y;
}

inline Values gelu(const Values& x) {
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const long double u = std::sqrt(2 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i]);
    y[i] = static_cast<double>(0.5L * static_cast<long double>(x[i]) *
                               (1 + std::tanh(u)));  // 1 + tanh cancels: long double
  }
  return y;
}

/// y (N, F) = f(gate) * up from x (N, 2F) = [gate | up]
template <class F>
Values gated(const F& f, const Values& x, Index width) {
  Values y(x.size() / 2);
  for (Index n = 0; n < static_cast<Index>(y.size()) / width; ++n)
    for (Index c = 0; c < width; ++c)
      y[at(n, c, width)] = f(x[at(n, c, 2 * width)]) * x[at(n, width + c, 2 * width)];
  return y;
}

/// rows (N, columns), of whose first heads the channels i and i + HR/2 are rotated by position(n) frequencies[i], and
/// made longer by `factor`
template <class Position>
Values rotary(Values rows, Index columns, Index heads, Index head_size, const Values& frequencies, double factor,
              const Position& position) {
  const auto pairs = static_cast<Index>(frequencies.size());
  for (Index n = 0; n < static_cast<Index>(rows.size()) / columns; ++n)
    for (Index h = 0; h < heads; ++h)
      for (Index i = 0; i < pairs; ++i) {
        const double angle = static_cast<double>(position(n)) * frequencies[static_cast<std::size_t>(i)];
        double& a = rows[at(n, h * head_size + i, columns)];
        double& b = rows[at(n, h * head_size + i + pairs, columns)];
        const double rotated = factor * (a * std::cos(angle) - b * std::sin(angle));
        b = factor * (b * std::cos(angle) + a * std::sin(angle));
        a = rotated;
      }
  return rows;
}

/// y (N, F) = x (N, K) weight^T + bias, with weight (F, K)
inline Values linear(const Values& x, const Values& weight, const Values& bias) {
  const auto width = static_cast<Index>(bias.size());
  const Index inner = static_cast<Index>(weight.size()) / width;
  const Index rows = static_cast<Index>(x.size()) / inner;
  Values y(static_cast<std::size_t>(rows * width));
  for (Index n = 0; n < rows; ++n)
    for (Index f = 0; f < width; ++f) {
      double sum = bias[at(0, f, width)];
      for (Index k = 0; k < inner; ++k)
        sum += x[at(n, k, inner)] * weight[at(f, k, inner)];
      y[at(n, f, width)] = sum;
    }
  return y;
}

/// x (N, C) from token_embedding (V, C) and position_embedding (P, C)
inline Values embedding(const std::vector<TokenId>& tokens, const Values& token_embedding,
                        const Values& position_embedding, Index channels, Index length) {
  Values x(tokens.size() * static_cast<std::size_t>(channels));
  for (Index n = 0; n < static_cast<Index>(tokens.size()); ++n)
    for (Index c = 0; c < channels; ++c)
      x[at(n, c, channels)] = token_embedding[at(tokens[static_cast<std::size_t>(n)], c, channels)] +
                              position_embedding[at(n % length, c, channels)];
  return x;
}

/// What dropout makes of a value of row `row` of all rows of a run: 0 or 1 / (1 - rate) times it.
inline double dropout_factor(std::uint64_t key, double rate, Index row, Index column) {
  const std::uint32_t word =
      philox(key, static_cast<std::uint64_t>(column / 4), static_cast<std::uint64_t>(row)).word[column % 4];
  return static_cast<double>(word) < std::floor(rate * 0x1p32) ? 0 : 1 / (1 - rate);
}

/// Factors of the probabilities of a head of a sequence: (B, NH, T, key) to a number.
using ProbabilityFactor = std::function<double(Index, Index, Index, Index)>;

/// out (N, C) from qkv (N, (NH + 2 NKV)*HS); log_sum_exp (B*NH*T) too if wanted
inline Values attention(const Values& qkv, const OpShape& s, Values* log_sum_exp = nullptr,
                        const ProbabilityFactor& factor = {}, const std::vector<int>& positions = {}) {
  const Index channels = s.channels();
  Values out(static_cast<std::size_t>(s.rows() * channels), 0);
  Values probability(static_cast<std::size_t>(s.length));
  const auto part = [&](Index which, Index b, Index t, Index h, Index c) {
    const Index head = which == 0 ? h : s.heads + (which - 1) * s.kv_heads() + h / (s.heads / s.kv_heads());
    return qkv[at(b * s.length + t, head * s.head_size + c, s.qkv_channels())];
  };
  for (Index b = 0; b < s.batch; ++b)
    for (Index h = 0; h < s.heads; ++h)
      for (Index t = 0; t < s.length; ++t) {
        const Index start = positions.empty() ? 0 : t - positions[static_cast<std::size_t>(b * s.length + t)];
        const Index first = s.window > 0 ? std::max(start, t + 1 - s.window) : start;
        double largest = -HUGE_VAL;
        for (Index k = first; k <= t; ++k) {
          double score = 0;
          for (Index c = 0; c < s.head_size; ++c)
            score += part(0, b, t, h, c) * part(1, b, k, h, c);
          probability[static_cast<std::size_t>(k)] = score / std::sqrt(static_cast<double>(s.head_size));
          largest = std::max(largest, probability[static_cast<std::size_t>(k)]);
        }
        double sum = 0;
        for (Index k = first; k <= t; ++k)
          sum += probability[static_cast<std::size_t>(k)] =
              std::exp(probability[static_cast<std::size_t>(k)] - largest);
        for (Index k = first; k <= t; ++k) {
          const double share = probability[static_cast<std::size_t>(k)] / sum * (factor ? factor(b, h, t, k) : 1);
          for (Index c = 0; c < s.head_size; ++c)
            out[at(b * s.length + t, h * s.head_size + c, channels)] += share * part(2, b, k, h, c);
        }
        if (log_sum_exp != nullptr)
          (*log_sum_exp)[static_cast<std::size_t>((b * s.heads + h) * s.length + t)] = largest + std::log(sum);
      }
  return out;
}

/// losses (N) from logits (N, V); a negative target has none
inline Values cross_entropy(const Values& logits, const std::vector<TokenId>& targets) {
  const Index vocabulary = static_cast<Index>(logits.size() / targets.size());
  Values losses(targets.size(), 0);
  for (Index n = 0; n < static_cast<Index>(targets.size()); ++n) {
    const TokenId target = targets[static_cast<std::size_t>(n)];
    if (target < 0)
      continue;
    double largest = -HUGE_VAL;
    for (Index v = 0; v < vocabulary; ++v)
      largest = std::max(largest, logits[at(n, v, vocabulary)]);
    double sum = 0;
    for (Index v = 0; v < vocabulary; ++v)
      sum += std::exp(logits[at(n, v, vocabulary)] - largest);
    losses[static_cast<std::size_t>(n)] = std::log(sum) + largest - logits[at(n, target, vocabulary)];
  }
  return losses;
}

inline Values add(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    a[i] += b[i];
  return a;
}

}  // namespace espalier::test::reference

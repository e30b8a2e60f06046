// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/tensor.hpp"
#include "parallel/collectives/mpi_buffer.hpp"

namespace espalier::test {

/// What rank `rank` contributes at index i: values of very unlike sizes and both signs, so that adding them in
/// another order gives other bits (a test of its own checks that). Integers stay small. Not inlined: contracted with
/// the addition to a fused multiply-add, it would be another value than the one that was sent.
template <class T>
[[gnu::noinline]] T contribution(int rank, Index i) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>((rank + 1) * (i % 1000 + 1));
  } else {
    const std::uint64_t key =
        (static_cast<std::uint64_t>(rank) * 1000003u + static_cast<std::uint64_t>(i) + 1) * 0x9E3779B97F4A7C15u;
    const double unit = static_cast<double>(key >> 11) / 9007199254740992.0 - 0.5;
    return static_cast<T>(unit * std::pow(10.0, static_cast<double>(key % 7)));
  }
}

/// c_0 + c_1 + ... one after another, in T.
template <class T>
T rank_order_sum(int size, Index i) {
  T sum = contribution<T>(0, i);
  for (int rank = 1; rank < size; ++rank)
    sum = static_cast<T>(sum + contribution<T>(rank, i));
  return sum;
}

/// The sum as a rank would get it that starts with its own value: what a wrong implementation yields.
template <class T>
T own_first_sum(int own, int size, Index i) {
  T sum = contribution<T>(own, i);
  for (int rank = 0; rank < size; ++rank)
    if (rank != own)
      sum = static_cast<T>(sum + contribution<T>(rank, i));
  return sum;
}

template <class T>
Tensor<T, 1> make_tensor(const std::vector<T>& values) {
  Tensor<T, 1> tensor("espalier::other::test", values.size());
  const auto host = Kokkos::create_mirror_view(tensor);
  std::copy(values.begin(), values.end(), host.data());
  Kokkos::deep_copy(tensor, host);
  return tensor;
}

template <class T>
std::vector<T> to_vector(const FlatTensor<T>& tensor) {
  const auto host = Kokkos::create_mirror_view(tensor);
  Kokkos::deep_copy(host, tensor);
  return std::vector<T>(host.data(), host.data() + host.extent(0));
}

template <class T>
std::vector<T> contributions(int rank, Index count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = contribution<T>(rank, i);
  return values;
}

template <class T>
std::vector<T> rank_order_sums(int size, Index count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = rank_order_sum<T>(size, i);
  return values;
}

/// Equal to the last bit; names the first element that is not.
template <class T>
testing::AssertionResult same_bits(const std::vector<T>& got, const std::vector<T>& wanted) {
  if (got.size() != wanted.size())
    return testing::AssertionFailure() << "got " << got.size() << " elements, wanted " << wanted.size();
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::memcmp(&got[i], &wanted[i], sizeof(T)) != 0)
      return testing::AssertionFailure() << "element " << i << ": got " << got[i] << ", wanted " << wanted[i];
  return testing::AssertionSuccess();
}

}  // namespace espalier::test

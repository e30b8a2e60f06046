// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/random.hpp"
#include "core/tensor.hpp"

/// The way between host arrays of double, in which tests think, and tensors of any type on the device.
namespace espalier::test {

using Values = std::vector<double>;

/// `count` values in (-scale, scale), named: the same on every run and machine.
inline Values random_values(const std::string& name, Index count, double scale = 1) {
  const RandomStream stream(20240229, name);
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = scale * (2 * stream.uniform(i) - 1);
  return values;
}

/// `count` integers in [0, below).
inline std::vector<TokenId> random_tokens(const std::string& name, Index count, Index below) {
  const RandomStream stream(20240229, name);
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<TokenId>(stream.bits(i) % static_cast<std::uint64_t>(below));
  return tokens;
}

/// The values as T holds them, so that a reference starts from the same numbers as the kernel.
template <class T>
Values rounded(Values values) {
  for (double& value : values)
    value = static_cast<double>(static_cast<T>(value));
  return values;
}

/// A device tensor with these values in row-major order.
template <class T, class Source, class... Extents>
Tensor<T, static_cast<int>(sizeof...(Extents))> on_device(const std::vector<Source>& values, Extents... extents) {
  const Tensor<T, static_cast<int>(sizeof...(Extents))> tensor("espalier::other::test",
                                                               static_cast<std::size_t>(extents)...);
  const auto host = Kokkos::create_mirror_view(tensor);
  ESPALIER_ASSERT(host.size() == values.size(), "espalier::test::on_device: as many values as elements");
  for (std::size_t i = 0; i < values.size(); ++i)
    host.data()[i] = static_cast<T>(values[i]);
  Kokkos::deep_copy(tensor, host);
  return tensor;
}

/// A device tensor full of NaN: what a kernel must not read.
template <class T, class... Extents>
Tensor<T, static_cast<int>(sizeof...(Extents))> undefined(Extents... extents) {
  return on_device<T>(Values((static_cast<std::size_t>(extents) * ...), std::nan("")), extents...);
}

/// The elements of a contiguous tensor in row-major order.
template <class View>
Values on_host(const View& tensor) {
  Kokkos::fence();
  const auto host = Kokkos::create_mirror_view(tensor);
  Kokkos::deep_copy(host, tensor);
  Values values(host.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(host.data()[i]);
  return values;
}

/// FNV-1a over the bytes of a tensor: equal for equal bits.
template <class View>
std::uint64_t fingerprint(const View& tensor) {
  Kokkos::fence();
  const auto host = Kokkos::create_mirror_view(tensor);
  Kokkos::deep_copy(host, tensor);
  std::vector<unsigned char> bytes(host.size() * sizeof(*host.data()));
  if (!bytes.empty())
    std::memcpy(bytes.data(), host.data(), bytes.size());
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const unsigned char byte : bytes)
    hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

}  // namespace espalier::test

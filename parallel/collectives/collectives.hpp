// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>
#include <vector>

#include "core/tensor.hpp"
#include "parallel/collectives/communicator.hpp"
#include "parallel/collectives/mpi_buffer.hpp"
#include "parallel/collectives/rank_order.hpp"

namespace espalier {

// Collectives: called by all ranks of the communicator in the same order; nothing to do for one rank. Sums are formed
// in rank order, so their bits depend neither on arrival nor on how the array is cut. Tensors lie in device memory,
// contiguous, of any rank; spans lie in host memory. When a function returns, results are visible to later kernels on
// `exec` and the arguments may be used again.
// Sums are formed of the types that models compute in (16-bit values are added in fp32), int32 and int64; broadcast and
// all_gather move values of any type.

namespace impl {
template <class T>
void all_reduce(const ExecSpace& exec, const Communicator& communicator, const FlatTensor<T>& data, ReduceOp op);
template <class T>
void reduce_scatter(const ExecSpace& exec, const Communicator& communicator, const FlatTensor<T>& output,
                    const FlatTensor<T>& input);

using Bytes = Tensor<unsigned char, 1>;
void all_gather(const ExecSpace& exec, const Communicator& communicator, const Bytes& output, const Bytes& input);
void broadcast(const ExecSpace& exec, const Communicator& communicator, const Bytes& data, int root);
void all_gather(const Communicator& communicator, std::span<std::byte> output, std::span<const std::byte> input);
void broadcast(const Communicator& communicator, std::span<std::byte> data, int root);

/// The memory of a contiguous tensor.
template <class View>
Bytes memory_of(const View& tensor) {
  const auto values = flatten(tensor);
  return Bytes(reinterpret_cast<unsigned char*>(values.data()), values.size() * sizeof(typename View::value_type));
}
}  // namespace impl

/// Every rank gets the sum (max, min) of all.
template <class View>
void all_reduce(const ExecSpace& exec, const Communicator& communicator, const View& data,
                ReduceOp op = ReduceOp::sum) {
  impl::all_reduce(exec, communicator, flatten(data), op);
}

/// output (size x n) = the inputs (n) one after another by rank, on every rank. `input` may be our part of `output`.
template <class Output, class Input>
void all_gather(const ExecSpace& exec, const Communicator& communicator, const Output& output, const Input& input) {
  impl::all_gather(exec, communicator, impl::memory_of(output), impl::memory_of(input));
}

/// output (n) = the sum over ranks of our n-th part of input (size x n). `output` may be our part of `input`.
template <class Output, class Input>
void reduce_scatter(const ExecSpace& exec, const Communicator& communicator, const Output& output, const Input& input) {
  impl::reduce_scatter(exec, communicator, flatten(output), flatten(input));
}

/// Every rank gets the data of `root`.
template <class View>
void broadcast(const ExecSpace& exec, const Communicator& communicator, const View& data, int root) {
  impl::broadcast(exec, communicator, impl::memory_of(data), root);
}

/// Returns when all ranks have called it.
void barrier(const Communicator& communicator);

// The same for a few values in host memory: each rank sends all of its values to every other.
template <class T>
void all_gather(const Communicator& communicator, std::span<T> output, std::span<const T> input) {
  impl::all_gather(communicator, std::as_writable_bytes(output), std::as_bytes(input));
}

template <class T>
void broadcast(const Communicator& communicator, std::span<T> data, int root) {
  impl::broadcast(communicator, std::as_writable_bytes(data), root);
}

template <class T>
void all_reduce(const Communicator& communicator, std::span<T> data, ReduceOp op = ReduceOp::sum) {
  if (communicator.size() == 1)
    return;
  std::vector<T> all(data.size() * static_cast<std::size_t>(communicator.size()));
  all_gather(communicator, std::span<T>(all), std::span<const T>(data));
  std::copy_n(all.begin(), data.size(), data.begin());
  for (std::size_t i = data.size(); i < all.size(); ++i) {  // rank after rank
    T& value = data[i % data.size()];
    if (op == ReduceOp::sum)
      value += all[i];
    else if (value == value && ((op == ReduceOp::max) == (all[i] > value) || all[i] != all[i]))
      value = all[i];
  }
}

/// One value, for convenience.
template <class T>
requires std::is_arithmetic_v<T> T all_reduce(const Communicator& communicator, T value, ReduceOp op = ReduceOp::sum) {
  all_reduce(communicator, std::span<T>(&value, 1), op);
  return value;
}

}  // namespace espalier

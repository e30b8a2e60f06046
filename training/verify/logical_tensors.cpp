// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/verify/logical_tensors.hpp"

#include <algorithm>
#include <cmath>

#include "core/with_scalar_type.hpp"
#include "models/decoder.hpp"
#include "parallel/collectives/collectives.hpp"

namespace espalier {
namespace {

// f(flat index, index in the logical tensor) for the elements of `ranges` that belong to the tensor.
template <class F>
void for_each_element(const std::vector<Parameter>& parameters, const std::string& name,
                      const std::vector<IndexRange>& ranges, const F& f) {
  for (const Parameter& parameter : parameters) {
    if (parameter.spec.name != name)
      continue;
    for (const IndexRange& range : ranges) {
      const IndexRange part = intersection(range, parameter.flat_range());
      for (Index i = part.begin; i < part.end; ++i)
        f(static_cast<std::size_t>(i), static_cast<std::size_t>(global_index(parameter.spec, i - parameter.offset)));
    }
  }
}

}  // namespace

std::vector<LogicalTensor> logical_tensors(const std::vector<Parameter>& whole_model) {
  std::vector<LogicalTensor> tensors;
  for (const Parameter& parameter : whole_model)
    tensors.push_back({parameter.spec.name, parameter.spec.shape, {}});
  return tensors;
}

std::vector<std::vector<LogicalTensor>> in_groups(std::vector<LogicalTensor> tensors) {
  std::vector<std::vector<LogicalTensor>> groups;
  constexpr Index group_elements = Index{1} << 22;
  Index elements = group_elements;
  for (LogicalTensor& tensor : tensors) {
    const Index size = num_elements(tensor.shape);
    if (elements + size > group_elements) {
      groups.emplace_back();
      elements = 0;
    }
    elements += size;
    groups.back().push_back(std::move(tensor));
  }
  return groups;
}

// Each element has one rank that counts it: the sum with the others' zeros is exact.
void assemble(const Communicator& world, const ShardedCopy& copy, std::span<LogicalTensor> tensors) {
  std::vector<double> packed;
  for (LogicalTensor& tensor : tensors) {
    tensor.values.assign(static_cast<std::size_t>(num_elements(tensor.shape)), 0.0);
    for_each_element(copy.parameters, tensor.name, copy.unique,
                     [&](std::size_t flat, std::size_t logical) { tensor.values[logical] = copy.values[flat]; });
    packed.insert(packed.end(), tensor.values.begin(), tensor.values.end());
  }
  if (world.size() == 1)
    return;
  const Tensor<double, 1> device("espalier::other::logical_tensors", packed.size());
  const Kokkos::View<double*, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged> host(packed.data(),
                                                                                                    packed.size());
  const ExecSpace exec;
  Kokkos::deep_copy(exec, device, host);
  all_reduce(exec, world, device);
  Kokkos::deep_copy(exec, host, device);
  compat::fence(exec, "espalier::assemble: the sums are read on the host");
  auto next = packed.begin();
  for (LogicalTensor& tensor : tensors) {
    std::copy_n(next, tensor.values.size(), tensor.values.begin());
    next += static_cast<std::ptrdiff_t>(tensor.values.size());
  }
}

double local_deviation(const ShardedCopy& copy, const LogicalTensor& tensor, const std::vector<IndexRange>& held) {
  double sum = 0;
  for_each_element(copy.parameters, tensor.name, held, [&](std::size_t flat, std::size_t logical) {
    const double difference = copy.values[flat] - tensor.values[logical];
    sum += difference * difference;
  });
  return std::sqrt(sum);
}

void scatter(const LogicalTensor& tensor, const std::vector<Parameter>& parameters, std::vector<double>& flat) {
  const std::vector<IndexRange> everything = {{0, static_cast<Index>(flat.size())}};
  for_each_element(parameters, tensor.name, everything,
                   [&](std::size_t index, std::size_t logical) { flat[index] = tensor.values[logical]; });
}

std::vector<double> scattered(const FlatArray& array, Index flat_size) {
  std::vector<double> flat(static_cast<std::size_t>(flat_size), 0.0);
  with_scalar_type(array.type, [&]<class T>() {
    const Tensor<T, 1> values = array.values<T>();
    const ExecSpace exec;
    const auto host = Kokkos::create_mirror_view(values);
    Kokkos::deep_copy(exec, host, values);
    compat::fence(exec, "espalier::trainer_copies: the values are read on the host");
    const T* from = host.data();
    for (const IndexRange& range : array.held)
      for (Index i = range.begin; i < range.end; ++i)
        flat[static_cast<std::size_t>(i)] = static_cast<double>(static_cast<State<T>>(*from++));
  });
  return flat;
}

void pack(const std::vector<double>& flat, const FlatArray& array) {
  with_scalar_type(array.type, [&]<class T>() {
    const Tensor<T, 1> values = array.values<T>();
    const auto host = Kokkos::create_mirror_view(values);
    T* to = host.data();
    for (const IndexRange& range : array.held)
      for (Index i = range.begin; i < range.end; ++i)
        *to++ = static_cast<T>(static_cast<State<T>>(flat[static_cast<std::size_t>(i)]));
    const ExecSpace exec;
    Kokkos::deep_copy(exec, values, host);
    compat::fence(exec, "espalier::trainer_copies: any instance may read the values, and the host copy goes away");
  });
}

std::vector<double> master_weights(const Trainer& trainer) {
  const TrainedArrays arrays = trainer.arrays();
  return scattered(arrays.master_weights, arrays.flat_size);
}

ShardedCopy copy_of(const Trainer& trainer, std::vector<double> values, bool owned) {
  return {trainer.parameters(), owned ? trainer.unique_owned() : trainer.unique_weights(), std::move(values)};
}

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values)
    sum += value * value;
  return std::sqrt(sum);
}

double norm_of_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    sum += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(sum);
}

}  // namespace espalier

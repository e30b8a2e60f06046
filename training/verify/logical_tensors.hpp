// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/parameter_spec.hpp"
#include "parallel/collectives/communicator.hpp"
#include "training/step/trainer.hpp"

/// The flat arrays of a trainer in host memory, as comparisons of layouts read and write them.

namespace espalier {

/// A logical tensor in host memory, whole, on every rank: what layouts are compared by.
struct LogicalTensor {
  std::string name;
  std::vector<Index> shape;
  std::vector<double> values;  ///< row-major
};

/// Names and shapes of all tensors of a model, in flat order of one rank; values are empty.
std::vector<LogicalTensor> logical_tensors(const std::vector<Parameter>& whole_model);

/// The same in groups of some millions of elements, or of one tensor, to be put together one group at a time.
std::vector<std::vector<LogicalTensor>> in_groups(std::vector<LogicalTensor> tensors);

/// A copy of one flat array of a layout, each rank's part in its host memory.
struct ShardedCopy {
  std::vector<Parameter> parameters;  ///< none on a rank that takes no part in the layout
  std::vector<IndexRange> counted;    ///< flat ranges in which this rank stands for all that hold the same
  std::vector<double> values;         ///< flat
};

/// Puts tensors together from the parts of all ranks, by few messages. Collective over `world`.
void assemble(const Communicator& world, const ShardedCopy& copy, std::span<LogicalTensor> tensors);

/// 2-norm of the difference between what this rank holds of the tensor, counted or not, and the tensor.
double local_deviation(const ShardedCopy& copy, const LogicalTensor& tensor, const std::vector<IndexRange>& held);

/// Writes this rank's shard of the tensor into a flat array laid out by `parameters`.
void scatter(const LogicalTensor& tensor, const std::vector<Parameter>& parameters, std::vector<double>& flat);

double norm_of(const std::vector<double>& values);
double norm_of_difference(const std::vector<double>& a, const std::vector<double>& b);

/// A flat array of the device.
template <class View>
std::vector<double> host_values(const View& view) {
  const ExecSpace exec;
  const auto host = Kokkos::create_mirror_view(view);
  Kokkos::deep_copy(exec, host, view);
  compat::fence(exec, "espalier::trainer_copies: the values are read on the host");
  std::vector<double> values(host.extent(0));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(host(i));
  return values;
}

/// Back again, rounded to the array's type.
template <class View>
void set_device_values(const std::vector<double>& values, const View& view) {
  using Value = typename View::non_const_value_type;
  const auto host = Kokkos::create_mirror_view(view);
  for (std::size_t i = 0; i < values.size(); ++i)
    host(i) = static_cast<Value>(static_cast<State<Value>>(values[i]));
  const ExecSpace exec;
  Kokkos::deep_copy(exec, view, host);
  compat::fence(exec, "espalier::trainer_copies: any instance may read the values, and the host copy goes away");
}

/// Of the ranges `held` of the flat arrays, one after another: spread over (flat_size), zero elsewhere.
template <class View>
std::vector<double> spread(const View& values, const std::vector<IndexRange>& held, Index flat_size) {
  const std::vector<double> packed = host_values(values);
  std::vector<double> flat(static_cast<std::size_t>(flat_size), 0.0);
  auto from = packed.begin();
  for (const IndexRange& range : held) {
    std::copy_n(from, range.size(), flat.begin() + range.begin);
    from += range.size();
  }
  return flat;
}

/// The other way round.
template <class View>
void pack(const std::vector<double>& flat, const std::vector<IndexRange>& held, const View& values) {
  std::vector<double> packed;
  for (const IndexRange& range : held)
    packed.insert(packed.end(), flat.begin() + range.begin, flat.begin() + range.end);
  set_device_values(packed, values);
}

/// Moments as if they lay like the flat arrays: zero where this rank keeps none.
template <class P>
std::vector<double> spread_moments(const Trainer<P>& trainer, const Tensor<State<Compute<P>>, 1>& moments) {
  return spread(moments, trainer.optimizer().owned(), trainer.parameters().flat_size());
}
template <class P>
std::vector<double> spread_gradients(const Trainer<P>& trainer) {
  const auto& gradients = trainer.parameters().gradients();
  return spread(gradients.values(), gradients.held(), trainer.parameters().flat_size());
}
template <class P>
std::vector<double> spread_weights(const Trainer<P>& trainer) {
  const auto& weights = trainer.parameters().weights();
  return spread(weights.values(), weights.held(), trainer.parameters().flat_size());
}

/// What the optimizer updates, in fp32 or fp64, as it lies in the flat arrays; zero where this rank keeps no masters.
template <class P>
std::vector<double> masters(const Trainer<P>& trainer) {
  if constexpr (has_masters<Compute<P>>)
    return spread_moments(trainer, trainer.optimizer().masters());
  else
    return spread_weights(trainer);
}

/// `values` are of this rank's flat arrays; `owned`: true only where this rank updates them.
template <class P>
ShardedCopy copy_of(const Trainer<P>& trainer, std::vector<double> values, bool owned) {
  return {trainer.parameters().parameters(), owned ? trainer.counted_owned() : trainer.counted_weights(),
          std::move(values)};
}

}  // namespace espalier

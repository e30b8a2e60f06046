// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/flat_storage.hpp"
#include "core/parameter_spec.hpp"
#include "core/tensor.hpp"

namespace espalier {

/// All parameters of a rank in flat arrays, cut into aligned segments ordered by (chunk, block, group, decay). Code
/// that reduces, updates, clips, saves or inspects parameters knows no layers. T is the compute type: where it has 16
/// bits, the optimizer keeps fp32 master weights.
template <class T>
class ParameterStore {
 public:
  using Id = int;

  /// Registers a parameter; before allocate(). Returns a handle that stays valid.
  Id declare(ParameterSpec spec);

  /// Sorts the parameters into segments and gives each its offset; nothing can be declared afterwards.
  void lay_out();

  /// Lays out, if that is not done, and allocates weights and gradients, zeroed.
  void allocate();

  /// The same for a rank that keeps shards (ZeRO-2, ZeRO-3). Without units it keeps everything.
  void allocate(const FlatSharding& weights, const FlatSharding& gradients);

  /// The same without gradients, for a model that only runs forward.
  void allocate_weights();

  /// Weights and gradients as tensors; the product of the extents must be the local size.
  template <class... Extents>
  Tensor<T, sizeof...(Extents)> weight(Id id, Extents... extents) const {
    check_size(id, {static_cast<Index>(extents)...});
    return Tensor<T, sizeof...(Extents)>(weights_.data(parameter(id).offset), extents...);
  }
  template <class... Extents>
  Tensor<State<T>, sizeof...(Extents)> gradient(Id id, Extents... extents) const {
    check_size(id, {static_cast<Index>(extents)...});
    return Tensor<State<T>, sizeof...(Extents)>(gradients_.data(parameter(id).offset), extents...);
  }

  /// The same of the parameters from `first` to `last`, which join each other (ParameterSpec::joins_previous): their
  /// rows one below the other.
  template <class... Extents>
  Tensor<T, sizeof...(Extents)> joined_weight(Id first, Id last, Extents... extents) const {
    check_joined(first, last, {static_cast<Index>(extents)...});
    return Tensor<T, sizeof...(Extents)>(weights_.data(parameter(first).offset), extents...);
  }
  template <class... Extents>
  Tensor<State<T>, sizeof...(Extents)> joined_gradient(Id first, Id last, Extents... extents) const {
    check_joined(first, last, {static_cast<Index>(extents)...});
    return Tensor<State<T>, sizeof...(Extents)>(gradients_.data(parameter(first).offset), extents...);
  }

  /// A matrix with the padding below it, (padded_rows(), columns): rows of zeros that matmuls may take along.
  Tensor<T, 2> padded_weight(Id id) const { return padded<T>(id, weights_); }
  Tensor<State<T>, 2> padded_gradient(Id id) const { return padded<State<T>>(id, gradients_); }

  const Parameter& parameter(Id id) const { return parameters_[position_[static_cast<std::size_t>(id)]]; }
  const std::vector<Parameter>& parameters() const { return parameters_; }  ///< in flat order
  const std::vector<Segment>& segments() const { return segments_; }
  Index flat_size() const { return flat_size_; }

  const FlatStorage<T>& weights() const { return weights_; }
  const FlatStorage<State<T>>& gradients() const { return gradients_; }

  /// What is held of them: (flat_size) without units.
  Tensor<T, 1> flat_weights() const { return weights_.values(); }
  Tensor<State<T>, 1> flat_gradients() const { return gradients_.values(); }

  /// Fills weights with init_mean + init_std * normal(seed, stream, init_first + global index): the same values on any
  /// layout. The stream is init_stream, or the name.
  void initialize(const ExecSpace& exec, std::uint64_t seed) const;

  /// The same values before they are rounded to T: of the elements `range` of the flat arrays, at the front of
  /// `values`. Padding is left alone.
  void initial_values(const ExecSpace& exec, std::uint64_t seed, IndexRange range,
                      const Tensor<State<T>, 1>& values /* (range.size() or more) */) const;

 private:
  bool is_allocated() const { return weights_.values().data() != nullptr; }
  void check_size(Id id, const std::vector<Index>& extents) const;
  void check_joined(Id first, Id last, const std::vector<Index>& extents) const;
  template <class S>
  Tensor<S, 2> padded(Id id, const FlatStorage<S>& flat) const {
    const Parameter& matrix = parameter(id);
    check_size(id, matrix.local_shape);
    return Tensor<S, 2>(flat.data(matrix.offset), matrix.padded_rows(), matrix.local_shape.at(1));
  }

  std::vector<Parameter> parameters_;
  std::vector<std::size_t> position_;  // by handle; parameters_ is sorted by segment
  std::vector<Segment> segments_;
  Index flat_size_ = 0;
  FlatStorage<T> weights_;
  FlatStorage<State<T>> gradients_;
};

}  // namespace espalier

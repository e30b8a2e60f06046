// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "core/tensor.hpp"

namespace espalier {

/// A half-open run of indices.
struct IndexRange {
  Index begin = 0;
  Index end = 0;
  Index size() const { return end - begin; }
  bool operator==(const IndexRange&) const = default;
};

/// What two runs share; empty where they share nothing.
IndexRange intersection(IndexRange a, IndexRange b);

/// The part of a logical tensor that this rank holds: dimension `dim` is cut into `parts`, ours is `part`. Where the
/// extent does not divide, the first parts are one longer: nothing is ever padded.
struct Shard {
  int dim = 0;
  Index part = 0;
  Index parts = 1;

  /// Our indices along `dim`, which is `extent` long.
  IndexRange range(Index extent) const;
};

/// Over which ranks the gradient of a parameter is summed: the replicas of data parallelism; also the tensor axis,
/// where each of its ranks has seen other rows only; or the replicas of the first and of the last stage, which both
/// hold the token table. The order is that of the flat arrays, so that tied gradients, final last, are reduced last.
enum class ReductionGroup { tied, replicas, replicas_and_tensor };
inline constexpr std::size_t num_reduction_groups = 3;

struct ParameterSpec {
  std::string name;          ///< logical, the same on every layout: "h.3.mlp.up.weight"
  std::vector<Index> shape;  ///< global
  Shard shard = {};
  int chunk = 0;  ///< model chunk (virtual stage) on this rank
  int block = 0;  ///< position inside the chunk, in forward order
  ReductionGroup group = ReductionGroup::replicas;
  bool weight_decay = true;  ///< false for biases and norms
  double init_mean = 0;
  double init_std = 0;
};

/// A named window into the flat arrays of a ParameterStore.
struct Parameter {
  ParameterSpec spec;
  std::vector<Index> local_shape;
  Index offset = 0;  ///< elements from the start of the flat arrays
  Index size = 0;    ///< local elements
  IndexRange flat_range() const { return {offset, offset + size}; }
};

/// A contiguous run of parameters that are reduced and updated alike.
struct Segment {
  int chunk = 0;
  int block = 0;
  ReductionGroup group = ReductionGroup::replicas;
  bool weight_decay = true;
  Index offset = 0;
  Index size = 0;  ///< with padding, which is zero in every array and stays zero
  IndexRange flat_range() const { return {offset, offset + size}; }
};

/// All parameters of a rank in flat arrays, cut into aligned segments ordered by (chunk, block, group, decay): what
/// reduces, updates, clips, saves or inspects parameters needs to know no layer. T is the compute type: where it has 16
/// bits, the optimizer keeps masters of the weights in fp32.
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

  /// Weights and gradients as tensors; the product of the extents must be the local size.
  template <class... Extents>
  Tensor<T, sizeof...(Extents)> weight(Id id, Extents... extents) const {
    check_size(id, {static_cast<Index>(extents)...});
    return Tensor<T, sizeof...(Extents)>(weights_.data() + parameter(id).offset, extents...);
  }
  template <class... Extents>
  Tensor<State<T>, sizeof...(Extents)> gradient(Id id, Extents... extents) const {
    check_size(id, {static_cast<Index>(extents)...});
    return Tensor<State<T>, sizeof...(Extents)>(gradients_.data() + parameter(id).offset, extents...);
  }

  const Parameter& parameter(Id id) const { return parameters_[position_[static_cast<std::size_t>(id)]]; }
  const std::vector<Parameter>& parameters() const { return parameters_; }  ///< in flat order
  const std::vector<Segment>& segments() const { return segments_; }
  Index flat_size() const { return flat_size_; }
  Index num_parameters() const;  ///< global elements of the declared tensors

  Tensor<T, 1> flat_weights() const { return weights_; }             ///< (flat_size)
  Tensor<State<T>, 1> flat_gradients() const { return gradients_; }  ///< (flat_size)

  void zero_gradients(const ExecSpace& exec) const;

  /// Fills weights with init_mean + init_std * normal(seed, name, global index): the same values on any layout.
  void initialize(const ExecSpace& exec, std::uint64_t seed) const;

  /// The same values before they are rounded to T: of the elements `range` of the flat arrays, at the front of
  /// `values`. Padding is left alone.
  void initial_values(const ExecSpace& exec, std::uint64_t seed, IndexRange range,
                      const Tensor<State<T>, 1>& values /* (range.size() or more) */) const;

 private:
  void check_size(Id id, const std::vector<Index>& extents) const;

  std::vector<Parameter> parameters_;
  std::vector<std::size_t> position_;  // by handle; parameters_ is sorted by segment
  std::vector<Segment> segments_;
  Index flat_size_ = 0;
  Tensor<T, 1> weights_;           // (flat_size)
  Tensor<State<T>, 1> gradients_;  // (flat_size)
};

/// Index into the global tensor of element `local` of a shard.
Index global_index(const ParameterSpec& spec, Index local);

}  // namespace espalier

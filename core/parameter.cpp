// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "core/parameter.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"
#include "core/random.hpp"

namespace espalier {
namespace {

// Vectors of any instruction set and transactions of any GPU start at a multiple of 128 bytes.
constexpr Index parameter_alignment = 64;  // elements; of parameters that join none

auto segment_key(const ParameterSpec& spec) {
  return std::tuple(spec.chunk, spec.block, spec.group(), !spec.weight_decay);
}

// The three factors of a row-major index around the sharded dimension: outer x dim x inner.
struct ShardGeometry {
  Index local_extent;   // of the sharded dimension on this rank
  Index global_extent;  // of it in the logical tensor
  Index inner;          // elements below it
  Index first;          // our first index along it
};

ShardGeometry geometry(const ParameterSpec& spec) {
  const auto dim = static_cast<std::size_t>(spec.shard.dim);
  const Index global_extent = spec.shape[dim];
  const IndexRange ours = spec.shard.range(global_extent);
  const Index inner = num_elements({spec.shape.begin() + spec.shard.dim + 1, spec.shape.end()});
  return {ours.size(), global_extent, inner, ours.begin};
}

KOKKOS_INLINE_FUNCTION Index to_global(const ShardGeometry& g, Index local) {
  const Index below = g.local_extent * g.inner;
  return (local / below * g.global_extent + g.first) * g.inner + local % below;
}

// values(i - range.begin) = the initial value of element i of the flat arrays, for all i in `range` that are no
// padding.
template <class V>
void fill(const ExecSpace& exec, const std::vector<Parameter>& parameters, std::uint64_t seed, IndexRange range,
          const Tensor<V, 1>& values) {
  for (const Parameter& parameter : parameters) {
    const ParameterSpec& spec = parameter.spec;
    const RandomStream stream(seed, spec.init_stream.empty() ? spec.name : spec.init_stream);
    const ShardGeometry shard = geometry(spec);
    const double mean = spec.init_mean;
    const double deviation = spec.init_std;
    const Index first = spec.init_first;
    const Index offset = parameter.offset;
    const IndexRange part = intersection(range, parameter.flat_range());
    const Index begin = range.begin;
    Kokkos::parallel_for(
        "espalier::core::initialize", RangePolicy(exec, part.begin, part.end), KOKKOS_LAMBDA(const Index i) {
          const double noise =
              deviation == 0 ? 0 : stream.normal(static_cast<std::uint64_t>(first + to_global(shard, i - offset)));
          values(i - begin) = static_cast<V>(static_cast<State<V>>(mean + deviation * noise));
        });
  }
}

}  // namespace

IndexRange intersection(IndexRange a, IndexRange b) {
  const Index begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

IndexRange Shard::range(Index extent) const {
  const auto begin_of = [&](Index p) { return p * (extent / parts) + std::min(p, extent % parts); };
  return {begin_of(part), begin_of(part + 1)};
}

Index global_index(const ParameterSpec& spec, Index local) { return to_global(geometry(spec), local); }

template <class T>
typename ParameterStore<T>::Id ParameterStore<T>::declare(ParameterSpec spec) {
  ESPALIER_ASSERT(flat_size_ == 0, "espalier::ParameterStore::declare: the store is laid out already");
  const auto sharded_dim = static_cast<std::size_t>(spec.shard.dim);
  ESPALIER_ASSERT(spec.shape.at(sharded_dim) >= spec.shard.parts,
                  "espalier::ParameterStore::declare: " + spec.name + " has fewer rows than shards");
  Parameter parameter;
  parameter.local_shape = spec.shape;
  parameter.local_shape[sharded_dim] = spec.shard.range(spec.shape[sharded_dim]).size();
  parameter.size = num_elements(parameter.local_shape);
  parameter.spec = std::move(spec);
  parameters_.push_back(std::move(parameter));
  position_.push_back(parameters_.size() - 1);
  return static_cast<Id>(position_.size()) - 1;
}

template <class T>
void ParameterStore<T>::lay_out() {
  ESPALIER_ASSERT(flat_size_ == 0, "espalier::ParameterStore::lay_out: the store is laid out already");
  std::vector<std::size_t> order(parameters_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return segment_key(parameters_[a].spec) < segment_key(parameters_[b].spec);
  });
  std::vector<Parameter> sorted;
  for (std::size_t i = 0; i < order.size(); ++i) {
    position_[order[i]] = i;
    sorted.push_back(std::move(parameters_[order[i]]));
  }
  parameters_ = std::move(sorted);

  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ParameterSpec& spec = parameters_[i].spec;
    if (i == 0 || segment_key(spec) != segment_key(parameters_[i - 1].spec)) {
      ESPALIER_ASSERT(!spec.joins_previous, "espalier::ParameterStore: " + spec.name + " has nothing to join");
      flat_size_ = round_up(flat_size_, Segment::alignment);
      segments_.push_back({spec.chunk, spec.block, spec.group(), spec.weight_decay, flat_size_, 0});
    }
    parameters_[i].offset = flat_size_;
    const Index columns = parameters_[i].size / parameters_[i].local_shape[0];
    flat_size_ += parameters_[i].padded_rows() * columns;
    if (i + 1 == parameters_.size() || !parameters_[i + 1].spec.joins_previous)
      flat_size_ = round_up(flat_size_, parameter_alignment);
    segments_.back().size = flat_size_ - segments_.back().offset;
  }
}

template <class T>
void ParameterStore<T>::allocate_weights() {
  if (flat_size_ == 0)
    lay_out();
  weights_ = FlatStorage<T>(Category::weights, flat_size_);
}

template <class T>
void ParameterStore<T>::allocate() {
  allocate({}, {});
}

template <class T>
void ParameterStore<T>::allocate(const FlatSharding& weights, const FlatSharding& gradients) {
  if (flat_size_ == 0)
    lay_out();
  weights_ = FlatStorage<T>(Category::weights, flat_size_, weights);
  gradients_ = FlatStorage<State<T>>(Category::gradients, flat_size_, gradients);
}

template <class T>
void ParameterStore<T>::initialize(const ExecSpace& exec, std::uint64_t seed) const {
  for (const IndexRange& range : weights_.held())
    fill<T>(exec, parameters_, seed, range,
            Tensor<T, 1>(weights_.values().data() + weights_.offset_of(range.begin), range.size()));
}

template <class T>
void ParameterStore<T>::initial_values(const ExecSpace& exec, std::uint64_t seed, IndexRange range,
                                       const Tensor<State<T>, 1>& values) const {
  fill<State<T>>(exec, parameters_, seed, range, values);
}

template <class T>
void ParameterStore<T>::check_size(Id id, const std::vector<Index>& extents) const {
  ESPALIER_ASSERT(is_allocated(), "espalier::ParameterStore: weights are asked for before allocate()");
  ESPALIER_ASSERT(num_elements(extents) == parameter(id).size,
                  "espalier::ParameterStore: " + parameter(id).spec.name + " has local shape " +
                      shape_text(parameter(id).local_shape) + ", asked for " + shape_text(extents));
}

template <class T>
void ParameterStore<T>::check_joined(Id first, Id last, const std::vector<Index>& extents) const {
  const IndexRange all{parameter(first).offset, parameter(last).flat_range().end};
  ESPALIER_ASSERT(is_allocated() && all.size() == num_elements(extents),
                  "espalier::ParameterStore: " + parameter(first).spec.name + " to " + parameter(last).spec.name +
                      " do not join as " + shape_text(extents));
}

#define ESPALIER_INSTANTIATE(T) template class ParameterStore<T>;
ESPALIER_FOR_COMPUTE_TYPES(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier

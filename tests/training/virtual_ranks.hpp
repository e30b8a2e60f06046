// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "training/checkpoint/training_state.hpp"
#include "training/step/flat_blocks.hpp"

namespace espalier::test {

/// Where a rank that exists in the test only would stand.
struct VirtualLayout {
  int tp = 1, dp = 1, pp = 1;
  bool zero = false;  // moments cut over dp
  int size() const { return tp * dp * pp; }
  std::string text() const {
    return "tp " + std::to_string(tp) + ", dp " + std::to_string(dp) + ", pp " + std::to_string(pp) +
           (zero ? ", ZeRO-1" : "");
  }
};

/// The parameters and state arrays of one rank of a layout: sizes that nothing divides, a tied table on the first and
/// the last stage, every value a function of (array, tensor, logical index).
template <class T>
class VirtualRank {
 public:
  VirtualRank(const VirtualLayout& layout, int rank)
      : layout_(layout), tp_(rank % layout.tp), dp_(rank / layout.tp % layout.dp), pp_(rank / layout.tp / layout.dp) {
    declare();
    store_.allocate();
    held_ = layout.zero ? owned_of_segments() : std::vector<IndexRange>{{0, store_.flat_size()}};
    for (const char* const group : {"exp_avg", "exp_avg_sq"})
      arrays_.push_back({group, moments_.emplace_back(allocate<T>(Category::optimizer, group, total(held_))), held_});
    arrays_.push_back(weights_of(store_));
  }

  const ParameterStore<T>& store() const { return store_; }
  const std::vector<FlatArray>& arrays() const { return arrays_; }

  /// Sets every held element: to what it should be, or to rubbish.
  void fill(bool rubbish) const {
    visit([&](T& value, T wanted) { value = rubbish ? T(-1) : wanted; });
  }

  /// Held elements that are not what they should be.
  Index num_wrong() const {
    Index wrong = 0;
    visit([&](T& value, T wanted) { wrong += value != wanted; });
    return wrong;
  }

  /// Of replicas over tp the first counts, of replicas over dp the owner or the first, of tied tables that of stage 0.
  StateOwnership ownership() const {
    StateOwnership ownership;
    for (const Parameter& parameter : store_.parameters()) {
      const bool is_copy =
          (parameter.spec.shard.parts == 1 && tp_ > 0) || (parameter.spec.tied && layout_.pp > 1 && pp_ > 0);
      if (is_copy)
        continue;
      const IndexRange whole = parameter.flat_range();
      if (dp_ == 0)
        ownership.weights.push_back(whole);
      for (const IndexRange& run : held_)
        if (const IndexRange part = intersection(whole, run); part.size() > 0 && (layout_.zero || dp_ == 0))
          ownership.moments.push_back(part);
    }
    return ownership;
  }

  /// Of copies in the memory of the host, which live as long as this rank.
  std::vector<TensorBlock> blocks() const {
    std::vector<TensorBlock> blocks;
    const StateOwnership ours = ownership();
    for (const FlatArray& array : arrays_) {
      copies_.push_back(on_host_of(array));
      for (const TensorBlock& block : blocks_to_write(store_.parameters(), array, copies_.back().data(),
                                                      array.group == "weights" ? ours.weights : ours.moments))
        blocks.push_back(block);
    }
    return blocks;
  }

  std::vector<std::string> tensors() const {
    std::vector<std::string> names;
    for (const FlatArray& array : arrays_)
      for (const Parameter& parameter : store_.parameters())
        names.push_back(tensor_name(array.group, parameter.spec.name));
    return names;
  }

  void read(const CheckpointReader& checkpoint) const {
    for (const FlatArray& array : arrays_)
      read_flat_arrays(ExecSpace(), checkpoint, store_.parameters(), {array});
  }

 private:
  static auto on_host_of(const FlatArray& array) {
    return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), array.values<T>());
  }

  static Index total(const std::vector<IndexRange>& runs) {
    Index size = 0;
    for (const IndexRange& run : runs)
      size += run.size();
    return size;
  }

  void declare() {
    const Index C = 13, F = 22, V = 29, P = 5;
    const int last = layout_.pp - 1;
    const auto add = [&](const std::string& name, std::vector<Index> shape, int shard_dim, int block,
                         bool tied = false) {
      const Shard shard = shard_dim < 0 ? Shard{} : Shard{shard_dim, tp_, layout_.tp};
      const bool decays = shape.size() > 1;
      store_.declare({.name = name,
                      .shape = std::move(shape),
                      .shard = shard,
                      .block = block,
                      .tied = tied,
                      .weight_decay = decays});
    };
    if (pp_ == 0 || pp_ == last)
      add("embedding.token", {V, C}, 0, 0, layout_.pp > 1);
    if (pp_ == 0)
      add("embedding.position", {P, C}, -1, 0);
    for (int i = 0; i < 4; ++i) {
      if (i * layout_.pp / 4 != pp_)
        continue;
      const std::string name = "h." + std::to_string(i) + ".";
      add(name + "norm1.weight", {C}, -1, i + 1);
      add(name + "attention.qkv.weight", {3, C, C}, 1, i + 1);
      add(name + "attention.qkv.bias", {3, C}, 1, i + 1);
      add(name + "attention.proj.weight", {C, C}, 1, i + 1);
      add(name + "mlp.up.weight", {F, C}, 0, i + 1);
      add(name + "mlp.up.bias", {F}, 0, i + 1);
      add(name + "mlp.down.weight", {C, F}, 1, i + 1);
      add(name + "mlp.down.bias", {C}, -1, i + 1);
    }
    if (pp_ == last)
      add("final_norm.weight", {C}, -1, 5);
  }

  // Segments cut over dp at the rows nearest to equal parts.
  std::vector<IndexRange> owned_of_segments() const {
    std::vector<IndexRange> owned;
    for (const Segment& segment : store_.segments())
      owned.push_back({cut(segment, dp_), cut(segment, dp_ + 1)});
    return owned;
  }

  Index cut(const Segment& segment, int part) const {
    if (part == layout_.dp)
      return segment.offset + segment.size;
    const Index wanted = segment.offset + segment.size * part / layout_.dp;
    for (const Parameter& parameter : store_.parameters())
      if (wanted >= parameter.offset && wanted < parameter.offset + parameter.size) {
        const Index row = parameter.local_shape.size() > 1 ? parameter.local_shape.back() : 1;
        return parameter.offset + (wanted - parameter.offset) / row * row;
      }
    return wanted;
  }

  template <class Visit>
  void visit(const Visit& visit) const {
    for (const FlatArray& array : arrays_) {
      const auto host = on_host_of(array);
      for (const Parameter& parameter : store_.parameters()) {
        const RandomStream values(5, array.group + parameter.spec.name);
        Index base = 0;
        for (const IndexRange& run : array.held) {
          const IndexRange part = intersection(run, parameter.flat_range());
          for (Index i = part.begin; i < part.end; ++i) {
            const double value =
                values.normal(static_cast<std::uint64_t>(global_index(parameter.spec, i - parameter.offset)));
            visit(host(static_cast<std::size_t>(base + i - run.begin)),
                  static_cast<T>(array.group == "exp_avg_sq" ? std::abs(value) : value));  // squares are not negative
          }
          base += run.size();
        }
      }
      Kokkos::deep_copy(array.values<T>(), host);
    }
  }

  VirtualLayout layout_;
  int tp_, dp_, pp_;
  ParameterStore<T> store_;
  std::vector<IndexRange> held_;
  std::vector<Tensor<T, 1>> moments_;
  std::vector<FlatArray> arrays_;  // windows on the store and the moments
  mutable std::vector<Kokkos::View<T*, Kokkos::LayoutRight, Kokkos::HostSpace>> copies_;  // that blocks() lead to
};

}  // namespace espalier::test

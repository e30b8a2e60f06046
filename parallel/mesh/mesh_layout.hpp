// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/axis.hpp"
#include "core/scalars.hpp"
#include "parallel/mesh/reduction_groups.hpp"

namespace espalier {

/// The node of a rank, by its number. @param ranks_per_node 0: all ranks are on one
inline int node_of_rank(int rank, Index ranks_per_node) {
  return ranks_per_node > 0 ? rank / static_cast<int>(ranks_per_node) : 0;
}

/// The trained axes in the order of the ranks, fastest first. cp and ep follow tp.
using AxisOrder = std::array<Axis, trained_axes.size()>;
inline constexpr AxisOrder data_first_order{Axis::tp, Axis::dp, Axis::pp};
inline constexpr AxisOrder pipeline_first_order{Axis::tp, Axis::pp, Axis::dp};  ///< neighbouring stages side by side

/// "tp,dp,pp". @throws Error (ExitCode::usage) unless each axis is named once.
AxisOrder axis_order_from(std::string_view text);
std::string to_string(const AxisOrder& order);

/// One number for each axis: degrees (1 for axes that are not named), or the coordinates of a rank (0 for them).
class PerAxis {
 public:
  static constexpr PerAxis degrees(int tp, int dp, int pp) { return PerAxis(1).with_trained(tp, dp, pp); }
  static constexpr PerAxis coordinates(int tp, int dp, int pp) { return PerAxis(0).with_trained(tp, dp, pp); }
  constexpr PerAxis with(Axis axis, int value) const {
    PerAxis other = *this;
    other[axis] = value;
    return other;
  }

  constexpr int& operator[](Axis axis) { return values_[static_cast<std::size_t>(axis)]; }
  constexpr int operator[](Axis axis) const { return values_[static_cast<std::size_t>(axis)]; }
  bool operator==(const PerAxis&) const = default;

 private:
  constexpr explicit PerAxis(int value) : values_{value, value, value, value, value} {}
  constexpr PerAxis with_trained(int tp, int dp, int pp) const {
    return with(Axis::tp, tp).with(Axis::dp, dp).with(Axis::pp, pp);
  }
  std::array<int, num_axes> values_;
};

/// A device mesh: how many ranks along each axis, and which axis runs fastest. Pure arithmetic, for any world size.
/// With the default order: rank = tp + tp_size * (cp + cp_size * (ep + ep_size * (dp + dp_size * pp))).
struct MeshLayout {
  PerAxis degrees = PerAxis::degrees(1, 1, 1);
  AxisOrder order = data_first_order;
  /// Consecutive tp ranks that hold the same heads of K and V, where there are fewer heads than ranks.
  int kv_copies = 1;
  /// Consecutive replicas over which ZeRO shards: a shard group. Fewer than all: hybrid sharding. 0: all replicas.
  int shard_replicas = 0;
  /// Sums over many replicas have two levels: first over groups of so many consecutive replicas, then over the ranks
  /// with the same slice in all groups. 0: one level. Not used with shard_replicas.
  int first_level_replicas = 0;

  bool operator==(const MeshLayout&) const = default;
  int size() const;
  int replicas_of_shard_group() const { return shard_replicas > 0 ? shard_replicas : degrees[Axis::dp]; }
  /// Are there several shard groups (PyTorch HSDP)? Ranks with the same shard in all of them are a replicate group.
  bool is_hybrid_sharded() const { return replicas_of_shard_group() < degrees[Axis::dp]; }
  /// Consecutive replicas of the first level of a sum.
  int replicas_of_first_level() const {
    return !is_hybrid_sharded() && first_level_replicas > 0 ? first_level_replicas : replicas_of_shard_group();
  }
  bool has_two_levels() const { return replicas_of_first_level() < degrees[Axis::dp]; }
  int degree(Axis axis) const { return degrees[axis]; }
  /// All axes, fastest first.
  std::array<Axis, num_axes> rank_order() const;
  PerAxis coordinates(int rank) const;
  int rank_at(const PerAxis& coordinates) const;
  int first_rank_of_stage(int stage) const { return rank_at(PerAxis::coordinates(0, 0, stage)); }

  /// The ranks that differ from `rank` along `axis` only, itself included, ordered along the axis.
  std::vector<int> group(int rank, Axis axis) const;

  /// Number of that group among those of the same axis: equal for all its members, unlike any other's.
  int group_index(int rank, Axis axis) const;

  /// The ranks over which the gradients of a group are summed with those of `rank`, in the order of the sum: tp runs
  /// fastest, then cp, ep, dp and pp, for any order of the ranks. Stages between the first and the last hold no tied
  /// parameters: there a tied group stays within the stage.
  std::vector<int> reduction_ranks(int rank, const GroupKey& key) const;

  /// The first level of these: the ranks of our group. The second level: the ranks that hold our slice in all groups of
  /// the first (of a tied group: on both ends). With one level: all of them, and `rank` alone.
  std::vector<int> first_level_ranks(int rank, const GroupKey& key) const;
  std::vector<int> second_level_ranks(int rank, const GroupKey& key) const;

  /// The rank of `rank` in both levels, without listing the ranks, which may be thousands.
  GroupRank group_rank(int rank, const GroupKey& key) const;

  /// reduction_groups, with that of the heads of K and V if several tp ranks hold the same head, and that of experts if
  /// they are cut over ep.
  std::vector<GroupKey> groups() const;

  /// group_rank() of all groups().
  GroupRanks group_ranks(int rank) const;

  /// "tensor 2 x data 4 x pipeline 1"; context and expert ranks only where there are several.
  std::string text() const;
};

/// Number of consecutive replicas on a node; 0: it differs between nodes.
int replicas_of_a_node(const MeshLayout& mesh, int ranks_per_node);

/// MeshLayout::first_level_replicas. 0: one level, if the sum is over at most `max_at_once` ranks, or the number of
/// replicas is prime. Else the replicas of a node, if it has several, or the divisor for which both levels are most
/// alike. (An all_to_all sends p - 1 messages; in two levels about 2 sqrt(p).)
int first_level_replicas(const MeshLayout& mesh, int ranks_per_node, int max_at_once);
inline constexpr int default_max_summed_at_once = 64;

/// The layout of a world; data = 0: as many replicas as there are ranks for.
/// @throws Error (ExitCode::usage) with all factors and the nearest layouts that fit.
MeshLayout make_layout(int world_size, int tensor, int data, int pipeline, AxisOrder order = data_first_order);

/// @param wanted degrees; those of cp and ep are named where they are not 1
/// @throws Error (ExitCode::usage): the problem, all factors and the nearest layouts that fit.
[[noreturn]] void refuse_layout(int world_size, const PerAxis& wanted, const std::string& problem);

/// All layouts of `world_size` ranks, those nearest to the wanted degrees first.
std::vector<MeshLayout> layouts_by_distance(int world_size, const PerAxis& wanted);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh/mesh_layout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"

namespace espalier {
namespace {

double distance(const PerAxis& a, const PerAxis& b) {
  double sum = 0;
  for (const Axis axis : all_axes)
    sum += std::abs(std::log2(static_cast<double>(a[axis]) / std::max(1, b[axis])));
  return sum;
}

// How a sum of gradients runs along an axis.
struct SumAlong {
  int index;  // of our coordinate among those that are summed
  int count;
  int first;   // of them
  int stride;  // from one to the next
  int coordinate(int i) const { return first + i * stride; }
};

SumAlong sum_along(Axis axis, const MeshLayout& layout, const PerAxis& ours, const GroupKey& key) {
  const int degree = layout.degree(axis);
  if (axis == Axis::tp && key.axes.contains(axis) && key.tp_run > 0)
    return {.index = ours[axis] % key.tp_run,
            .count = key.tp_run,
            .first = ours[axis] / key.tp_run * key.tp_run,
            .stride = 1};
  if (key.axes.contains(axis))
    return {.index = ours[axis], .count = degree, .first = 0, .stride = 1};
  const int last = degree - 1;
  if (axis == Axis::pp && key.tied && last > 0 && (ours[axis] == 0 || ours[axis] == last))
    return {.index = ours[axis] / last, .count = 2, .first = 0, .stride = last};
  return {.index = 0, .count = 1, .first = ours[axis], .stride = 0};
}

enum class Level { whole, first, second };

SumAlong sum_along(Axis axis, const MeshLayout& layout, const PerAxis& ours, const GroupKey& key, Level level) {
  const SumAlong whole = sum_along(axis, layout, ours, key);
  const SumAlong alone{.index = 0, .count = 1, .first = ours[axis], .stride = 0};
  if (level == Level::whole)
    return whole;
  const bool is_first = level == Level::first;
  if (!layout.has_two_levels())
    return is_first ? whole : alone;
  const int each = layout.replicas_of_first_level();
  switch (axis) {
    case Axis::dp: {
      const int first = is_first ? ours[axis] / each * each : ours[axis] % each;
      return {.index = is_first ? ours[axis] % each : ours[axis] / each,
              .count = is_first ? each : layout.degree(axis) / each,
              .first = first,
              .stride = is_first ? 1 : each};
    }
    case Axis::tp:
    case Axis::cp:
    case Axis::ep: return is_first ? whole : alone;
    case Axis::pp: return is_first ? alone : whole;  // each end of a tied pipeline sums its own first
  }
  return whole;
}

std::vector<int> ranks_of_sum(const MeshLayout& layout, int rank, const GroupKey& key, Level level) {
  const PerAxis ours = layout.coordinates(rank);
  std::vector<PerAxis> members{ours};
  for (const Axis axis : all_axes) {  // from the fastest of the sum
    const SumAlong sum = sum_along(axis, layout, ours, key, level);
    std::vector<PerAxis> more;
    for (int i = 0; i < sum.count; ++i)
      for (const PerAxis& member : members)
        more.push_back(member.with(axis, sum.coordinate(i)));
    members = std::move(more);
  }
  std::vector<int> ranks;
  for (const PerAxis& member : members)
    ranks.push_back(layout.rank_at(member));
  return ranks;
}

const char* spelled_out(Axis axis) {
  switch (axis) {
    case Axis::tp: return "tensor";
    case Axis::cp: return "context";
    case Axis::ep: return "expert";
    case Axis::dp: return "data";
    case Axis::pp: break;
  }
  return "pipeline";
}

// In texts: those that are not trained only where they have ranks.
bool is_named(Axis axis, const PerAxis& degrees) {
  return degrees[axis] != 1 || std::ranges::find(trained_axes, axis) != trained_axes.end();
}

}  // namespace

void refuse_layout(int world_size, const PerAxis& wanted, const std::string& problem) {
  const auto layouts = layouts_by_distance(world_size, wanted);
  std::string nearest;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, layouts.size()); ++i)
    nearest += (i ? "; " : "") + layouts[i].text();
  std::vector<std::string> names, degrees;
  for (const Axis axis : all_axes)
    if (is_named(axis, wanted)) {
      names.emplace_back(spelled_out(axis));
      degrees.push_back(fmt::format("{} = {}", names.back(), wanted[axis]));
    }
  throw Error(ExitCode::usage, {.what = problem,
                                .where = "[parallel]",
                                .got = fmt::format("{} on {} ranks", fmt::join(degrees, ", "), world_size),
                                .wanted = fmt::format("{} = {}", fmt::join(names, " x "), world_size),
                                .todo = fmt::format("nearest layouts that fit: {}", nearest)});
}

AxisOrder axis_order_from(std::string_view text) {
  AxisOrder order{};
  AxisSet named;
  std::string_view rest = text;
  bool right = true;
  for (Axis& slot : order) {
    const auto word = rest.substr(0, rest.find(','));
    const auto axis = std::ranges::find_if(trained_axes, [&](Axis known) { return word == to_string(known); });
    right = axis != trained_axes.end() && !named.contains(*axis);
    if (!right)
      break;
    named = named | AxisSet{*axis};
    slot = *axis;
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  }
  if (!right || to_string(order) != text)
    throw Error(ExitCode::usage, {.what = "the order of the axes is not understood",
                                  .where = "[parallel]",
                                  .got = fmt::format("\"{}\"", text),
                                  .wanted = "tp, dp and pp, each once, separated by commas, the fastest first",
                                  .todo = "\"tp,dp,pp\" is the usual order"});
  return order;
}

std::string to_string(const AxisOrder& order) {
  return fmt::format("{},{},{}", to_string(order[0]), to_string(order[1]), to_string(order[2]));
}

int MeshLayout::size() const {
  int product = 1;
  for (const Axis axis : all_axes)
    product *= degrees[axis];
  return product;
}

std::array<Axis, num_axes> MeshLayout::rank_order() const {
  std::array<Axis, num_axes> all{};
  auto next = all.begin();
  for (const Axis axis : order) {
    *next++ = axis;
    if (axis == Axis::tp)
      for (const Axis behind : {Axis::cp, Axis::ep})
        *next++ = behind;
  }
  return all;
}

PerAxis MeshLayout::coordinates(int rank) const {
  PerAxis result = PerAxis::coordinates(0, 0, 0);
  for (const Axis axis : rank_order()) {
    result[axis] = rank % degrees[axis];
    rank /= degrees[axis];
  }
  return result;
}

int MeshLayout::rank_at(const PerAxis& coordinates) const {
  const auto axes = rank_order();
  int rank = 0;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis)
    rank = rank * degrees[*axis] + coordinates[*axis];
  return rank;
}

std::vector<int> MeshLayout::group(int rank, Axis axis) const {
  PerAxis member = coordinates(rank);
  std::vector<int> ranks;
  for (member[axis] = 0; member[axis] < degrees[axis]; ++member[axis])
    ranks.push_back(rank_at(member));
  return ranks;
}

int MeshLayout::group_index(int rank, Axis axis) const {
  const PerAxis ours = coordinates(rank);
  const auto axes = rank_order();
  int index = 0;
  for (auto other = axes.rbegin(); other != axes.rend(); ++other)
    if (*other != axis)
      index = index * degrees[*other] + ours[*other];
  return index;
}

std::vector<int> MeshLayout::reduction_ranks(int rank, const GroupKey& key) const {
  return ranks_of_sum(*this, rank, key, Level::whole);
}

std::vector<int> MeshLayout::first_level_ranks(int rank, const GroupKey& key) const {
  return ranks_of_sum(*this, rank, key, Level::first);
}

std::vector<int> MeshLayout::second_level_ranks(int rank, const GroupKey& key) const {
  return ranks_of_sum(*this, rank, key, Level::second);
}

GroupRank MeshLayout::group_rank(int rank, const GroupKey& key) const {
  const PerAxis ours = coordinates(rank);
  const auto without_what_is_one = [this](GroupKey group) {
    for (const Axis axis : all_axes)
      if (degrees[axis] == 1)
        group.axes = group.axes.without({axis});
    group.tied = group.tied && degrees[Axis::pp] > 1;
    return group;
  };
  const std::vector<GroupKey> known = groups();
  const auto same = std::ranges::find_if(
      known, [&](const GroupKey& other) { return without_what_is_one(other) == without_what_is_one(key); });
  GroupRank result{.is_hybrid_sharded = is_hybrid_sharded(), .communicator_key = same == known.end() ? key : *same};
  for (auto slowest = all_axes.rbegin(); slowest != all_axes.rend(); ++slowest) {
    const SumAlong first = sum_along(*slowest, *this, ours, key, Level::first);
    const SumAlong second = sum_along(*slowest, *this, ours, key, Level::second);
    result.rank = result.rank * first.count + first.index;
    result.size *= first.count;
    result.second_rank = result.second_rank * second.count + second.index;
    result.second_size *= second.count;
  }
  return result;
}

std::vector<GroupKey> MeshLayout::groups() const {
  std::vector<GroupKey> keys(reduction_groups.begin(), reduction_groups.end());
  if (kv_copies > 1 && kv_copies < degrees[Axis::tp])
    keys.push_back({.axes = AxisSet{Axis::tp} | token_axes, .tp_run = kv_copies});
  if (degrees[Axis::ep] > 1)
    keys.push_back({.axes = token_axes.without({Axis::ep})});
  return keys;
}

GroupRanks MeshLayout::group_ranks(int rank) const {
  GroupRanks ranks;
  for (const GroupKey& key : groups())
    ranks[key] = group_rank(rank, key);
  return ranks;
}

int replicas_of_a_node(const MeshLayout& mesh, int ranks_per_node) {
  int stride = 1;  // from a replica to the next
  for (const Axis axis : mesh.rank_order()) {
    if (axis == Axis::dp)
      break;
    stride *= mesh.degree(axis);
  }
  const int data = mesh.degree(Axis::dp);
  const int all = stride * data;
  if (data == 1 || stride >= ranks_per_node)
    return 1;
  if (mesh.size() <= ranks_per_node)
    return data;
  const bool are_whole = ranks_per_node % stride == 0 && (ranks_per_node % all == 0 || all % ranks_per_node == 0);
  return are_whole ? std::min(ranks_per_node / stride, data) : 0;
}

int first_level_replicas(const MeshLayout& mesh, int ranks_per_node, int max_at_once) {
  const int data = mesh.degree(Axis::dp);
  if (data * mesh.degree(Axis::cp) * mesh.degree(Axis::ep) <= max_at_once)
    return 0;
  const int of_node = ranks_per_node > 0 ? replicas_of_a_node(mesh, ranks_per_node) : 0;
  if (of_node > 1 && of_node < data)
    return of_node;
  int best = 0;
  for (int divisor = 2; divisor < data; ++divisor)
    if (data % divisor == 0 && (best == 0 || divisor + data / divisor < best + data / best))
      best = divisor;
  return best;
}

std::string MeshLayout::text() const {
  std::vector<std::string> factors;
  for (const Axis axis : all_axes)
    if (is_named(axis, degrees))
      factors.push_back(fmt::format("{} {}", spelled_out(axis), degrees[axis]));
  return fmt::format("{}", fmt::join(factors, " x "));
}

std::vector<MeshLayout> layouts_by_distance(int world_size, const PerAxis& wanted) {
  std::vector<MeshLayout> layouts;
  for (int tensor = 1; tensor <= world_size; ++tensor)
    for (int pipeline = 1; world_size % tensor == 0 && pipeline <= world_size / tensor; ++pipeline)
      if (world_size / tensor % pipeline == 0)
        layouts.push_back({.degrees = PerAxis::degrees(tensor, world_size / tensor / pipeline, pipeline)});
  PerAxis target = wanted;
  if (target[Axis::dp] <= 0)  // what is left: any number of replicas is as near as another
    target[Axis::dp] = std::max(1, world_size / std::max(1, target[Axis::tp]) / std::max(1, target[Axis::pp]));
  std::stable_sort(layouts.begin(), layouts.end(), [&](const MeshLayout& a, const MeshLayout& b) {
    return distance(a.degrees, target) < distance(b.degrees, target);
  });
  return layouts;
}

MeshLayout make_layout(int world_size, int tensor, int data, int pipeline, AxisOrder order) {
  const PerAxis wanted = PerAxis::degrees(tensor, data, pipeline);
  if (tensor < 1 || pipeline < 1 || data < 0)
    refuse_layout(world_size, wanted, "the degrees of parallelism must be positive (data = 0: what is left)");
  const long long fixed = static_cast<long long>(tensor) * pipeline;
  if (data == 0 && world_size % fixed != 0)
    refuse_layout(
        world_size, wanted,
        fmt::format("tensor {} x pipeline {} = {} does not divide the {} ranks", tensor, pipeline, fixed, world_size));
  if (data == 0)
    data = static_cast<int>(world_size / fixed);
  if (fixed * data != world_size)
    refuse_layout(world_size, wanted,
                  fmt::format("tensor {} x data {} x pipeline {} = {}, but there are {} ranks", tensor, data, pipeline,
                              fixed * data, world_size));
  for (const Axis axis : trained_axes)
    if (std::count(order.begin(), order.end(), axis) != 1)
      refuse_layout(world_size, wanted, fmt::format("the axis order must name {} once", to_string(axis)));
  return {.degrees = PerAxis::degrees(tensor, data, pipeline), .order = order};
}

}  // namespace espalier

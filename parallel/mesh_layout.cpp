// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh_layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"

namespace espalier {
namespace {

constexpr std::array<Axis, num_axes> all_axes{Axis::tp, Axis::dp, Axis::pp};

double distance(const PerAxis& a, const PerAxis& b) {
  double sum = 0;
  for (const Axis axis : all_axes)
    sum += std::abs(std::log2(static_cast<double>(a[axis]) / std::max(1, b[axis])));
  return sum;
}

}  // namespace

void refuse_layout(int world_size, const PerAxis& wanted, const std::string& problem) {
  const auto layouts = layouts_by_distance(world_size, wanted);
  std::string nearest;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, layouts.size()); ++i)
    nearest += (i ? "; " : "") + layouts[i].text();
  throw Error(ExitCode::usage, {.what = problem,
                                .where = "[parallel]",
                                .got = fmt::format("tensor = {}, data = {}, pipeline = {} on {} ranks",
                                                   wanted[Axis::tp], wanted[Axis::dp], wanted[Axis::pp], world_size),
                                .wanted = fmt::format("tensor x data x pipeline = {}", world_size),
                                .todo = fmt::format("nearest layouts that fit: {}", nearest)});
}

const char* to_string(Axis axis) {
  switch (axis) {
    case Axis::tp: return "tp";
    case Axis::dp: return "dp";
    case Axis::pp: return "pp";
  }
  return "unknown";
}

AxisOrder axis_order_from(std::string_view text) {
  AxisOrder order{};
  std::array<bool, num_axes> named{};
  std::string_view rest = text;
  bool right = true;
  for (Axis& place : order) {
    const auto word = rest.substr(0, rest.find(','));
    const auto axis =
        std::find_if(all_axes.begin(), all_axes.end(), [&](Axis candidate) { return word == to_string(candidate); });
    right = right && axis != all_axes.end() && !std::exchange(named[static_cast<std::size_t>(*axis)], true);
    if (!right)
      break;
    place = *axis;
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

int MeshLayout::size() const { return degrees[Axis::tp] * degrees[Axis::dp] * degrees[Axis::pp]; }

PerAxis MeshLayout::coordinates(int rank) const {
  PerAxis result;
  for (const Axis axis : order) {
    result[axis] = rank % degrees[axis];
    rank /= degrees[axis];
  }
  return result;
}

int MeshLayout::rank_at(const PerAxis& coordinates) const {
  int rank = 0;
  for (auto axis = order.rbegin(); axis != order.rend(); ++axis)
    rank = rank * degrees[*axis] + coordinates[*axis];
  return rank;
}

std::vector<int> MeshLayout::group(int rank, Axis axis) const {
  PerAxis place = coordinates(rank);
  std::vector<int> ranks;
  for (place[axis] = 0; place[axis] < degrees[axis]; ++place[axis])
    ranks.push_back(rank_at(place));
  return ranks;
}

int MeshLayout::group_index(int rank, Axis axis) const {
  const PerAxis place = coordinates(rank);
  int index = 0;
  for (auto other = order.rbegin(); other != order.rend(); ++other)
    if (*other != axis)
      index = index * degrees[*other] + place[*other];
  return index;
}

std::vector<int> MeshLayout::reduction_ranks(int rank, ReductionGroup group) const {
  PerAxis place = coordinates(rank);
  const int last_stage = degrees[Axis::pp] - 1;
  std::vector<int> ranks;
  const auto add_replicas = [&](int stage) {
    place[Axis::pp] = stage;
    for (place[Axis::dp] = 0; place[Axis::dp] < degrees[Axis::dp]; ++place[Axis::dp])
      ranks.push_back(rank_at(place));
  };
  const int stage = place[Axis::pp];
  if (group == ReductionGroup::replicas_and_tensor) {
    for (place[Axis::dp] = 0; place[Axis::dp] < degrees[Axis::dp]; ++place[Axis::dp])
      for (place[Axis::tp] = 0; place[Axis::tp] < degrees[Axis::tp]; ++place[Axis::tp])
        ranks.push_back(rank_at(place));
  } else if (group == ReductionGroup::tied && last_stage > 0 && (stage == 0 || stage == last_stage)) {
    add_replicas(0);
    add_replicas(last_stage);
  } else {
    add_replicas(stage);
  }
  return ranks;
}

PerGroup<GroupPlace> MeshLayout::reduction_places(int rank) const {
  const PerAxis place = coordinates(rank);
  const int replicas = degrees[Axis::dp];
  const int replica = place[Axis::dp];
  const int last_stage = degrees[Axis::pp] - 1;
  PerGroup<GroupPlace> places;  // in the order of reduction_ranks(), without listing them: there may be thousands
  for (const ReductionGroup group : all_reduction_groups)
    places[group] = {.rank = replica, .size = replicas, .joins = ReductionGroup::replicas};
  if (degrees[Axis::tp] > 1)
    places[ReductionGroup::replicas_and_tensor] = {.rank = replica * degrees[Axis::tp] + place[Axis::tp],
                                                   .size = replicas * degrees[Axis::tp],
                                                   .joins = ReductionGroup::replicas_and_tensor};
  if (last_stage > 0) {
    const bool holds_tied = place[Axis::pp] == 0 || place[Axis::pp] == last_stage;
    places[ReductionGroup::tied] = {.rank = replica + (place[Axis::pp] == last_stage ? replicas : 0),
                                    .size = holds_tied ? 2 * replicas : replicas,
                                    .joins = ReductionGroup::tied};
  }
  return places;
}

std::string MeshLayout::text() const {
  return fmt::format("tensor {} x data {} x pipeline {}", degrees[Axis::tp], degrees[Axis::dp], degrees[Axis::pp]);
}

std::vector<MeshLayout> layouts_by_distance(int world_size, const PerAxis& wanted) {
  std::vector<MeshLayout> layouts;
  for (int tensor = 1; tensor <= world_size; ++tensor)
    for (int pipeline = 1; world_size % tensor == 0 && pipeline <= world_size / tensor; ++pipeline)
      if (world_size / tensor % pipeline == 0)
        layouts.push_back({.degrees = {{tensor, world_size / tensor / pipeline, pipeline}}});
  PerAxis target = wanted;
  if (target[Axis::dp] <= 0)  // what is left: any number of replicas is as near as another
    target[Axis::dp] = std::max(1, world_size / std::max(1, target[Axis::tp]) / std::max(1, target[Axis::pp]));
  std::stable_sort(layouts.begin(), layouts.end(), [&](const MeshLayout& a, const MeshLayout& b) {
    return distance(a.degrees, target) < distance(b.degrees, target);
  });
  return layouts;
}

MeshLayout make_layout(int world_size, int tensor, int data, int pipeline, AxisOrder order) {
  const PerAxis wanted{{tensor, data, pipeline}};
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
  for (const Axis axis : all_axes)
    if (std::count(order.begin(), order.end(), axis) != 1)
      refuse_layout(world_size, wanted, fmt::format("the axis order must name {} once", to_string(axis)));
  return {.degrees = {{tensor, data, pipeline}}, .order = order};
}

}  // namespace espalier

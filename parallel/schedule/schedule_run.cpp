// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/schedule_run.hpp"

#include <algorithm>
#include <deque>
#include <queue>
#include <unordered_map>
#include <utility>

#include "core/error.hpp"
#include "parallel/mesh/mesh_layout.hpp"

namespace espalier {
namespace {

/// Messages of one kind from one rank to another.
struct Channel {
  std::deque<double> arrivals;
  bool receiver_waits = false;
};

/// Ranks that do a collective together.
struct Group {
  int size = 1;
  double latest = 0;
  std::vector<int> waiting = {};
};

class AbstractWorld {
 public:
  AbstractWorld(const std::vector<const PipelineSchedule*>& ranks, const MeshLayout& layout, const ScheduleCosts& costs)
      : ranks_(ranks),
        layout_(layout),
        costs_(costs),
        num_run_(ranks.size(), 0),
        free_at_(ranks.size(), 0.0),
        num_tp_groups_(layout.size() / layout.degree(Axis::tp)),
        num_sum_groups_(layout.degree(Axis::tp) * layout.degree(Axis::pp)) {
    for (int rank = 0; rank < layout.size(); ++rank)
      coordinates_.push_back(layout.coordinates(rank));
    const int sum_size = layout.size() / num_sum_groups_;  // all that see other tokens
    add_groups(num_tp_groups_, layout.degree(Axis::tp));
    add_groups(num_sum_groups_, sum_size);
    add_groups(layout.degree(Axis::tp), sum_size * std::min(2, layout.degree(Axis::pp)));
    add_groups(1, layout.size());
  }

  ScheduleRun run() {
    ScheduleRun result;
    for (int rank = 0; rank < layout_.size(); ++rank)
      arrive_at_next(rank);
    while (!ready_.empty()) {
      const auto [start, rank] = ready_.top();
      ready_.pop();
      result.events.push_back(execute(start, rank));
      arrive_at_next(rank);
    }
    result.num_run = num_run_;
    result.complete = true;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      result.complete = result.complete && num_run_[rank] == ranks_[rank]->size();
    return result;
  }

 private:
  void add_groups(int count, int size) {
    for (int i = 0; i < count; ++i)
      groups_.push_back({.size = size});
  }

  /// The group that has to be there, or nullptr.
  Group* group_of(int rank, const Operation& operation) {
    const PerAxis& coordinates = coordinates_[to_size(rank)];
    switch (operation.kind) {
      case OperationKind::reduce:
      case OperationKind::gather_weights:
        return &groups_[to_size(num_tp_groups_ + coordinates[Axis::pp] * layout_.degree(Axis::tp) +
                                coordinates[Axis::tp])];
      case OperationKind::tied_reduce:
        return &groups_[to_size(num_tp_groups_ + num_sum_groups_ + coordinates[Axis::tp])];
      case OperationKind::optimizer: return &groups_.back();
      default:
        return operation.tensor == TensorCollectives{} ? nullptr
                                                       : &groups_[to_size(layout_.group_index(rank, Axis::tp))];
    }
  }

  Channel& channel(int from, int to, OperationKind send_kind) {
    const auto ends = static_cast<std::size_t>(from) * ranks_.size() + to_size(to);
    return channels_[2 * ends + (send_kind == OperationKind::send_gradients ? 1 : 0)];
  }

  int rank_of_stage(int like, int stage) const {
    ESPALIER_ASSERT(0 <= stage && stage < layout_.degree(Axis::pp), "a message without a peer: check the list first");
    PerAxis coordinates = coordinates_[to_size(like)];
    coordinates[Axis::pp] = stage;
    return layout_.rank_at(coordinates);
  }

  /// The rank has nothing before its next operation: it can start now, or waits.
  void arrive_at_next(int rank) {
    const PipelineSchedule& list = *ranks_[to_size(rank)];
    if (num_run_[to_size(rank)] == list.size())
      return;
    const Operation& next = list[num_run_[to_size(rank)]];
    if (is_receive(next.kind))
      take_message(rank_of_stage(rank, next.peer), rank, next.kind);
    else if (Group* group = group_of(rank, next))
      join(*group, rank);
    else
      ready_.emplace(free_at_[to_size(rank)], rank);
  }

  void take_message(int sender, int receiver, OperationKind receive_kind) {
    Channel& from = channel(sender, receiver, counterpart(receive_kind));
    from.receiver_waits = from.arrivals.empty();
    if (from.receiver_waits)
      return;
    ready_.emplace(std::max(free_at_[to_size(receiver)], from.arrivals.front()), receiver);
    from.arrivals.pop_front();
  }

  void join(Group& group, int rank) {
    group.latest = group.waiting.empty() ? free_at_[to_size(rank)] : std::max(group.latest, free_at_[to_size(rank)]);
    group.waiting.push_back(rank);
    if (static_cast<int>(group.waiting.size()) < group.size)
      return;
    for (const int member : group.waiting)
      ready_.emplace(group.latest, member);
    group.waiting.clear();
  }

  ScheduleEvent execute(double start, int rank) {
    const std::size_t index = num_run_[to_size(rank)]++;
    const Operation& operation = (*ranks_[to_size(rank)])[index];
    const int stage = coordinates_[to_size(rank)][Axis::pp];
    double end = start;
    if (is_send(operation.kind)) {
      const int receiver = rank_of_stage(rank, operation.peer);
      Channel& to = channel(rank, receiver, operation.kind);
      to.arrivals.push_back(start + (costs_.message ? costs_.message(stage, operation) : 0.0));
      if (to.receiver_waits)
        take_message(rank, receiver, counterpart(operation.kind));
    } else if (!is_receive(operation.kind) && costs_.compute) {
      end += costs_.compute(stage, operation);
    }
    free_at_[to_size(rank)] = end;
    return {.rank = rank, .index = index, .start = start, .end = end};
  }

  const std::vector<const PipelineSchedule*>& ranks_;
  const MeshLayout& layout_;
  const ScheduleCosts& costs_;
  std::vector<PerAxis> coordinates_;  // of each rank
  std::vector<std::size_t> num_run_;
  std::vector<double> free_at_;
  int num_tp_groups_;
  int num_sum_groups_;
  std::vector<Group> groups_;  // tp groups, dp groups, tied groups (one a tp coordinate), the world
  std::unordered_map<std::size_t, Channel> channels_;
  // What can start, earliest first.
  std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>> ready_;
};

}  // namespace

ScheduleRun run_schedules(const std::vector<const PipelineSchedule*>& ranks, const MeshLayout& layout,
                          const ScheduleCosts& costs) {
  ESPALIER_ASSERT(static_cast<int>(ranks.size()) == layout.size(), "one list a rank");
  return AbstractWorld(ranks, layout, costs).run();
}

bool is_send(OperationKind kind) {
  return kind == OperationKind::send_activations || kind == OperationKind::send_gradients;
}

bool is_receive(OperationKind kind) {
  return kind == OperationKind::receive_activations || kind == OperationKind::receive_gradients;
}

OperationKind counterpart(OperationKind kind) {
  switch (kind) {
    case OperationKind::send_activations: return OperationKind::receive_activations;
    case OperationKind::receive_activations: return OperationKind::send_activations;
    case OperationKind::send_gradients: return OperationKind::receive_gradients;
    case OperationKind::receive_gradients: return OperationKind::send_gradients;
    default: return kind;
  }
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/schedule_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "parallel/mesh/mesh_layout.hpp"
#include "parallel/schedule/list_check.hpp"
#include "parallel/schedule/schedule_run.hpp"

namespace espalier {
namespace {

constexpr std::size_t max_problems = 10;

PipelineSchedule of_kind(const PipelineSchedule& list, OperationKind kind) {
  PipelineSchedule found;
  std::copy_if(list.begin(), list.end(), std::back_inserter(found),
               [&](const Operation& operation) { return operation.kind == kind; });
  return found;
}

/// What an operation does in the collectives of its group along an axis; all that the members must agree on.
PipelineSchedule collectives(const PipelineSchedule& list, Axis axis) {
  PipelineSchedule found;
  for (Operation operation : list) {
    const bool reduces =
        operation.reduces || operation.kind == OperationKind::reduce || operation.kind == OperationKind::gather_weights;
    if (axis == Axis::tp ? operation.tensor == TensorCollectives{} : !reduces)
      continue;
    if (axis == Axis::dp)
      operation.tensor = {};
    found.push_back(operation);
  }
  return found;
}

std::string text(const TensorCollectives& tensor) {
  return fmt::format("all_reduce {}, all_gather {}, reduce_scatter {}", tensor.all_reduce, tensor.all_gather,
                     tensor.reduce_scatter);
}

class WorldCheck {
 public:
  WorldCheck(const std::vector<const PipelineSchedule*>& ranks, const MeshLayout& layout, const PipelineShape& shape)
      : ranks_(ranks), layout_(layout), shape_(shape) {}

  std::vector<std::string> run() {
    if (layout_.degree(Axis::pp) != shape_.stages || layout_.size() != static_cast<int>(ranks_.size()))
      return {fmt::format("{} lists and {} stages for {} ({} ranks)", ranks_.size(), shape_.stages, layout_.text(),
                          layout_.size())};
    find_distinct_lists();
    for (std::size_t i = 0; i < owners_.size(); ++i)
      check_list(list_of(owners_[i]), shape_, stage_of(owners_[i]), who(owners_[i]), problems_);
    if (problems_.empty())
      check_pipelines();
    if (problems_.empty() && lists_differ())
      for (const Axis axis : {Axis::tp, Axis::dp})
        check_groups(axis);
    if (problems_.empty())
      check_progress();
    problems_.resize(std::min(problems_.size(), max_problems));
    return problems_;
  }

 private:
  const PipelineSchedule& list_of(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }
  int stage_of(int rank) const { return layout_.coordinates(rank)[Axis::pp]; }
  bool lists_differ() const { return static_cast<int>(owners_.size()) > shape_.stages; }
  std::string name(const Operation& operation) const { return espalier::text(operation, shape_.chunks > 1); }

  std::string who(int rank) const {
    const PerAxis coordinates = layout_.coordinates(rank);
    if (!lists_differ())
      return fmt::format("stage {}", coordinates[Axis::pp]);
    return fmt::format("rank {} (stage {}, dp {}, tp {})", rank, coordinates[Axis::pp], coordinates[Axis::dp],
                       coordinates[Axis::tp]);
  }

  /// Numbers the lists so that equal ones of one stage have one number; the owner is the first rank with it.
  void find_distinct_lists() {
    std::vector<std::vector<int>> of_stage(static_cast<std::size_t>(shape_.stages));
    for (int rank = 0; rank < layout_.size(); ++rank) {
      auto& known = of_stage[static_cast<std::size_t>(stage_of(rank))];
      const auto same = std::find_if(known.begin(), known.end(), [&](int id) {
        const PipelineSchedule& list = list_of(owners_[static_cast<std::size_t>(id)]);
        return &list == &list_of(rank) || list == list_of(rank);
      });
      id_of_.push_back(same == known.end() ? static_cast<int>(owners_.size()) : *same);
      if (same == known.end()) {
        known.push_back(id_of_.back());
        owners_.push_back(rank);
      }
    }
  }

  /// Each combination of lists that forms a pipeline.
  void check_pipelines() {
    std::set<std::vector<int>> seen;
    for (int rank = 0; rank < layout_.size(); ++rank) {
      if (stage_of(rank) != 0)
        continue;
      const std::vector<int> pipeline = layout_.group(rank, Axis::pp);
      std::vector<int> combination(pipeline.size());
      std::transform(pipeline.begin(), pipeline.end(), combination.begin(),
                     [&](int member) { return id_of_[static_cast<std::size_t>(member)]; });
      if (seen.insert(combination).second)
        check_message_order(pipeline);
    }
  }

  void check_message_order(const std::vector<int>& pipeline) {
    for (std::size_t i = 0; i < pipeline.size(); ++i) {
      const int stage = pipeline[i];
      const int after = pipeline[(i + 1) % pipeline.size()];
      compare_messages(stage, after, OperationKind::send_activations);
      compare_messages(after, stage, OperationKind::send_gradients);
    }
  }

  /// Each list has its messages, and with the right peers: all that can be wrong between two stages is the order.
  void compare_messages(int sender, int receiver, OperationKind kind) {
    const PipelineSchedule sent = of_kind(list_of(sender), kind);
    const PipelineSchedule received = of_kind(list_of(receiver), counterpart(kind));
    // From the last stage activations go on to the next chunk of the first one; gradients come back the same way.
    int chunk_step = 0;
    if (kind == OperationKind::send_activations && stage_of(receiver) == 0)
      chunk_step = 1;
    if (kind == OperationKind::send_gradients && stage_of(sender) == 0)
      chunk_step = -1;
    for (std::size_t i = 0; i < std::min(sent.size(), received.size()); ++i)
      if (sent[i].microbatch != received[i].microbatch || sent[i].chunk + chunk_step != received[i].chunk) {
        problems_.push_back(fmt::format("{}: {} meets message {} of its kind from there, which is {} of {}",
                                        who(receiver), name(received[i]), i, name(sent[i]), who(sender)));
        return;
      }
  }

  /// Every rank against the first one of its group: gradients are summed over all that see other tokens.
  void check_groups(Axis axis) {
    for (int rank = 0; rank < layout_.size() && problems_.size() < max_problems; ++rank) {
      PerAxis coordinates = layout_.coordinates(rank);
      for (const Axis other : all_axes)
        if (other == axis || (axis == Axis::dp && token_axes.contains(other)))
          coordinates[other] = 0;
      const int first = layout_.rank_at(coordinates);
      if (id_of_[static_cast<std::size_t>(rank)] != id_of_[static_cast<std::size_t>(first)])
        compare_collectives(rank, first, axis);
    }
  }

  void compare_collectives(int rank, int first, Axis axis) {
    const PipelineSchedule mine = collectives(list_of(rank), axis);
    const PipelineSchedule others = collectives(list_of(first), axis);
    const auto [here, there] = std::mismatch(mine.begin(), mine.end(), others.begin(), others.end());
    const auto what = [&](auto position, const PipelineSchedule& list) {
      if (position == list.end())
        return std::string("at none");
      const std::string inside = axis == Axis::tp ? " (" + text(position->tensor) + ")" : "";
      return "at " + name(*position) + inside;
    };
    if (here != mine.end() || there != others.end())
      problems_.push_back(fmt::format("{}: for collective {} of its {} group it is {}, and rank {} is {}", who(rank),
                                      here - mine.begin(), to_string(axis), what(here, mine), first,
                                      what(there, others)));
  }

  void check_progress() {
    const MeshLayout one_pipeline{.degrees = PerAxis::degrees(1, 1, shape_.stages)};
    std::vector<int> runners;
    if (lists_differ())
      for (int rank = 0; rank < layout_.size(); ++rank)
        runners.push_back(rank);
    else
      runners = layout_.group(0, Axis::pp);
    std::vector<const PipelineSchedule*> lists;
    lists.reserve(runners.size());
    for (const int rank : runners)
      lists.push_back(&list_of(rank));
    const ScheduleRun result = run_schedules(lists, lists_differ() ? layout_ : one_pipeline);
    for (std::size_t i = 0; i < lists.size() && problems_.size() < max_problems; ++i)
      if (result.num_run[i] < lists[i]->size())
        problems_.push_back(fmt::format("{} waits for ever at {} (operation {})", who(runners[i]),
                                        name((*lists[i])[result.num_run[i]]), result.num_run[i]));
  }

  const std::vector<const PipelineSchedule*>& ranks_;
  const MeshLayout& layout_;
  const PipelineShape& shape_;
  std::vector<int> owners_;  // [number of a list]
  std::vector<int> id_of_;   // [rank]
  std::vector<std::string> problems_;
};

}  // namespace

std::vector<std::string> check_schedules(const std::vector<PipelineSchedule>& stages, const PipelineShape& shape) {
  std::vector<const PipelineSchedule*> ranks;
  ranks.reserve(stages.size());
  for (const PipelineSchedule& list : stages)
    ranks.push_back(&list);
  return check_schedules(ranks, {.degrees = PerAxis::degrees(1, 1, shape.stages)}, shape);
}

std::vector<std::string> check_schedules(const std::vector<const PipelineSchedule*>& ranks, const MeshLayout& layout,
                                         const PipelineShape& shape) {
  return WorldCheck(ranks, layout, shape).run();
}

}  // namespace espalier

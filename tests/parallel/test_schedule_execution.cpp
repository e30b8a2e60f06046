// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// The checker against a second opinion: a toy that really carries messages and really refuses to compute without input.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "parallel/schedule/schedule_check.hpp"
#include "tests/parallel/schedule_faults.hpp"
#include "tests/parallel/schedule_shapes.hpp"

namespace espalier {
namespace {

enum class Outcome { trained, stuck, wrong };

/// The stages take turns at random. Parts of the model are numbered as in the whole of it.
class ToyPipeline {
 public:
  ToyPipeline(const Lists& lists, const PipelineShape& shape)
      : lists_(lists), shape_(shape), last_part_(shape.stages * shape.chunks - 1), next_(lists.size(), 0) {}

  Outcome run(std::mt19937& random) {
    for (std::vector<std::size_t> able = able_stages(); !able.empty(); able = able_stages()) {
      const std::size_t stage = able[std::uniform_int_distribution<std::size_t>(0, able.size() - 1)(random)];
      if (!step(static_cast<int>(stage), lists_[stage][next_[stage]++]))
        return Outcome::wrong;
    }
    for (std::size_t stage = 0; stage < lists_.size(); ++stage)
      if (next_[stage] < lists_[stage].size())
        return Outcome::stuck;
    return Outcome::trained;
  }

 private:
  using Item = std::pair<int, int>;                     // part, micro-batch
  using Channel = std::tuple<int, int, OperationKind>;  // from, to, kind of send

  std::vector<std::size_t> able_stages() {
    std::vector<std::size_t> able;
    for (std::size_t stage = 0; stage < lists_.size(); ++stage)
      if (next_[stage] < lists_[stage].size() && is_able(static_cast<int>(stage), lists_[stage][next_[stage]]))
        able.push_back(stage);
    return able;
  }

  bool is_able(int stage, const Operation& operation) {
    switch (operation.kind) {
      case OperationKind::receive_activations:
        return !channels_[{operation.peer, stage, OperationKind::send_activations}].empty();
      case OperationKind::receive_gradients:
        return !channels_[{operation.peer, stage, OperationKind::send_gradients}].empty();
      case OperationKind::tied_reduce: return have_come(OperationKind::tied_reduce, {0, shape_.stages - 1});
      case OperationKind::optimizer: {
        std::set<int> all;
        for (int other = 0; other < shape_.stages; ++other)
          all.insert(other);
        return have_come(OperationKind::optimizer, all);
      }
      default: return true;
    }
  }

  bool have_come(OperationKind kind, const std::set<int>& stages) const {
    for (const int stage : stages) {
      bool has = false;
      const PipelineSchedule& list = lists_[static_cast<std::size_t>(stage)];
      for (std::size_t i = 0; i <= next_[static_cast<std::size_t>(stage)] && i < list.size(); ++i)
        has = has || list[i].kind == kind;
      if (!has)
        return false;
    }
    return true;
  }

  /// @return false when something is not there that the operation needs.
  bool step(int stage, const Operation& operation) {
    const Item item{operation.chunk * shape_.stages + stage, operation.microbatch};
    const Item before{item.first - 1, item.second};
    const Item after{item.first + 1, item.second};
    const bool apart = shape_.stages > 1;  // otherwise a part finds its neighbour's result on its own stage
    switch (operation.kind) {
      case OperationKind::forward:
        if (item.first > 0 && !(apart ? activations_ : forward_).count(apart ? item : before))
          return false;
        return forward_.insert(item).second;
      case OperationKind::backward:
      case OperationKind::backward_input:
        if (item.first < last_part_ && !(apart ? gradients_ : backward_).count(apart ? item : after))
          return false;
        return forward_.count(item) == 1 && backward_.insert(item).second;
      case OperationKind::backward_weight: return backward_.count(item) == 1;
      case OperationKind::send_activations:
        channels_[{stage, operation.peer, operation.kind}].push_back(after);
        return forward_.count(item) == 1;
      case OperationKind::send_gradients:
        channels_[{stage, operation.peer, operation.kind}].push_back(before);
        return backward_.count(item) == 1;
      case OperationKind::receive_activations:
        return take({operation.peer, stage, OperationKind::send_activations}, item, activations_);
      case OperationKind::receive_gradients:
        return take({operation.peer, stage, OperationKind::send_gradients}, item, gradients_);
      default: return true;
    }
  }

  bool take(const Channel& channel, const Item& wanted, std::set<Item>& received) {
    const Item item = channels_[channel].front();
    channels_[channel].pop_front();
    return item == wanted && received.insert(item).second;
  }

  const Lists& lists_;
  const PipelineShape& shape_;
  int last_part_;
  std::vector<std::size_t> next_;
  std::map<Channel, std::deque<Item>> channels_;
  std::set<Item> activations_, gradients_, forward_, backward_;
};

/// Moves one operation of one list a few places.
void move_one(Lists& lists, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  PipelineSchedule& list = lists[below(lists.size())];
  const std::size_t from = below(list.size() - 1);
  const std::size_t to = std::min(list.size() - 1, from + 1 + below(4));
  const auto begin = list.begin() + static_cast<std::ptrdiff_t>(from);
  const auto end = list.begin() + static_cast<std::ptrdiff_t>(to) + 1;
  std::rotate(begin, below(2) == 0 ? begin + 1 : end - 1, end);
}

TEST(ScheduleExecution, EveryScheduleTrains) {
  std::mt19937 random(4);
  for_each_shape([&](const PipelineShape& shape) {
    if (shape.stages > 6 || shape.microbatches > 7 || shape.chunks > 3)
      return;
    const Lists lists = make_schedules(shape);
    ASSERT_EQ(ToyPipeline(lists, shape).run(random), Outcome::trained) << shape;
  });
}

// Lists in random disorder. What the checker accepts trains, whoever goes first; what it says waits for ever does so.
TEST(ScheduleExecution, TheCheckerIsRightAboutDisorder) {
  std::mt19937 random(5);
  std::map<std::string, int> verdicts;
  for_each_shape([&](const PipelineShape& shape) {
    if (shape.stages < 2 || shape.stages > 4 || shape.microbatches > 5 || shape.chunks > 2)
      return;
    const Lists valid = make_schedules(shape);
    for (int i = 0; i < 100; ++i) {
      Lists lists = valid;
      for (int moves = i % 3; moves >= 0; --moves)
        move_one(lists, random);
      const auto problems = check_schedules(lists, shape);
      const bool waits = joined(problems).find(" waits for ever ") != std::string::npos;
      ++verdicts[problems.empty() ? "accepted" : waits ? "waits" : "refused"];
      for (int order = 0; order < 3; ++order) {
        const Outcome outcome = ToyPipeline(lists, shape).run(random);
        if (problems.empty()) {
          ASSERT_EQ(outcome, Outcome::trained) << shape;
        }
        if (waits) {
          ASSERT_EQ(outcome, Outcome::stuck) << shape << "\n" << joined(problems);
        }
      }
    }
  });
  EXPECT_GT(verdicts["accepted"], 500);
  EXPECT_GT(verdicts["refused"], 5000);
  EXPECT_GT(verdicts["waits"], 200);
}

}  // namespace
}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "parallel/schedule/schedule_check.hpp"
#include "tests/parallel/schedule_faults.hpp"
#include "tests/parallel/schedule_shapes.hpp"

namespace espalier {
namespace {

/// Changes one thing in one list so that it is no longer the schedule it was. @return what, or "" if it came to
/// nothing.
std::string mutate(Lists& lists, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  PipelineSchedule& list = lists[below(lists.size())];
  const auto place = list.begin() + static_cast<std::ptrdiff_t>(below(list.size()));
  const Operation before = *place;
  const std::string name = text(before, true);
  switch (below(7)) {
    case 0: list.erase(place); return "dropped " + name;
    case 1:
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(below(list.size() + 1)), before);
      return "doubled " + name;
    case 2: place->kind = static_cast<OperationKind>(below(12)); break;
    case 3: place->chunk += below(2) == 0 ? 1 : -1; break;
    case 4: place->microbatch += below(2) == 0 ? 1 : -1; break;
    case 5: place->peer = static_cast<int>(below(lists.size() + 1)) - 1; break;
    case 6: place->reduces = !place->reduces; break;
  }
  return *place == before ? "" : name + " became " + text(*place, true);
}

TEST(ScheduleMutations, RandomMutationsAreRefused) {
  std::mt19937 random(4);
  int mutations = 0;
  for_each_shape([&](const PipelineShape& shape) {
    if (shape.stages > 8 || shape.microbatches > 9)
      return;
    const Lists valid = make_schedules(shape);
    for (int i = 0; i < 20; ++i) {
      Lists lists = valid;
      const std::string what = mutate(lists, random);
      if (what.empty())
        continue;
      ++mutations;
      ASSERT_FALSE(check_schedules(lists, shape).empty()) << shape << ": " << what;
    }
  });
  EXPECT_GT(mutations, 10000);
}

/// Whether one of two neighbours must come before the other, whatever the rest does: they are steps of one chunk of one
/// micro-batch, messages of one kind between the same stages, gradients added to one chunk, or part of the update.
bool depend(const Operation& a, const Operation& b) {
  const auto adds = [](const Operation& o) {
    return o.kind == OperationKind::backward || o.kind == OperationKind::backward_weight;
  };
  const auto updates = [](const Operation& o) { return o.kind >= OperationKind::optimizer; };
  if (updates(a) || updates(b))
    return a.kind >= OperationKind::reduce && b.kind >= OperationKind::reduce;
  if (a.microbatch == -1 || b.microbatch == -1)
    return false;
  const bool same_part = a.chunk == b.chunk && a.microbatch == b.microbatch;
  const bool weight_is_alone = (a.kind == OperationKind::backward_weight || b.kind == OperationKind::backward_weight) &&
                               a.kind != OperationKind::backward_input && b.kind != OperationKind::backward_input;
  return (same_part && !weight_is_alone) || (a.chunk == b.chunk && adds(a) && adds(b)) ||
         (a.kind == b.kind && a.peer == b.peer && a.peer >= 0);
}

TEST(ScheduleMutations, ExchangedDependentOperationsAreRefused) {
  int mutations = 0;
  for_each_shape([&](const PipelineShape& shape) {
    if (shape.stages > 5 || shape.microbatches > 6)
      return;
    Lists lists = make_schedules(shape);
    for (PipelineSchedule& list : lists)
      for (std::size_t i = 0; i + 1 < list.size(); ++i) {
        if (!depend(list[i], list[i + 1]))
          continue;
        std::swap(list[i], list[i + 1]);
        ++mutations;
        ASSERT_FALSE(check_schedules(lists, shape).empty())
            << shape << ": " << text(list[i], true) << " before " << text(list[i + 1], true);
        std::swap(list[i], list[i + 1]);
      }
  });
  EXPECT_GT(mutations, 1000);
}

}  // namespace
}  // namespace espalier

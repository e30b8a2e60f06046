// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/mitigation.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace espalier {
namespace {

struct Change {
  std::string text;
  PlanLayout layout;
};

std::vector<Change> changes_of(const PlanLayout& now) {
  std::vector<Change> changes;
  const auto change = [&](std::string text, auto edit) {
    PlanLayout other = now;
    edit(other);
    changes.push_back({std::move(text), other});
  };
  if (now.micro_batch % 2 == 0)
    change(
        fmt::format("micro-batches of {} instead of {} (batch.micro_batch_size)", now.micro_batch / 2, now.micro_batch),
        [](PlanLayout& other) { other.micro_batch /= 2; });
  change(
      fmt::format("micro-batches of {} instead of {} (batch.micro_batch_size)", 2 * now.micro_batch, now.micro_batch),
      [](PlanLayout& other) { other.micro_batch *= 2; });
  change(fmt::format("a global batch of {} sequences instead of {} (batch.global_batch_size)", 2 * now.global_batch,
                     now.global_batch),
         [](PlanLayout& other) { other.global_batch *= 2; });
  if (now.pipeline > 1 && now.virtual_stages == 1)
    change("2 chunks a stage, interleaved (parallel.virtual_stages)", [](PlanLayout& other) {
      other.virtual_stages = 2;
      other.schedule = PlanSchedule::interleaved;
    });
  if (now.virtual_stages > 1)
    change(fmt::format("{} chunks a stage instead of {} (parallel.virtual_stages)", 2 * now.virtual_stages,
                       now.virtual_stages),
           [](PlanLayout& other) { other.virtual_stages *= 2; });
  if (now.pipeline > 1 && now.schedule == PlanSchedule::one_f_one_b)
    change("the zero-bubble schedule (parallel.schedule)",
           [](PlanLayout& other) { other.schedule = PlanSchedule::zero_bubble; });
  if (now.recompute != Recompute::none)
    change("no recomputation (parallel.recompute)", [](PlanLayout& other) { other.recompute = Recompute::none; });
  if (now.recompute == Recompute::full)
    change("selective recomputation (parallel.recompute)",
           [](PlanLayout& other) { other.recompute = Recompute::selective; });
  if (now.tensor > 1 && !now.sequence_parallel)
    change("sequence parallelism (parallel.sequence_parallel)",
           [](PlanLayout& other) { other.sequence_parallel = true; });
  if (now.zero_stage == 0 && now.data > 1)
    change("ZeRO-1 (parallel.zero_stage)", [](PlanLayout& other) { other.zero_stage = 1; });
  if (now.tensor % 2 == 0)
    change(
        fmt::format("{} tensor ranks instead of {}, twice the replicas (parallel.tensor)", now.tensor / 2, now.tensor),
        [](PlanLayout& other) {
          other.tensor /= 2;
          other.data *= 2;
          other.sequence_parallel = other.sequence_parallel && other.tensor > 1;
        });
  return changes;
}

}  // namespace

PlanPhase bottleneck(const LayoutPrice& price) {
  constexpr std::array<PlanPhase, 7> candidates{PlanPhase::recompute,     PlanPhase::bubble,    PlanPhase::tensor_comm,
                                                PlanPhase::pipeline_comm, PlanPhase::data_comm, PlanPhase::optimizer,
                                                PlanPhase::other};
  return *std::max_element(candidates.begin(), candidates.end(),
                           [&](PlanPhase a, PlanPhase b) { return price[a] < price[b]; });
}

std::vector<Mitigation> mitigations(const PlanProblem& problem, const LayoutPrice& price) {
  std::vector<Mitigation> found;
  for (const Change& change : changes_of(price.layout)) {
    if (!why_impossible(problem, change.layout).empty())
      continue;
    LayoutPrice other = price_layout(problem, change.layout);
    if (!why_too_large(problem, other).empty())
      continue;
    const double gain = other.tokens_per_second / price.tokens_per_second - 1;
    found.push_back({change.text, std::move(other), gain});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Mitigation& a, const Mitigation& b) { return a.gain > b.gain; });
  return found;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/memo.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "io/units.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/memo_page.hpp"
#include "planning/memo_parts.hpp"
#include "planning/time_text.hpp"
#include "planning/to_double.hpp"

namespace espalier {
namespace {

class Memo : MemoText {
 public:
  Memo(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result,
       const std::vector<ScalePoint>& scaling, const Goal& goal)
      : problem_(problem),
        space_(space),
        result_(result),
        scaling_(scaling),
        goal_(goal),
        best_(result.ranking.front()),
        layout_(best_.layout),
        subject_{.problem = problem, .space = space, .best = best_},
        room_(room_bytes(problem)) {}

  std::string text() {
    const BottleneckTexts bottleneck = bottleneck_texts(subject_);
    text_ =
        memo_page({.problem = problem_, .space = space_, .result = result_, .goal = goal_, .bottleneck = bottleneck});
    text_ += "# Details\n\n";
    say_model_and_batch(problem_, layout_);
    memory();
    text_ += gradients_part(subject_);
    microbatches();
    text_ += precision_part(subject_);
    text_ += bottleneck.table;
    scaling();
    alternatives();
    return text_;
  }

 private:
  void memory() {
    say("## How it fits in memory\n\n");
    const int replicas = layout_.shards() * layout_.context;
    if (layout_.zero_stage > 0 && replicas > 1)
      say("ZeRO-{} shares {} among {} ranks with the same shard.\n\n", layout_.zero_stage,
          layout_.zero_stage == 1   ? "the optimizer"
          : layout_.zero_stage == 2 ? "optimizer and gradients"
                                    : "weights, gradients and optimizer",
          replicas);
    const MemoryByCategory& stage = best_.memory[static_cast<std::size_t>(best_.peak_stage)];
    say_memory_rows(stage, best_.peak_stage, layout_.pipeline);
    say("| total | {}, {} of what is free |\n\n", bytes_text(stage.total()),
        share_text(static_cast<double>(stage.total()), static_cast<double>(room_)));
    if (const std::size_t bytes = attention_workspace_on_rank(problem_, layout_); bytes > 0)
      say("{} of the workspace are for attention, where cuDNN computes it; run.attention = \"own\" needs none.\n\n",
          bytes_text(bytes));
    for (const auto& [name, rejection] : plain_rejections(problem_, space_, &best_))
      say("- Not {} ({}): {}.\n", name, rejection.layout.text(), rejection.reason);
    say("\n");
  }

  void microbatches() {
    say("## What micro-batches do\n\n");
    if (layout_.pipeline == 1) {
      say("There is one stage, so nothing waits for another: {} of {} {}.\n",
          counted(layout_.num_microbatches(), "micro-batch"), counted(layout_.micro_batch, "sequence"),
          layout_.num_microbatches() == 1 ? "holds all activations of a step at once"
          : layout_.zero_stage == 3       ? "bound the activations, and each gathers the weights anew"
          : layout_.zero_stage == 2       ? "bound the activations, and each sums its gradients"
                                          : "only bound the activations");
      if (const std::optional<Layout> split = plain_split())
        compare_microbatches(
            *split,
            fmt::format("Split naively into {} stages of {} (recompute {}), {}, they ", split->pipeline,
                        counted(split->data, "replica"), to_string(split->recompute),
                        states_fit(*split) ? "the fewest that have room for their states" : "as many as there can be"));
    } else {
      compare_microbatches(layout_, fmt::format("Naively split, the {} stages ", layout_.pipeline));
    }
    say("\n");
  }

  // What somebody tries first who has met neither tensor parallelism nor ZeRO: as few stages as have room for their
  // states, micro-batches of one sequence, and recomputation where these do not fit otherwise.
  std::optional<Layout> plain_split() const {
    std::optional<Layout> split;
    const int devices = layout_.num_devices();
    const auto most = static_cast<int>(std::min<Index>(devices, problem_.model.num_layers + 2));
    for (int stages = 2; stages <= most; ++stages) {
      const Layout next{.data = devices / stages,
                        .pipeline = stages,
                        .global_batch = layout_.global_batch,
                        .recompute = layout_.recompute,
                        .precision = layout_.precision};
      if (devices % stages != 0 || !why_impossible(problem_, next).empty())
        continue;
      split = next;
      if (states_fit(next))
        break;
    }
    for (const Recompute recompute : all_recompute_modes())
      if (split && !why_too_large(problem_, price_layout(problem_, *split, Effort::estimate)).empty())
        split->recompute = std::max(split->recompute, recompute);
    return split;
  }

  bool states_fit(const Layout& layout) const {
    const auto memory = memory_of_stages(problem_, layout);
    return std::ranges::all_of(memory, [&](const MemoryByCategory& stage) {
      return stage[Category::weights] + stage[Category::gradients] + stage[Category::optimizer] <= room_;
    });
  }

  // The same stages with the whole share of a replica as one micro-batch; `split` begins a sentence about them.
  void compare_microbatches(const Layout& pipelined, const std::string& split) {
    Layout naive = pipelined;
    naive.micro_batch = pipelined.global_batch / pipelined.data;
    naive.schedule = ScheduleKind::one_f_one_b;
    naive.virtual_stages = 1;
    if (!why_impossible(problem_, naive).empty())
      return;
    const LayoutPrice bare = price_layout(problem_, naive);
    const LayoutPrice with = price_layout(problem_, pipelined);
    say("{}work one after the other on a replica's {} as one micro-batch. Then {:.0f} % of the device time is idle, "
        "and a step takes {}{}.",
        split, counted(naive.micro_batch, "sequence"), 100 * bare.idle_share, time_text(bare.step_seconds),
        subject_.fit_text(bare));
    if (pipelined.micro_batch != naive.micro_batch || pipelined.schedule != naive.schedule ||
        pipelined.virtual_stages != naive.virtual_stages)
      say(" With {} of {} ({}) the idle share is {:.1f} % and the step {}{}, {:.1f} times as fast.",
          counted(pipelined.num_microbatches(), "micro-batch"), pipelined.micro_batch, to_string(pipelined.schedule),
          100 * with.idle_share, time_text(with.step_seconds), subject_.fit_text(with),
          bare.step_seconds / with.step_seconds);
    Layout half = pipelined;
    half.micro_batch *= 2;
    if (pipelined.num_microbatches() % 2 == 0 && why_impossible(problem_, half).empty()) {
      const LayoutPrice fewer = price_layout(problem_, half);
      say(" Half as many, twice as large: idle {:.1f} %, {}{}.", 100 * fewer.idle_share, time_text(fewer.step_seconds),
          subject_.fit_text(fewer));
    }
    if (layout_.pipeline == 1)
      say(" The recommended layout takes {}.", time_text(best_.step_seconds));
    say("\n");
  }

  void scaling() {
    if (scaling_.empty())
      return;
    say("## Scaling\n\n"
        "| devices | batch | step time | tokens/s | efficiency | layout | limit, or gain |\n"
        "|---|---|---|---|---|---|---|\n");
    for (const ScalePoint& point : scaling_)
      if (point.price)
        say("| {} | {} | {} | {:.4g} | {:.1f} % | {} | {} |\n", point.num_devices, point.global_batch,
            time_text(point.price->step_seconds), point.price->tokens_per_second, 100 * point.efficiency,
            point.price->layout.text(), point.limited_by);
      else
        say("| {} | {} | | | | | {} |\n", point.num_devices, point.global_batch, point.limited_by);
    say("\n");
  }

  void alternatives() {
    say("## What else was considered\n\n{} layouts: {} impossible, {} too large for a device.\n\n",
        result_.num_considered, result_.num_impossible, result_.num_too_large);
    std::size_t shown = 0;
    for (const Rejection& rejection : result_.rejections)
      if (shown++ < 5)
        say("- {}: {}.\n", rejection.layout.text(), rejection.reason);
    say("\n");
  }

  const PlanProblem& problem_;
  const LayoutSpace& space_;
  const SearchResult& result_;
  const std::vector<ScalePoint>& scaling_;
  const Goal& goal_;
  const LayoutPrice& best_;
  const Layout& layout_;
  MemoSubject subject_;
  std::size_t room_;
};

}  // namespace

std::string memo(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result,
                 const std::vector<ScalePoint>& scaling, const Goal& goal) {
  return Memo(problem, space, result, scaling, goal).text();
}

}  // namespace espalier

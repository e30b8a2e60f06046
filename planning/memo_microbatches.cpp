// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <optional>

#include "io/units.hpp"
#include "planning/memo_parts.hpp"
#include "planning/time_text.hpp"

namespace espalier {
namespace {

class MicrobatchesPart : MemoText {
 public:
  explicit MicrobatchesPart(const MemoSubject& subject)
      : subject_(subject), problem_(subject.problem), layout_(subject.layout()) {}

  std::string write() {
    say("## What micro-batches do\n\n");
    if (layout_.pipeline > 1) {
      compare(layout_);
    } else {
      say("There is one stage, so no stage waits for another. {} of {} {}.\n",
          counted(layout_.num_microbatches(), "micro-batch"), counted(layout_.micro_batch, "sequence"),
          layout_.num_microbatches() == 1 ? "holds all activations of a step at once"
          : layout_.zero_stage == 3       ? "limit the memory of activations, and each gathers the weights again"
          : layout_.zero_stage == 2       ? "limit the memory of activations, and each sums its gradients"
                                          : "only limit the memory of activations");
      if (const std::optional<Layout> split = plain_split()) {
        say("\nFor comparison take {} stages of {} (recompute {}), the {} number of stages{}. ", split->pipeline,
            counted(split->data, "replica"), to_string(split->recompute),
            states_fit(*split) ? "smallest" : "largest possible", states_fit(*split) ? " on which the states fit" : "");
        compare(*split);
        say("The recommended layout takes {}.\n", time_text(subject_.best.step_seconds));
      }
    }
    return text + "\n";
  }

 private:
  // What somebody tries first who has met neither tensor parallelism nor ZeRO: as few stages as have room for their
  // states, micro-batches of one sequence, and recomputation where these do not fit otherwise.
  std::optional<Layout> plain_split() const {
    std::optional<Layout> split;
    const int devices = layout_.num_devices();
    const auto most = static_cast<int>(std::min<Index>(devices, problem_.model.num_layers));
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
    return std::ranges::all_of(memory_of_stages(problem_, layout), [&](const MemoryByCategory& stage) {
      return stage[Category::weights] + stage[Category::gradients] + stage[Category::optimizer] <=
             subject_.free_memory();
    });
  }

  // The same stages with the whole share of a replica as one micro-batch. These are possible wherever the given ones
  // are: 1F1B runs any batch of a replica, and a search leaves the layers of each stage open.
  void compare(const Layout& pipelined) {
    Layout naive = pipelined;
    naive.micro_batch = pipelined.global_batch / pipelined.data;
    naive.schedule = ScheduleKind::one_f_one_b;
    naive.virtual_stages = 1;
    const LayoutPrice bare = price_layout(problem_, naive);
    const LayoutPrice with = price_layout(problem_, pipelined);
    say("Without micro-batches the {} stages work one after another on a replica's {}. Then {:.0f} % of the device "
        "time is idle. A step takes {}{}.",
        pipelined.pipeline, counted(naive.micro_batch, "sequence"), 100 * bare.idle_share, time_text(bare.step_seconds),
        subject_.fit_text(bare));
    if (pipelined.micro_batch != naive.micro_batch || pipelined.schedule != naive.schedule ||
        pipelined.virtual_stages != naive.virtual_stages)
      say(" With {} of {} ({}) {:.1f} % is idle. A step takes {}{}. That is {:.1f} times as fast.",
          counted(pipelined.num_microbatches(), "micro-batch"), pipelined.micro_batch, to_string(pipelined.schedule),
          100 * with.idle_share, time_text(with.step_seconds), subject_.fit_text(with),
          bare.step_seconds / with.step_seconds);
    Layout half = pipelined;
    half.micro_batch *= 2;
    if (pipelined.num_microbatches() % 2 == 0 && why_impossible(problem_, half).empty()) {
      const LayoutPrice fewer = price_layout(problem_, half);
      say(" With half as many micro-batches of twice the size {:.1f} % is idle. A step takes {}{}.",
          100 * fewer.idle_share, time_text(fewer.step_seconds), subject_.fit_text(fewer));
    }
    say("\n");
  }

  const MemoSubject& subject_;
  const PlanProblem& problem_;
  const Layout& layout_;
};

}  // namespace

std::string microbatches_part(const MemoSubject& subject) { return MicrobatchesPart(subject).write(); }

}  // namespace espalier

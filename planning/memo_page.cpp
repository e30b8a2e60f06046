// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/memo_page.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "io/units.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/run_cost.hpp"
#include "planning/runnable.hpp"
#include "planning/time_text.hpp"
#include "planning/to_double.hpp"

namespace espalier {
namespace {

class MemoPage : MemoText {
 public:
  explicit MemoPage(const MemoPageSubject& subject)
      : problem_(subject.problem),
        space_(subject.space),
        result_(subject.result),
        goal_(subject.goal),
        bottleneck_(subject.bottleneck),
        best_(subject.result.ranking.front()),
        layout_(best_.layout) {}

  std::string text() {
    question();
    answer();
    reasons();
    text_ += "## What limits it\n\n" + bottleneck_.limit + "\n\n";
    text_ += "## What to do first\n\n" + bottleneck_.first + "\n\n";
    changes();
    certainty();
    return text_;
  }

 private:
  void question() {
    say_question(problem_, space_);
    if (problem_.num_tokens > 0)
      say(" The whole run has {} tokens.", tokens_text(problem_.num_tokens));
    for (const GoalResult& each : goal_results(best_, goal_))
      say(" Wanted: {}.", each.asked);
    say("\n\n");
  }

  // The figures are those of `plan --json`.
  void answer() {
    say("## Answer\n\n| | predicted | in 9 of 10 cases like it |\n|---|---|---|\n");
    say("| layout | {} | |\n", layout_.text());
    say("| step | {} | {} s |\n", time_text(best_.step_seconds), interval_text(best_.step_interval));
    const double tokens = best_.tokens_per_second * best_.step_seconds;
    say("| tokens per second | {:.4g} | {:.4g} to {:.4g} |\n", best_.tokens_per_second,
        tokens / best_.step_interval.high, tokens / best_.step_interval.low);
    say("| {} (of {} in {}) | {:.1f} % | |\n", best_.flops_share.text(),
        quantity_text(Quantity::flops_per_second, problem_.cluster.device.rate(layout_.precision).peak_flops),
        to_string(layout_.precision), 100 * best_.flops_share.share);
    say("| peak memory of a device, {} | {} | {} to {} |\n", room_text(problem_), bytes_text(best_.memory_bytes),
        real_bytes_text(best_.memory_interval.low), real_bytes_text(best_.memory_interval.high));
    if (problem_.num_tokens > 0)
      run_rows(run_cost(problem_, best_));
    say("\n{}", split_text());
    if (std::string reason = why_not_runnable(problem_, layout_); !reason.empty()) {
      for (std::size_t at = 0; (at = reason.find("; ", at)) != std::string::npos;)
        reason.replace(at, 2, ". ");
      say(" Estimated only, `train` cannot run it yet: {}.", reason);
    }
    for (const GoalResult& each : goal_results(best_, goal_))
      say("\n\n**Goal.** {}{}.", goal_text(each),
          each.is_met() && each.margin < best_.step_interval.high / best_.step_seconds - 1
              ? ", less than the prediction's own error"
              : "");
    say("\n\n");
  }

  std::string split_text() const {
    std::vector<std::string> parts;
    for (const auto& [what, count, unit] :
         {std::tuple("each layer", layout_.tensor * layout_.context, "device"),
          std::tuple("the layers", layout_.pipeline, "stage"), std::tuple("the batch", layout_.data, "replica")})
      if (count > 1)
        parts.push_back(fmt::format("{} over {}", what, counted(count, unit)));
    return parts.empty() ? "All of it lies on one device." : fmt::format("Split are {}.", fmt::join(parts, ", "));
  }

  void run_rows(const RunCost& run) {
    const auto row = [&](const std::string& name, const Predicted& of) {
      say("| {} | {} | {} |\n", name, rounded_text(of.value), interval_text(of.interval));
    };
    row(fmt::format("days for {} tokens", tokens_text(problem_.num_tokens)), run.days);
    row("device-hours", run.device_hours);
    if (run.cost)
      row("cost, " + problem_.cluster.currency, *run.cost);
    if (run.energy)
      row("energy, kWh", *run.energy);
  }

  void reasons() {
    say("## Why\n\n1. ");
    const double states =
        to_double(num_parameters(problem_.model)) * to_double(state_bytes(training_types(layout_.precision)).total());
    const double devices = states / static_cast<double>(room_bytes(problem_));
    say("Weights, gradients and optimizer states take {}, {:.{}f} times what a device has free. ",
        real_bytes_text(states), devices, devices < 10 ? 1 : 0);
    const MemoryByCategory& peak = best_.memory[static_cast<std::size_t>(best_.peak_stage)];
    say("This layout leaves {} of them on a device. With activations and buffers it needs {}.\n",
        bytes_text(peak[Category::weights] + peak[Category::gradients] + peak[Category::optimizer]),
        bytes_text(best_.memory_bytes));
    say("2. ");
    if (result_.ranking.size() < 2) {
      say("No other mesh of ranks is possible: of {} layouts {} are too large and {} impossible.\n\n",
          result_.num_considered, result_.num_too_large, result_.num_impossible);
      return;
    }
    const Rejection& next = result_.rejections.front();
    std::string why = next.reason;
    if (const std::size_t cause = why.find("): "); cause != std::string::npos)
      why.replace(cause, 3, "). Cause: ");
    if (const std::size_t more = why.find("; "); more != std::string::npos)
      why.replace(more, 2, ". But ");
    say("The next best split is {}. It is {}.\n\n", mesh_text(next.layout), why);
  }

  void changes() {
    say("## What would change the answer\n\n");
    text_ += bottleneck_.changes;
    if (result_.not_built) {
      const LayoutPrice& other = *result_.not_built;
      say("- Not built yet: {} would be {:.1f} % faster. {}.\n", mesh_text(other.layout),
          100 * (best_.step_seconds / other.step_seconds - 1),
          capitalized(why_not_runnable(problem_.model.num_layers, other.layout)));
    }
    say("- Another model, batch, sequence length or machine: ask again.\n\n");
  }

  void certainty() {
    say("## How sure we are\n\n");
    say_what_was_not_run({problem_});
    say("- In 9 of 10 {}, a step takes {} s.\n", time_kind(problem_, best_).name, interval_text(best_.step_interval));
    if (result_.num_alike > 1)
      say("- The prediction does not tell {} layouts apart. The answer has fewest stages, then least tensor "
          "parallelism, then the lowest ZeRO stage.\n",
          result_.num_alike);
    say_how_memory_is_counted(problem_.cluster);
    text_ += "\n";
  }

  const PlanProblem& problem_;
  const LayoutSpace& space_;
  const SearchResult& result_;
  const Goal& goal_;
  const BottleneckTexts& bottleneck_;
  const LayoutPrice& best_;
  const Layout& layout_;
};

}  // namespace

std::string memo_page(const MemoPageSubject& subject) { return MemoPage(subject).text(); }

}  // namespace espalier

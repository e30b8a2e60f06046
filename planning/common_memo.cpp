// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/memory_text.hpp"
#include "io/units.hpp"
#include "planning/memo.hpp"
#include "planning/memo_parts.hpp"
#include "planning/to_double.hpp"
#include "planning/why_slower.hpp"

namespace espalier {
namespace {

constexpr double nothing_lost = 0.005;  // share of a step below which there is nothing to explain

class CommonMemo : MemoText {
 public:
  CommonMemo(const std::vector<PlanProblem>& problems, const LayoutSpace& space, const CommonLayout& common,
             const Goal& goal)
      : problems_(problems), space_(space), common_(common), goal_(goal) {}

  std::string text() {
    recommendation();
    losses();
    goals();
    memory();
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      const MemoSubject subject{
          .problem = problems_[i], .space = space_, .best = common_.prices[i], .machines = &problems_};
      say("# On {}\n\n", problems_[i].cluster.name);
      text_ += gradients_part(subject) + precision_part(subject) + bottleneck_part(subject);
    }
    return text_;
  }

 private:
  void recommendation() {
    std::vector<std::string> names;
    for (const PlanProblem& problem : problems_)
      names.push_back(problem.cluster.name);
    say("# How to train {} on {} devices of each of {}\n\n", problems_.front().model_name, space_.num_devices,
        fmt::to_string(fmt::join(names, ", ")));
    say_caveat(problems_);
    say("**Recommendation.** {} on all of them: the layout that gives up least on any machine.\n\n",
        common_.layout->text());
    say_model_and_batch(problems_.front(), *common_.layout, "");
    say_if_estimated_only(problems_.front(), *common_.layout);
  }

  void losses() {
    say("## What each machine gives up\n\n");
    say("| machine | step time | tokens/s | utilization | slower by | best layout of this machine | its step time "
        "|\n|---|---|---|---|---|---|---|\n");
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      const LayoutPrice& price = common_.prices[i];
      const LayoutPrice& best = common_.bests[i];
      say("| {} | {:.4g} s (+-{:.0f} %) | {:.4g} | {} {:.1f} % | {:.1f} % | {} | {:.4g} s |\n",
          problems_[i].cluster.name, price.step_seconds, 100 * price.error_share, price.tokens_per_second,
          price.flops_share.text(), 100 * price.flops_share.share, 100 * common_.loss(i), best.layout.text(),
          best.step_seconds);
    }
    say("\n");
    for (std::size_t i = 0; i < problems_.size(); ++i)
      if (common_.loss(i) > nothing_lost)
        say("- On {} it is {}.\n", problems_[i].cluster.name,
            why_slower(problems_[i], common_.prices[i], common_.bests[i]));
      else
        say("- On {} nothing is lost.\n", problems_[i].cluster.name);
    say("\n");
  }

  void goals() {
    for (std::size_t i = 0; i < problems_.size(); ++i)
      for (const GoalResult& each : goal_results(common_.prices[i], goal_))
        say("**Goal on {}.** {}.\n\n", problems_[i].cluster.name, goal_text(each));
  }

  void memory() {
    say("## How it fits in memory\n\n| machine | peak memory | free | |\n|---|---|---|---|\n");
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      const std::size_t room = room_bytes(problems_[i]);
      const LayoutPrice& price = common_.prices[i];
      say("| {} | {} | {} | {} of it, stage {} of {} |\n", problems_[i].cluster.name, bytes_text(price.memory_bytes),
          bytes_text(room), share_text(static_cast<double>(price.memory_bytes), static_cast<double>(room)),
          price.peak_stage, price.layout.pipeline);
    }
    say("\n");
  }

  const std::vector<PlanProblem>& problems_;
  const LayoutSpace& space_;
  const CommonLayout& common_;
  const Goal& goal_;
};

}  // namespace

std::string common_memo(const std::vector<PlanProblem>& problems, const LayoutSpace& space, const CommonLayout& common,
                        const Goal& goal) {
  return CommonMemo(problems, space, common, goal).text();
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/memory_text.hpp"
#include "io/units.hpp"
#include "planning/memo.hpp"
#include "planning/memo_parts.hpp"
#include "planning/run_cost.hpp"
#include "planning/to_double.hpp"
#include "planning/why_slower.hpp"

namespace espalier {
namespace {

constexpr double nothing_lost = 0.005;  // share of a step below which there is nothing to explain

class CommonMemo : MemoText {
 public:
  CommonMemo(const std::vector<PlanProblem>& problems, const LayoutSpace& space, const CommonLayout& common,
             const Goal& goal, const std::string& joint)
      : problems_(problems), common_(common), goal_(goal), joint_(joint), spaces_(problems.size(), space) {
    subjects_.reserve(problems.size());
    for (std::size_t i = 0; i < problems.size(); ++i) {
      if (!common.layout)
        spaces_[i].num_devices = problems[i].cluster.num_devices();
      if (!common.has(i))
        continue;
      subjects_.push_back({.problem = problems[i],
                           .space = spaces_[i],
                           .best = common.price(i),
                           .machines = common.layout ? &problems : nullptr});
      bottlenecks_.push_back(bottleneck_texts(subjects_.back()));
      names_.push_back(machine_name(problems, i));
    }
  }

  std::string text() {
    question();
    answer();
    reasons();
    of_each("## What limits it\n\n", &BottleneckTexts::limit);
    of_each("## What to do first\n\n", &BottleneckTexts::first);
    say("## What would change the answer\n\n");
    for (std::size_t k = 0; k < subjects_.size(); ++k)
      if (!bottlenecks_[k].changes.empty()) {
        say("On {}:\n\n", names_[k]);
        text_ += bottlenecks_[k].changes + "\n";
      }
    say("## How sure we are\n\n");
    say_what_was_not_run(problems_);
    say("- In 9 of 10 published cases like it a step takes what the table says.\n\n# Details\n\n");
    if (common_.layout)
      losses();
    memory();
    for (std::size_t k = 0; k < subjects_.size(); ++k) {
      say("# On {}\n\n", names_[k]);
      text_ += gradients_part(subjects_[k]) + precision_part(subjects_[k]) + bottlenecks_[k].table;
    }
    return text_;
  }

 private:
  void question() {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < problems_.size(); ++i)
      names.push_back(machine_name(problems_, i));
    if (common_.layout)
      say("# How to train {} on {} devices of each of {}\n\n", problems_.front().model_name,
          common_.layout->num_devices(), fmt::to_string(fmt::join(names, ", ")));
    else
      say("# How to train {} on {}\n\n", problems_.front().model_name, fmt::to_string(fmt::join(names, " or ")));
    say("## Question\n\nWhich of these should train {}, and how? A step has {} of {} tokens.\n\n",
        problems_.front().model_name, counted(spaces_.front().global_batch, "sequence"),
        problems_.front().sequence_length);
    for (const PlanProblem& problem : problems_)
      say("- {}: {}\n", problem.cluster.name, machine_text(problem.cluster, problem.cluster.num_devices()));
    say("\n");
  }

  void answer() {
    say("## Answer\n\n");
    for (const std::string& sentence : comparison_sentences(problems_, common_))
      say("{} ", sentence);
    if (common_.layout)
      say("One layout gives up least on any of them.");
    const bool runs = problems_.front().num_tokens > 0;
    say("\n\n| machine | step | in 9 of 10 cases like it | tokens/s | utilization | layout |");
    if (runs)
      say(" days for {} tokens | device-hours | cost | kWh |", tokens_text(problems_.front().num_tokens));
    text_ += runs ? "\n|---|---|---|---|---|---|---|---|---|---|\n" : "\n|---|---|---|---|---|---|\n";
    for (std::size_t i = 0; i < problems_.size(); ++i)
      if (common_.has(i))
        row(i, runs);
      else
        say("| {} | {} | | | | |\n", machine_name(problems_, i), common_.why_none[i]);
    say("\n");
    for (std::size_t k = 0; k < subjects_.size(); ++k) {
      for (const GoalResult& each : goal_results(subjects_[k].best, goal_))
        say("**Goal on {}.** {}.\n\n", names_[k], goal_text(each));
      if (k == 0 || !common_.layout)
        say_if_estimated_only(subjects_[k].problem, subjects_[k].layout());
    }
    if (!joint_.empty())
      say("{}\n\n", capitalized(joint_));
  }

  void row(std::size_t i, bool runs) {
    const LayoutPrice& price = common_.price(i);
    say("| {} | {:.4g} s | {} s | {:.4g} | {} {:.1f} % | {} |", machine_name(problems_, i), price.step_seconds,
        interval_text(price.step_interval), price.tokens_per_second, price.flops_share.text(),
        100 * price.flops_share.share, price.layout.text());
    if (runs) {
      const RunCost run = run_cost(problems_[i], price);
      say(" {} | {} | {} | {} |", predicted_text(run.days, ""), predicted_text(run.device_hours, ""),
          run.cost ? predicted_text(*run.cost, problems_[i].cluster.currency) : "",
          run.energy ? predicted_text(*run.energy, "") : "");
    }
    say("\n");
  }

  void reasons() {
    say("## Why\n\n");
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      if (!common_.has(i))
        continue;
      const PlanProblem& problem = problems_[i];
      const LayoutPrice& price = common_.price(i);
      say("- {} reaches {} of {} on each device, and needs {} of its free memory.\n", machine_name(problems_, i),
          share_text(price.flops_share.share, 1),
          quantity_text(Quantity::flops_per_second, problem.cluster.device.rate(price.layout.precision).peak_flops),
          share_text(static_cast<double>(price.memory_bytes), static_cast<double>(room_bytes(problem))));
      if (common_.layout && common_.loss(i) > nothing_lost)
        say("- On {} the layout gives up {:.1f} % against its own best.\n", machine_name(problems_, i),
            100 * common_.loss(i));
      else if (common_.layout)
        say("- On {} nothing is lost.\n", machine_name(problems_, i));
    }
    say("\n");
  }

  void of_each(const char* heading, std::string BottleneckTexts::*part) {
    text_ += heading;
    for (std::size_t k = 0; k < subjects_.size(); ++k) {
      say("- On {}: ", names_[k]);
      text_ += bottlenecks_[k].*part + "\n";
    }
    text_ += "\n";
  }

  void losses() {
    say("## What each machine gives up\n\n| machine | slower by | best layout of this machine | its step |\n"
        "|---|---|---|---|\n");
    for (std::size_t i = 0; i < problems_.size(); ++i)
      say("| {} | {:.1f} % | {} | {:.4g} s |\n", problems_[i].cluster.name, 100 * common_.loss(i),
          common_.bests[i].layout.text(), common_.bests[i].step_seconds);
    say("\n");
    for (std::size_t i = 0; i < problems_.size(); ++i)
      if (common_.loss(i) > nothing_lost)
        say("- On {} it is {}.\n", problems_[i].cluster.name,
            why_slower(problems_[i], common_.prices[i], common_.bests[i]));
    say("\n");
  }

  void memory() {
    say("## How it fits in memory\n\n| machine | peak memory | free | |\n|---|---|---|---|\n");
    for (std::size_t k = 0; k < subjects_.size(); ++k) {
      const std::size_t room = subjects_[k].room();
      const LayoutPrice& price = subjects_[k].best;
      say("| {} | {} | {} | {} of it, stage {} of {} |\n", names_[k], bytes_text(price.memory_bytes), bytes_text(room),
          share_text(static_cast<double>(price.memory_bytes), static_cast<double>(room)), price.peak_stage,
          price.layout.pipeline);
    }
    say("\n");
  }

  const std::vector<PlanProblem>& problems_;
  const CommonLayout& common_;
  const Goal& goal_;
  const std::string& joint_;
  std::vector<LayoutSpace> spaces_;
  std::vector<MemoSubject> subjects_;  // of the machines that have a layout
  std::vector<BottleneckTexts> bottlenecks_;
  std::vector<std::string> names_;
};

}  // namespace

std::string common_memo(const std::vector<PlanProblem>& problems, const LayoutSpace& space, const CommonLayout& common,
                        const Goal& goal, const std::string& joint) {
  return CommonMemo(problems, space, common, goal, joint).text();
}

}  // namespace espalier

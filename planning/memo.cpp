// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/memo.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "io/units.hpp"
#include "planning/memo_parts.hpp"
#include "planning/run_cost.hpp"
#include "planning/runnable.hpp"
#include "planning/time_text.hpp"
#include "planning/why_slower.hpp"

namespace espalier {
namespace {

// "It is slower by 2.5 % (...). It spends ...", of a layout that is called `it`.
std::string speed_sentences(const char* it, const PlanProblem& problem, const LayoutPrice& price,
                            const LayoutPrice& best) {
  const auto [result, reason] = compare_speed(problem, price, best);
  return fmt::format("{} is {}.{}", it, result, reason.empty() ? "" : " " + capitalized(reason) + ".");
}

std::string split_text(const Layout& layout) {
  std::vector<std::string> parts;
  for (const auto& [what, count, unit] :
       {std::tuple("each layer", layout.tensor * layout.context, "device"),
        std::tuple("the layers", layout.pipeline, "stage"), std::tuple("the batch", layout.data, "replica")})
    if (count > 1)
      parts.push_back(fmt::format("{} over {}", what, counted(count, unit)));
  return parts.empty() ? "Train on one device without a split." : fmt::format("Split {}.", fmt::join(parts, " and "));
}

// Writes the memo of one machine or of several.
class Memo : MemoText {
 public:
  Memo(const std::vector<PlanProblem>& problems, const LayoutSpace& space, std::vector<MemoSubject> subjects,
       const CommonLayout& common, const std::vector<ScalePoint>& scaling, const Goal& goal, const std::string& joint)
      : problems_(problems),
        space_(space),
        subjects_(std::move(subjects)),
        common_(common),
        scaling_(scaling),
        goal_(goal),
        joint_(joint) {
    for (const MemoSubject& each : subjects_)
      bottlenecks_.push_back(bottleneck_texts(each));
  }

  std::string write() {
    const std::string page =
        page_text({.title = part(&Memo::title),
                   .question = part(&Memo::question),
                   .answer = part(&Memo::answer),
                   .reasons = part(&Memo::reasons),
                   .limit = subjects_.empty() ? "Memory is the limit.\n" : of_each(&BottleneckTexts::limit),
                   .first = subjects_.empty() ? "Plan again with more devices, or with devices of more memory.\n"
                                              : of_each(&BottleneckTexts::first),
                   .changes = part(&Memo::changes),
                   .certainty = part(&Memo::certainty)});
    return page + "# Details\n\n" + part(&Memo::details);
  }

 private:
  std::string part(void (Memo::*write)()) {
    text.clear();
    (this->*write)();
    return text;
  }

  bool is_of_several() const { return problems_.size() > 1; }
  // What a sentence about one of several machines begins with.
  static std::string on(const MemoSubject& subject) {
    return subject.name.empty() ? "" : fmt::format("On {}: ", subject.name);
  }

  std::string of_each(std::string BottleneckTexts::*part) {
    text.clear();
    for (std::size_t k = 0; k < subjects_.size(); ++k) {
      say("{}{}", is_of_several() ? "- " : "", on(subjects_[k]));
      text += bottlenecks_[k].*part + "\n";
    }
    return text;
  }

  void title() {
    const PlanProblem& first = problems_.front();
    std::vector<std::string> names;
    for (std::size_t i = 0; i < problems_.size(); ++i)
      names.push_back(machine_name(problems_, i));
    if (!is_of_several())
      say("{} on {} {}", first.model_name, space_.num_devices, first.cluster.device.name);
    else if (common_.layout)
      say("{} on {} devices of each of {}", first.model_name, common_.layout->num_devices(),
          fmt::to_string(fmt::join(names, ", ")));
    else
      say("{} on {}", first.model_name, fmt::to_string(fmt::join(names, " or ")));
  }

  void question() {
    text = question_text(problems_, space_);
    if (problems_.front().num_tokens > 0)
      say(" The whole run has {} tokens.", tokens_text(problems_.front().num_tokens));
    for (const GoalResult& each : goal_results({}, goal_))
      say(" The goal is {}.", each.asked);
    say("\n");
    if (is_of_several())
      say("\n");
    for (std::size_t i = 0; is_of_several() && i < problems_.size(); ++i)
      say("- {}: {}\n", problems_[i].cluster.name,
          machine_text(problems_[i].cluster, problems_[i].cluster.num_devices()));
  }

  void answer() {
    for (const std::string& sentence : comparison_sentences(problems_, common_))
      say("- {}\n", sentence);
    if (common_.layout)
      say("- Of the layouts that fit all machines, this one loses least against the best layout of each.\n");
    if (is_of_several() && !text.empty())
      say("\n");
    for (const MemoSubject& each : subjects_)
      if (!common_.layout || &each == subjects_.data())
        layout_in_words(each);
    if (!subjects_.empty())
      say_figures();
    for (std::size_t i = 0; i < common_.why_none.size(); ++i)
      if (!common_.has(i))
        say("\nOn {}: {}.\n", machine_name(problems_, i), common_.why_none[i]);
    for (const MemoSubject& each : subjects_) {
      for (const GoalResult& result : goal_results(each.best, goal_))
        say("\n**Goal{}.** {}.{}\n", each.name.empty() ? "" : " on " + each.name, capitalized(goal_text(result)),
            result.is_met() && result.margin < each.best.step_interval.high / each.best.step_seconds - 1
                ? " This is less than the range of the prediction, so the run may miss the goal."
                : "");
    }
    if (!joint_.empty())
      say("\n{}\n", capitalized(joint_));
  }

  void layout_in_words(const MemoSubject& subject) {
    say("{}{}", on(subject), split_text(subject.layout()));
    const std::vector<std::string> lacks = what_lacks(subject.problem, subject.layout());
    if (!lacks.empty())
      say(" This layout is only estimated: `train` cannot run it yet.");
    for (const std::string& each : lacks)
      say(" Reason: {}.", each);
    say("\n\n");
  }

  struct Figure {
    std::string name;
    std::string value;
    std::string range;
  };

  // "GEMM fraction 61.2 % of 700 TFLOP/s, MFU 43.0 % of 989 TFLOP/s"
  static std::string utilization_text(const FlopsShares& shares, const MatrixRate& rate) {
    const auto text = [](const char* name, double share, double of) {
      return fmt::format("{} {:.1f} % of {}", name, 100 * share, quantity_text(Quantity::flops_per_second, of));
    };
    std::vector<std::string> parts;
    if (shares.gemm_fraction)
      parts.push_back(text("GEMM fraction", *shares.gemm_fraction, rate.peak_flops));
    if (shares.mfu)
      parts.push_back(text("MFU", *shares.mfu, rate.peak()));
    return fmt::format("{}", fmt::join(parts, ", "));
  }

  // Those of `plan --json`. All machines have the same rows; a value that is unknown is empty.
  static std::vector<Figure> figures(const MemoSubject& subject) {
    const PlanProblem& problem = subject.problem;
    const LayoutPrice& best = subject.best;
    const double tokens = best.tokens_per_second * best.step_seconds;
    std::vector<Figure> rows{
        {"layout", best.layout.text(), ""},
        {"time of a step", time_text(best.step_seconds), interval_text(best.step_interval) + " s"},
        {"tokens per second", rounded_text(best.tokens_per_second, 4),
         interval_text({tokens / best.step_interval.high, tokens / best.step_interval.low}, 4)},
        {"utilization",
         utilization_text(best.flops_shares, problem.cluster.device.rate(best.layout.precision)) + " in " +
             to_string(best.layout.precision),
         ""},
        {"peak memory of a device", fmt::format("{} of {}", bytes_text(best.memory_bytes), free_text(problem)),
         fmt::format("{} to {}", rounded_bytes_text(best.memory_interval.low),
                     rounded_bytes_text(best.memory_interval.high))}};
    if (problem.num_tokens == 0)
      return rows;
    const RunCost run = run_cost(problem, best);
    const auto row = [&](const std::string& name, const std::optional<Predicted>& of, const std::string& unit) {
      rows.push_back({name, of ? rounded_text(of->value) + unit : "", of ? interval_text(of->interval) : ""});
    };
    row(fmt::format("days for {} tokens", tokens_text(problem.num_tokens)), run.days, "");
    row("device-hours", run.device_hours, "");
    row("cost", run.cost, " " + problem.cluster.currency);
    row("energy", run.energy, " kWh");
    return rows;
  }

  // A row for each of them that is known of any machine, two columns for each machine.
  void say_figures() {
    std::vector<std::vector<Figure>> columns;
    std::string rule = "|---|";
    say("| |");
    for (const MemoSubject& each : subjects_) {
      columns.push_back(figures(each));
      say(" {} | range in 9 of 10 similar cases |", each.name.empty() ? "predicted" : each.name);
      rule += "---|---|";
    }
    text += "\n" + rule + "\n";
    for (std::size_t row = 0; row < columns.front().size(); ++row) {
      if (std::ranges::all_of(columns, [&](const auto& column) { return column[row].value.empty(); }))
        continue;
      say("| {} |", columns.front()[row].name);
      for (const std::vector<Figure>& column : columns)
        say(" {} | {} |", column[row].value, column[row].range);
      say("\n");
    }
  }

  void reasons() {
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      if (common_.has(i))
        continue;
      const PlanProblem& problem = problems_[i];
      const double states = all_state_bytes(problem.model, space_.precisions.front());
      say("- On {}: Weights, gradients and optimizer states need {}. That is {:.2f} times the free memory of all "
          "devices.\n",
          machine_name(problems_, i), rounded_bytes_text(states),
          states / (static_cast<double>(free_bytes(problem)) * problem.cluster.num_devices()));
    }
    for (const MemoSubject& each : subjects_) {
      const double states = all_state_bytes(each.problem.model, each.layout().precision);
      const double devices = states / static_cast<double>(each.free_memory());
      const MemoryByCategory& peak = each.best.memory[static_cast<std::size_t>(each.best.peak_stage)];
      say("- {}Weights, gradients and optimizer states need {}. That is {:.{}f} times the free memory of a device. ",
          on(each), rounded_bytes_text(states), devices, devices < 10 ? 1 : 0);
      say("With this layout a device holds {} of them, and {} with activations and buffers.\n",
          bytes_text(peak[Category::weights] + peak[Category::gradients] + peak[Category::optimizer]),
          bytes_text(each.best.memory_bytes));
      if (each.result)
        next_best(each);
      if (each.own_best)
        given_up(each);
    }
  }

  void next_best(const MemoSubject& subject) {
    const SearchResult& result = *subject.result;
    const auto is_other_split = [&](const LayoutPrice& price) {
      return degrees_of(price.layout) != degrees_of(subject.layout());
    };
    const auto other = std::ranges::find_if(result.ranking, is_other_split);
    if (other == result.ranking.end()) {
      say("- No other split is possible. Of {} layouts {} are too large and {} are impossible.\n",
          result.num_considered, result.num_too_large, result.num_impossible);
      return;
    }
    const LayoutPrice& next = *other;
    if (next.step_seconds >= subject.best.step_seconds) {
      say("- The next best split is {}. {}\n", mesh_text(next.layout),
          speed_sentences("It", subject.problem, next, subject.best));
      return;
    }
    const std::string more = what_is_more_complex(next.layout, subject.best.layout);
    say("- The fastest other split is {}. It is faster by {}. The prediction cannot tell which of the two is "
        "faster.{}\n",
        mesh_text(next.layout), against_text(next, subject.best), more.empty() ? "" : " " + capitalized(more) + ".");
  }

  // What one layout for all machines costs this one.
  void given_up(const MemoSubject& subject) {
    const double loss = subject.best.step_seconds / subject.own_best->step_seconds - 1;
    if (loss <= worthwhile) {
      say("- {}The best layout for this machine alone is no faster.\n", on(subject));
      return;
    }
    say("- {}The best layout for this machine alone is {}. {}\n", on(subject), mesh_text(subject.own_best->layout),
        speed_sentences("The common layout", subject.problem, subject.best, *subject.own_best));
  }

  void changes() {
    for (std::size_t k = 0; k < subjects_.size(); ++k) {
      if (is_of_several() && !bottlenecks_[k].changes.empty())
        say("On {}:\n\n", subjects_[k].name);
      text += bottlenecks_[k].changes;
      if (const SearchResult* const result = subjects_[k].result; result && result->fewer_devices)
        say("- Fewer devices: {} of them train {:.2f} times as many tokens per second.\n",
            result->fewer_devices->layout.num_devices(),
            result->fewer_devices->tokens_per_second / subjects_[k].best.tokens_per_second);
      if (const SearchResult* const result = subjects_[k].result; result && result->not_built) {
        const LayoutPrice& other = *result->not_built;
        say("- {} would be {:.1f} % faster, but `train` cannot run it yet. Reason: {}.\n",
            capitalized(mesh_text(other.layout)), 100 * result->gain_of_not_built(), why_not_runnable(other.layout));
      }
      if (is_of_several() && !bottlenecks_[k].changes.empty())
        say("\n");
    }
    say("- Plan again if the model, the batch, the sequence length or the machine changes.\n");
  }

  void certainty() {
    text = certainty_text(problems_);
    for (const MemoSubject& each : subjects_) {
      say("- {}A step takes {} s. Such a range holds the measured time of 9 of 10 {}.\n", on(each),
          interval_text(each.best.step_interval), time_kind(each.problem, each.best).name);
      if (each.result && each.result->num_alike > 1)
        say("- {} layouts differ by less than {:.0f} %. The prediction cannot tell which of them is the fastest. "
            "The answer is the one with {}.\n",
            each.result->num_alike, 100 * step_resolution(each.problem.cluster), simplest_text);
    }
  }

  void details() {
    if (subjects_.empty())
      say("## How it fits in memory\n\nThe model fits none of these machines.\n");
    for (std::size_t k = 0; k < subjects_.size(); ++k) {
      const MemoSubject& each = subjects_[k];
      if (is_of_several())
        say("# On {}\n\n", each.name);
      text += memory_part(each) + gradients_part(each) + microbatches_part(each) + precision_part(each) +
              bottlenecks_[k].table;
    }
    scaling();
    for (const MemoSubject& each : subjects_)
      if (each.result)
        alternatives(*each.result);
  }

  void scaling() {
    if (scaling_.empty())
      return;
    say("## Scaling\n\n"
        "| devices | batch | time of a step | tokens/s | efficiency | layout | limit, or gain |\n"
        "|---|---|---|---|---|---|---|\n");
    for (const ScalePoint& point : scaling_)
      if (point.price)
        say("| {} | {} | {} | {} | {:.1f} % | {} | {} |\n", point.num_devices, point.global_batch,
            time_text(point.price->step_seconds), rounded_text(point.price->tokens_per_second, 4),
            100 * point.efficiency, point.price->layout.text(), point.limited_by);
      else
        say("| {} | {} | | | | | {} |\n", point.num_devices, point.global_batch, point.limited_by);
    say("\n");
  }

  void alternatives(const SearchResult& result) {
    constexpr std::size_t most_shown = 5;
    say("## What else was considered\n\nOf {} layouts {} are impossible and {} do not fit.\n", result.num_considered,
        result.num_impossible, result.num_too_large);
    if (!result.rejections.empty())
      say("\n| layout | why not |\n|---|---|\n");
    for (std::size_t i = 0; i < std::min(most_shown, result.rejections.size()); ++i)
      say("| {} | {} |\n", result.rejections[i].layout.text(), result.rejections[i].reason);
    say("\n");
  }

  const std::vector<PlanProblem>& problems_;
  const LayoutSpace& space_;
  std::vector<MemoSubject> subjects_;  // of the machines that have a layout
  const CommonLayout& common_;
  const std::vector<ScalePoint>& scaling_;
  const Goal& goal_;
  const std::string& joint_;
  std::vector<BottleneckTexts> bottlenecks_;
};

}  // namespace

std::string memo(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result,
                 const std::vector<ScalePoint>& scaling, const Goal& goal) {
  const std::vector<PlanProblem> problems{problem};
  const MemoSubject subject{
      .problem = problems.front(), .space = space, .best = result.ranking.front(), .result = &result};
  return Memo(problems, space, {subject}, {}, scaling, goal, {}).write();
}

std::string common_memo(const std::vector<PlanProblem>& problems, const LayoutSpace& space, const CommonLayout& common,
                        const Goal& goal, const std::string& joint) {
  std::vector<LayoutSpace> spaces(problems.size(), space);
  std::vector<MemoSubject> subjects;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    if (!common.layout)
      spaces[i].num_devices = problems[i].cluster.num_devices();
    if (common.has(i))
      subjects.push_back({.problem = problems[i],
                          .space = spaces[i],
                          .best = common.price(i),
                          .name = machine_name(problems, i),
                          .machines = common.layout ? &problems : nullptr,
                          .own_best = common.layout ? &common.bests[i] : nullptr});
  }
  return Memo(problems, space, std::move(subjects), common, {}, goal, joint).write();
}

}  // namespace espalier

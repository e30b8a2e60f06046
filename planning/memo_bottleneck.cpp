// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/units.hpp"
#include "planning/memo_parts.hpp"
#include "planning/mitigation.hpp"
#include "planning/time_text.hpp"

namespace espalier {
namespace {

// Rows of the table of changes: those that shorten the bottleneck, and others.
constexpr int most_relieving = 6;
constexpr int most_others = 3;

class BottleneckPart : MemoText {
 public:
  explicit BottleneckPart(const MemoSubject& subject)
      : subject_(subject),
        best_(subject.best),
        limit_(bottleneck(best_)),
        options_(mitigations(subject.problem, subject.space, best_)) {
    if (subject.machines)
      for (Mitigation& option : options_)
        if (option.obstacle.empty())
          option.obstacle = obstacle_elsewhere(option.price.layout);
  }

  BottleneckTexts write() {
    const auto part = [&](auto section) {
      text.clear();
      (this->*section)();
      return text;
    };
    return {.limit = part(&BottleneckPart::name_it),
            .first = part(&BottleneckPart::first_to_try),
            .changes = part(&BottleneckPart::what_would_change),
            .table = part(&BottleneckPart::table)};
  }

 private:
  // One layout for several machines changes on all of them: why it cannot on another, else empty.
  std::string obstacle_elsewhere(const Layout& layout) const {
    for (const PlanProblem& machine : *subject_.machines) {
      std::string reason = why_impossible(machine, layout);
      if (reason.empty())
        reason = why_too_large(machine, price_layout(machine, layout, Effort::estimate));
      if (!reason.empty())
        return fmt::format("on {}: {}", machine.cluster.name, reason);
    }
    return {};
  }

  // What it is, where its name does not say it.
  static const char* meaning_of(const Bottleneck& limit) {
    if (limit.kind == Bottleneck::Kind::recompute)
      return "activations are computed again";
    switch (limit.phase) {
      case Phase::tensor_comm: return "messages among tensor ranks";
      case Phase::data_comm: return "messages among replicas";
      case Phase::pipeline_comm: return "messages between stages";
      case Phase::bubble: return "stages wait for each other";
      case Phase::other: return "the host, between steps";
      case Phase::forward:
      case Phase::backward:
      case Phase::optimizer:
      case Phase::data:
      case Phase::checkpoint: break;
    }
    return "";
  }

  static std::string in_words(const Bottleneck& limit) {
    const std::string meaning = meaning_of(limit);
    return meaning.empty() ? limit.name() : fmt::format("{} ({})", limit.name(), meaning);
  }

  void name_it() {
    const bool is_compute = limit_.kind == Bottleneck::Kind::compute;
    const Bottleneck longest = longest_beside_compute(best_);
    say("{}Forward and backward take {} of the step. The {} is {}: {}, {}.", is_compute ? "Compute is the limit. " : "",
        share_text(Bottleneck{}.seconds(best_), best_.step_seconds), is_compute ? "longest other phase" : "bottleneck",
        in_words(longest), time_text(longest.seconds(best_)), share_text(longest.seconds(best_), best_.step_seconds));
  }

  // Seconds of the bottleneck for as many tokens as a step has now.
  double limit_seconds(const Mitigation& option) const {
    return comparable_seconds(option.price, best_, limit_.seconds(option.price));
  }

  std::string limit_text(const Mitigation& option) const {
    return fmt::format("{} {} {}", limit_.name(), limit_.kind == Bottleneck::Kind::compute ? "take" : "takes",
                       time_text(limit_seconds(option), " instead of ", limit_.seconds(best_)));
  }

  // The phase that a change shortens most (`sign` 1), or lengthens most (-1).
  std::string phase_text(const Mitigation& option, const char* verb, double sign) const {
    const auto seconds = [&](Phase each) { return comparable_seconds(option.price, best_, option.price[each]); };
    const Phase phase = phase_with_most([&](Phase each) { return sign * (best_[each] - seconds(each)); });
    return fmt::format("{}{} {}", to_string(phase), verb, time_text(seconds(phase), " instead of ", best_[phase]));
  }

  // They are in the order in which they are to be tried.
  template <class Wanted>
  const Mitigation* best_that(Wanted wanted) const {
    const auto found = std::find_if(options_.begin(), options_.end(), wanted);
    return found == options_.end() ? nullptr : &*found;
  }

  // What keeps all that was given, and train runs as it does the recommended layout; best what shortens the bottleneck.
  void first_to_try() {
    if (const auto* const first = best_that([](const Mitigation& m) { return m.is_ready() && m.helps(); }))
      say("First try {}.{} {}", name_of(*first),
          first->relieves_bottleneck() ? "" : " It does not shorten the bottleneck.", effect_text(*first));
    else
      say("No single change that fits and keeps your fixed choices raises throughput by more than {:g} %.",
          100 * worthwhile);
    if (subject_.result && subject_.result->num_alike > 1)
      if (const LayoutPrice& fastest =
              *std::ranges::min_element(subject_.result->ranking, {}, &LayoutPrice::step_seconds);
          fastest.step_seconds * (1 + worthwhile) < best_.step_seconds)
        say(" Compare with {} in a short run. It may be {:.1f} % faster.",
            degrees_of(fastest.layout) == degrees_of(best_.layout) ? "another layout of the same split (listed below)"
                                                                   : mesh_text(fastest.layout),
            100 * (best_.step_seconds / fastest.step_seconds - 1));
    if (const auto* const blocked =
            best_that([](const Mitigation& m) { return m.is_ready() && m.relieves_bottleneck() && m.gains(); });
        blocked && !blocked->obstacle.empty())
      say(" {} would raise throughput by {:.1f} %, but {}.", capitalized(name_of(*blocked)), 100 * blocked->gain,
          fits_memory(subject_.problem, blocked->price.memory_bytes) ? "another machine cannot run it"
                                                                     : "it needs too much memory");
  }

  // What gains more, and leaves what was given, is not yet run, or is another machine.
  void what_would_change() {
    const auto* ready = best_that([](const Mitigation& m) { return m.is_ready() && m.helps(); });
    const double gain = ready ? ready->gain : 0;
    const auto wanted = [&](const Mitigation& m, bool runs) {
      return m.lacks.empty() == runs && m.helps() && m.gain > gain;
    };
    if (const auto* const other =
            best_that([&](const Mitigation& m) { return !m.condition.empty() && wanted(m, true); }))
      say("- {}: {}. {}\n", capitalized(other->condition), name_of(*other), effect_text(*other));
    if (const auto* const other = best_that([&](const Mitigation& m) { return wanted(m, false); }))
      say("- Not possible yet ({}): {}. {}\n", other->lacks, name_of(*other), effect_text(*other));
    if (const std::optional<Mitigation> machine = better_machine(subject_.problem, best_))
      say("- {} would raise throughput by {:.1f} %.\n", capitalized(machine->change), 100 * machine->gain);
  }

  // A whole layout by its mesh: the table has the rest of it.
  static std::string name_of(const Mitigation& option) {
    const Layout& layout = option.price.layout;
    return option.change == layout.text() ? mesh_text(layout) + " (in the table below)" : option.change;
  }

  // What it does to the bottleneck, or else to the phase that it shortens most.
  std::string effect_text(const Mitigation& option) const {
    return fmt::format("Throughput rises by {:.1f} %. For the same tokens, {}. Peak memory is then {}.",
                       100 * option.gain,
                       option.relieves_bottleneck() ? limit_text(option) : phase_text(option, " takes", 1),
                       bytes_text(option.price.memory_bytes));
  }

  void table() {
    if (options_.empty())
      return;
    say("## What could be changed\n\n");
    say("| change | {}, for the same tokens | tokens/s | largest effect | peak memory | remark |\n"
        "|---|---|---|---|---|---|\n",
        limit_.name());
    rows(true, most_relieving);
    rows(false, most_others);
    say("\n");
  }

  void rows(bool relieving, int most) {
    for (const Mitigation& option : options_)
      if (option.relieves_bottleneck() == relieving && most-- > 0)
        say("| {} | {} | {:+.1f} % | {} | {} | {} |\n", option.change, time_text(limit_seconds(option)),
            100 * option.gain, phase_text(option, "", option.gain >= 0 ? 1 : -1), bytes_text(option.price.memory_bytes),
            remark(option));
  }

  // What stands between a change and those who want it.
  static std::string remark(const Mitigation& option) {
    std::vector<std::string> remarks;
    if (!option.lacks.empty())
      remarks.push_back("not possible yet: " + option.lacks);
    for (const std::string& each : {option.condition, option.obstacle})
      if (!each.empty())
        remarks.push_back(each);
    return fmt::format("{}", fmt::join(remarks, "; "));
  }

  const MemoSubject& subject_;
  const LayoutPrice& best_;
  Bottleneck limit_;
  std::vector<Mitigation> options_;
};

}  // namespace

BottleneckTexts bottleneck_texts(const MemoSubject& subject) { return BottleneckPart(subject).write(); }

}  // namespace espalier

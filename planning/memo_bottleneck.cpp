// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "io/units.hpp"
#include "planning/memo_parts.hpp"
#include "planning/mitigation.hpp"
#include "planning/time_text.hpp"

namespace espalier {
namespace {

// Rows of the table of changes: those that shorten the bottleneck, and others.
constexpr int most_answers = 6;
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

  // What a phase is, where its name does not say it.
  static std::string in_words(const std::string& name) {
    constexpr std::array<std::pair<const char*, const char*>, 6> words{{{"tensor_comm", "messages among tensor ranks"},
                                                                        {"data_comm", "messages among replicas"},
                                                                        {"pipeline_comm", "messages between stages"},
                                                                        {"bubble", "stages that wait"},
                                                                        {"recompute", "activations computed again"},
                                                                        {"other", "the host, between steps"}}};
    for (const auto& [phase, meaning] : words)
      if (name == phase)
        return fmt::format("{} ({})", name, meaning);
    return name;
  }

  void name_it() {
    const std::string compute = share_text(Bottleneck{}.seconds(best_), best_.step_seconds);
    const Bottleneck longest = longest_beside_compute(best_);
    const std::string other = fmt::format("{}: {}, {}", in_words(longest.name()), time_text(longest.seconds(best_)),
                                          share_text(longest.seconds(best_), best_.step_seconds));
    if (limit_.kind == Bottleneck::Kind::compute)
      say("Forward and backward take {} of the step. The longest other phase is {}.", compute, other);
    else
      say("Forward and backward take {} of the step. Of the rest most time goes to {}.", compute, other);
  }

  // Seconds of the bottleneck for as many tokens as a step has now.
  double limit_seconds(const Mitigation& option) const {
    return comparable_seconds(option.price, best_, limit_.seconds(option.price));
  }

  std::string limit_text(const Mitigation& option) const {
    return fmt::format("{} {}", limit_.name(), time_text(limit_seconds(option), " instead of ", limit_.seconds(best_)));
  }

  // The phase that a change shortens most (`sign` 1), or lengthens most (-1).
  std::string phase_text(const Mitigation& option, double sign) const {
    const auto seconds = [&](Phase each) { return comparable_seconds(option.price, best_, option.price[each]); };
    const Phase phase = phase_with_most([&](Phase each) { return sign * (best_[each] - seconds(each)); });
    return fmt::format("{} {}", to_string(phase), time_text(seconds(phase), " instead of ", best_[phase]));
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
      say("First try {}{}. {}", name_of(*first), first->answers() ? "" : ", which shortens another phase",
          effect_text(*first));
    else
      say("No change that fits, and keeps what you fixed, raises throughput by {:g} %.", 100 * worthwhile);
    if (const auto* const blocked =
            best_that([](const Mitigation& m) { return m.is_ready() && m.answers() && m.gains(); });
        blocked && !blocked->obstacle.empty()) {
      const std::size_t fits = blocked->obstacle.find("does not fit");
      say(" Out of reach is {}. It would give {:+.1f} % tokens per second, but {}.", name_of(*blocked),
          100 * blocked->gain,
          fits == std::string::npos ? blocked->obstacle : blocked->obstacle.substr(0, fits) + "does not fit");
    }
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
      say("- Estimated only ({}): {}. {}\n", other->lacks, name_of(*other), effect_text(*other));
    if (const std::optional<Mitigation> machine = better_machine(subject_.problem, best_))
      say("- {} would give {:+.1f} % tokens per second.\n", capitalized(machine->change), 100 * machine->gain);
  }

  // A whole layout by its mesh: the table has the rest of it.
  static std::string name_of(const Mitigation& option) {
    const Layout& layout = option.price.layout;
    return option.change == layout.text() ? mesh_text(layout) + " (in the table below)" : option.change;
  }

  // What it does to the bottleneck, or else to the phase that it shortens most.
  std::string effect_text(const Mitigation& option) const {
    return fmt::format("That gives {:+.1f} % tokens per second: {} for as many tokens. Peak memory is then {}.",
                       100 * option.gain, option.answers() ? limit_text(option) : phase_text(option, 1),
                       bytes_text(option.price.memory_bytes));
  }

  void table() {
    if (options_.empty())
      return;
    say("## What could be changed\n\n");
    say("| change | {}, for as many tokens | tokens/s | most of it in | memory | |\n|---|---|---|---|---|---|\n",
        limit_.name());
    rows(true, most_answers);
    rows(false, most_others);
    say("\n");
  }

  void rows(bool answers, int most) {
    for (const Mitigation& option : options_)
      if (option.answers() == answers && most-- > 0)
        say("| {} | {} | {:+.1f} % | {} | {} | {} |\n", option.change, time_text(limit_seconds(option)),
            100 * option.gain, phase_text(option, option.gain >= 0 ? 1 : -1), bytes_text(option.price.memory_bytes),
            remark(option));
  }

  // What stands between a change and those who want it.
  static std::string remark(const Mitigation& option) {
    std::vector<std::string> remarks;
    if (!option.lacks.empty())
      remarks.push_back("estimated only: " + option.lacks);
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

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/memo_parts.hpp"

#include <algorithm>

#include "io/units.hpp"
#include "planning/runnable.hpp"
#include "planning/to_double.hpp"

namespace espalier {

std::string share_text(double part, double whole) { return fmt::format("{:.1f} %", 100 * part / whole); }

LayoutPrice MemoSubject::price_in(Precision precision) const {
  Layout other = layout();
  other.precision = precision;
  return price_layout(problem, other);
}

std::string MemoSubject::fit_text(const LayoutPrice& price) const {
  if (has_room(problem, price.memory_bytes))
    return {};
  const bool lacks_margin = price.memory_bytes <= room();
  return fmt::format(
      " (which does not fit: peak memory {}{}, {} free)", bytes_text(price.memory_bytes),
      lacks_margin ? fmt::format(" and a margin of {}", bytes_text(memory_margin(problem, price.memory_bytes))) : "",
      bytes_text(room()));
}

void MemoText::say_caveat(const std::vector<PlanProblem>& machines) {
  if (std::ranges::any_of(machines, [](const PlanProblem& each) { return !each.cluster.device.moves_messages; }))
    say("**{}.** All times below are predicted.\n\n", gpu_caveat);
}

void MemoText::say_model_and_batch(const PlanProblem& problem, const Layout& layout, const std::string& machine) {
  say("Model: {:.4g} billion parameters, {} layers, hidden size {}. {}"
      "Batch: {} of {} tokens, in {} of {} on each of {}.\n\n",
      to_double(num_parameters(problem.model)) / 1e9, problem.model.num_layers, problem.model.hidden_size, machine,
      counted(layout.global_batch, "sequence"), problem.sequence_length,
      counted(layout.num_microbatches(), "micro-batch"), layout.micro_batch, counted(layout.data, "replica"));
}

void MemoText::say_if_estimated_only(const PlanProblem& problem, const Layout& layout) {
  if (const std::string reason = why_not_runnable(problem, layout); !reason.empty())
    say("Estimated only, `train` cannot run it yet: {}.\n\n", reason);
}

std::string real_bytes_text(double bytes) { return bytes_text(static_cast<std::size_t>(bytes)); }

}  // namespace espalier

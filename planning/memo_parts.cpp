// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/memo_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

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
  return fmt::format(" (which does not fit: peak memory {}, {} free)", bytes_text(price.memory_bytes),
                     bytes_text(room()));
}

void MemoText::say_question(const PlanProblem& problem, const LayoutSpace& space) {
  say("# How to train {} on {} {}\n\n## Question\n\n", problem.model_name, space.num_devices,
      problem.cluster.device.name);
  say("How should {} train on {}? A step has {} of {} tokens.", problem.model_name,
      machine_text(problem.cluster, space.num_devices), counted(space.global_batch, "sequence"),
      problem.sequence_length);
}

void MemoText::say_memory_rows(const MemoryByCategory& memory, int stage, int num_stages) {
  say("| on stage {} of {}, which needs most | bytes |\n|---|---|\n", stage, num_stages);
  for (std::size_t c = 0; c < num_categories; ++c)
    if (memory.bytes[c] > 0)
      say("| {} | {} |\n", to_string(static_cast<Category>(c)), bytes_text(memory.bytes[c]));
}

void MemoText::say_how_memory_is_counted(const Cluster& cluster) {
  say("- Memory is counted from shapes. The runtime keeps {} of each device.\n",
      bytes_text(static_cast<std::size_t>(cluster.reserved_bytes)));
}

void MemoText::say_model_and_batch(const PlanProblem& problem, const Layout& layout) {
  say("The model has {:.4g} billion parameters, {} layers and hidden size {}. "
      "The batch is {} of {} tokens, in {} of {} on each of {}.\n\n",
      to_double(num_parameters(problem.model)) / 1e9, problem.model.num_layers, problem.model.hidden_size,
      counted(layout.global_batch, "sequence"), problem.sequence_length,
      counted(layout.num_microbatches(), "micro-batch"), layout.micro_batch, counted(layout.data, "replica"));
}

void MemoText::say_if_estimated_only(const PlanProblem& problem, const Layout& layout) {
  if (const std::string reason = why_not_runnable(problem, layout); !reason.empty())
    say("Estimated only, `train` cannot run it yet: {}.\n\n", reason);
}

void MemoText::say_what_was_not_run(const std::vector<PlanProblem>& machines) {
  if (std::ranges::any_of(machines, [](const PlanProblem& each) { return !each.cluster.device.moves_messages; }))
    say("- **{}.** All times are predicted.\n", gpu_caveat);
  for (const PlanProblem& machine : machines)
    if (const std::string text = unmeasured_text(machine.cluster.device); !text.empty())
      say("- {}\n", text);
}

std::string capitalized(std::string text) {
  if (!text.empty())
    text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

std::string mesh_text(const Layout& layout) {
  return fmt::format("tensor {} x {}data {} x pipeline {}", layout.tensor,
                     layout.context > 1 ? fmt::format("context {} x ", layout.context) : "", layout.data,
                     layout.pipeline);
}

std::string real_bytes_text(double bytes) { return bytes_text(static_cast<std::size_t>(bytes)); }

}  // namespace espalier

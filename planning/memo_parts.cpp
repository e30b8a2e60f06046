// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/memo_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/scalars.hpp"
#include "io/units.hpp"
#include "planning/runnable.hpp"

namespace espalier {

std::string share_text(double part, double whole) { return fmt::format("{:.1f} %", 100 * part / whole); }

std::string rounded_bytes_text(double bytes) { return bytes_text(static_cast<std::size_t>(bytes)); }

std::string mesh_text(const Layout& layout) {
  return fmt::format("tensor {} x {}data {} x pipeline {}", layout.tensor,
                     layout.context > 1 ? fmt::format("context {} x ", layout.context) : "", layout.data,
                     layout.pipeline);
}

std::string gradient_ranks_text(const Layout& layout) {
  if (layout.context == 1)
    return counted(layout.data, "replica");
  if (layout.data == 1)
    return counted(layout.context, "context rank");
  return fmt::format("{} ({} x context {})", counted(layout.gradient_ranks(), "rank"), counted(layout.data, "replica"),
                     layout.context);
}

std::string capitalized(std::string text) {
  if (!text.empty())
    text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

LayoutPrice MemoSubject::price_in(Precision precision) const {
  Layout other = layout();
  other.precision = precision;
  return price_layout(problem, other);
}

std::string MemoSubject::fit_text(const LayoutPrice& price) const {
  if (fits_memory(problem, price.memory_bytes))
    return {};
  return fmt::format(" ({} fit: peak memory {}, {} free)", price.memory_bytes > free_memory() ? "does not" : "may not",
                     bytes_text(price.memory_bytes), bytes_text(free_memory()));
}

void MemoText::say_memory_rows(const MemoryByCategory& memory, int stage, int num_stages) {
  say("| stage {} of {}, which needs most | memory |\n|---|---|\n", stage, num_stages);
  for (std::size_t c = 0; c < num_categories; ++c)
    if (memory.bytes[c] > 0)
      say("| {} | {} |\n", to_string(static_cast<Category>(c)), bytes_text(memory.bytes[c]));
}

std::string page_text(const MemoPage& page) {
  std::string text = "# How to train " + page.title + "\n\n";
  for (const auto& [heading, part] : {std::pair("Question", &page.question),
                                      {"Answer", &page.answer},
                                      {"Why", &page.reasons},
                                      {"What limits it", &page.limit},
                                      {"What to do first", &page.first},
                                      {"What would change the answer", &page.changes},
                                      {"How sure we are", &page.certainty}})
    if (!part->empty())
      text.append("## ").append(heading).append("\n\n").append(*part).append(part->ends_with('\n') ? "\n" : "\n\n");
  return text;
}

std::string question_text(const std::vector<PlanProblem>& machines, const LayoutSpace& space) {
  const PlanProblem& first = machines.front();
  MemoText memo;
  if (machines.size() == 1)
    memo.say("How should we train {} on {}?", first.model_name, machine_text(first.cluster, space.num_devices));
  else
    memo.say("On which of these machines should we train {}, and how?", first.model_name);
  memo.say(" A step has {} of {} tokens.", counted(space.global_batch, "sequence"), first.sequence_length);
  return memo.text;
}

std::string certainty_text(const std::vector<PlanProblem>& machines) {
  MemoText memo;
  if (std::ranges::any_of(machines, [](const PlanProblem& each) { return !each.cluster.device.moves_messages; }))
    memo.say("- **{}.** All times are predicted.\n", gpu_caveat);
  for (const PlanProblem& machine : machines)
    if (const std::string text = unfitted_text(machine.cluster.device); !text.empty())
      memo.say("- {}\n", text);
  for (const PlanProblem& machine : machines)
    memo.say("- Memory is computed from the shapes of arrays. {} of each {} are reserved for other uses.\n",
             bytes_text(static_cast<std::size_t>(machine.cluster.reserved_bytes)), machine.cluster.device.name);
  return memo.text;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/scalars.hpp"
#include "io/units.hpp"
#include "planning/memo_parts.hpp"

namespace espalier {

std::string memory_part(const MemoSubject& subject) {
  const PlanProblem& problem = subject.problem;
  const Layout& layout = subject.layout();
  const LayoutPrice& best = subject.best;
  MemoText memo;
  memo.say(
      "The model has {:.4g} billion parameters, {} layers and hidden size {}. "
      "The batch is {} of {} tokens, in {} of {} on each of {}.\n\n## How it fits in memory\n\n",
      to_double(num_parameters(problem.model)) / 1e9, problem.model.num_layers, problem.model.hidden_size,
      counted(layout.global_batch, "sequence"), problem.sequence_length,
      counted(layout.num_microbatches(), "micro-batch"), layout.micro_batch, counted(layout.data, "replica"));
  if (const int ranks = layout.shards() * layout.context; layout.zero_stage > 0 && ranks > 1)
    memo.say("ZeRO-{} shards {} over {} ranks.\n\n", layout.zero_stage,
             layout.zero_stage == 1   ? "the optimizer states"
             : layout.zero_stage == 2 ? "gradients and optimizer states"
                                      : "weights, gradients and optimizer states",
             ranks);
  const MemoryByCategory& stage = best.memory[static_cast<std::size_t>(best.peak_stage)];
  memo.say_memory_rows(stage, best.peak_stage, layout.pipeline);
  memo.say("| total | {}, {} of the free memory |\n\n", bytes_text(stage.total()),
           share_text(static_cast<double>(stage.total()), static_cast<double>(subject.free_memory())));
  if (const std::size_t bytes = attention_workspace_on_rank(problem, layout); bytes > 0)
    memo.say("{} of the workspace are for cuDNN's attention. run.attention = \"own\" does not need them.\n\n",
             bytes_text(bytes));
  if (!subject.result)
    return memo.text;
  memo.say("Simple ideas, and why they are not the answer:\n\n| idea | layout | why not |\n|---|---|---|\n");
  for (const auto& [name, rejection] : plain_rejections(problem, subject.space, &best))
    memo.say("| {} | {} | {} |\n", name, rejection.layout.text(), rejection.reason);
  memo.say("\n");
  return memo.text;
}

}  // namespace espalier

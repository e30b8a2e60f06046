// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "io/units.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/memo.hpp"
#include "planning/memo_parts.hpp"
#include "planning/no_layout.hpp"
#include "planning/to_double.hpp"

namespace espalier {
namespace {

class NoLayoutMemo : MemoText {
 public:
  NoLayoutMemo(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result,
               const ErrorReport& report)
      : problem_(problem), space_(space), result_(result), report_(report) {}

  std::string text() {
    say_question(problem_, space_);
    text_ += "\n\n";
    if (result_.num_too_large > 0)
      does_not_fit();
    else
      is_impossible();
    say("## How sure we are\n\n");
    say_what_was_not_run({problem_});
    say_how_memory_is_counted(problem_.cluster);
    return text_;
  }

 private:
  void does_not_fit() {
    const std::size_t room = room_bytes(problem_);
    const double states = to_double(num_parameters(problem_.model)) *
                          to_double(state_bytes(training_types(space_.precisions.front())).total());
    const double all = static_cast<double>(room) * space_.num_devices;
    const Index devices = fewest_devices(problem_, space_);
    const std::string enough =
        devices > 0 ? machine_text(with_devices(problem_.cluster, static_cast<int>(devices)), static_cast<int>(devices))
                    : "";
    say("## Answer\n\nIt does not fit. {}\n\n",
        devices > 0 ? fmt::format("The fewest devices on which a layout fits: {}.", enough)
                    : "No number of these devices was found on which it does.");
    say("## Why\n\n1. Weights, gradients and optimizer states take {}, {:.2f} times what all devices have free "
        "together.\n",
        real_bytes_text(states), states / all);
    say("2. The smallest of {} layouts needs {} of a device, which has {}.\n\n",
        result_.num_considered - result_.num_impossible, bytes_text(result_.smallest_bytes), room_text(problem_));
    const Layout& smallest = result_.rejections.front().layout;
    const std::vector<MemoryByCategory> memory = memory_of_stages(problem_, smallest);
    const int stage = peak_stage(memory);
    const MemoryByCategory& most = memory[static_cast<std::size_t>(stage)];
    std::size_t largest = 0;
    for (std::size_t c = 1; c < num_categories; ++c)
      if (most.bytes[c] > most.bytes[largest])
        largest = c;
    say("## What limits it\n\nMemory: most of that layout is {}, {}.\n\n", to_string(static_cast<Category>(largest)),
        bytes_text(most.bytes[largest]));
    say("## What to do first\n\n{}\n\n", devices > 0 ? fmt::format("Ask again with --devices {}.", devices)
                                                     : "Choose devices with more memory, or a smaller model.");
    say("## What would change the answer\n\n");
    if (devices > 0)
      say("- More devices: {}.\n", enough);
    say("- Devices with {} free instead of {}.\n", bytes_text(result_.smallest_bytes), bytes_text(room));
    say("- A shorter sequence, or a smaller model.\n\n");
    say("## How it fits in memory\n\nIt does not, with {} either.\n\n", mesh_text(smallest));
    say_memory_rows(most, stage, smallest.pipeline);
    say("| total | {} |\n| a device has | {} |\n\n", bytes_text(most.total()), room_text(problem_));
  }

  void is_impossible() {
    say("## Answer\n\nNo layout of this model is possible on this machine.\n\n## Why\n\n| | |\n|---|---|\n");
    say("| got | {} |\n| wanted | {} |\n\n", report_.got, report_.wanted);
    say("## What would change the answer\n\n| |\n|---|\n| {} |\n\n", report_.todo);
    say("## How it fits in memory\n\nThere is nothing to lay out.\n\n");
  }

  const PlanProblem& problem_;
  const LayoutSpace& space_;
  const SearchResult& result_;
  const ErrorReport& report_;
};

}  // namespace

std::string no_layout_memo(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result,
                           const ErrorReport& report) {
  return NoLayoutMemo(problem, space, result, report).text();
}

}  // namespace espalier

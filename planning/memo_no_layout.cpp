// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "io/units.hpp"
#include "planning/memo.hpp"
#include "planning/memo_parts.hpp"
#include "planning/no_layout.hpp"

namespace espalier {
namespace {

class NoLayoutMemo : MemoText {
 public:
  NoLayoutMemo(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result,
               const ErrorReport& report)
      : problem_(problem), space_(space), result_(result), report_(report) {}

  std::string write() {
    const std::vector<PlanProblem> machines{problem_};
    MemoPage page{.title = part("{} on {} {}", problem_.model_name, space_.num_devices, problem_.cluster.device.name),
                  .question = question_text(machines, space_),
                  .answer = "No layout of this model is possible on this machine.",
                  .reasons = part("| | |\n|---|---|\n| got | {} |\n| wanted | {} |\n", report_.got, report_.wanted),
                  .limit = {},
                  .first = {},
                  .changes = part("| |\n|---|\n| {} |\n", report_.todo),
                  .certainty = certainty_text(machines)};
    std::string memory = "No layout is possible, so there is no estimate.\n";
    if (result_.num_too_large > 0)
      memory = fill_too_large(page);
    return page_text(page) + "## How it fits in memory\n\n" + memory;
  }

 private:
  template <class... Arguments>
  std::string part(fmt::format_string<impl::InMarkdown<Arguments>...> format, const Arguments&... arguments) {
    text.clear();
    say(format, arguments...);
    return text;
  }

  // What the smallest layout needs, and where it would fit; returns its memory.
  std::string fill_too_large(MemoPage& page) {
    const std::size_t free = free_bytes(problem_);
    const double states = all_state_bytes(problem_.model, space_.precisions.front());
    const Index devices = fewest_devices(problem_, space_);
    const std::string enough =
        devices > 0 ? machine_text(with_devices(problem_.cluster, static_cast<int>(devices)), static_cast<int>(devices))
                    : "";
    const Layout& smallest = result_.rejections.front().layout;
    const std::vector<MemoryByCategory> memory = memory_of_stages(problem_, smallest);
    const int stage = peak_stage(memory);
    const MemoryByCategory& most = memory[static_cast<std::size_t>(stage)];
    const auto largest = static_cast<std::size_t>(std::ranges::max_element(most.bytes) - most.bytes.begin());

    page.answer = part("The model does not fit. {}",
                       devices > 0 ? fmt::format("The smallest such machine that fits has {}.", enough)
                                   : "No larger number of these devices was found on which it fits.");
    page.reasons = part(
        "- Weights, gradients and optimizer states need {}. That is {:.2f} times the free memory of all devices.\n"
        "- Even the smallest of {} layouts needs {} per device. A device has {}.\n",
        rounded_bytes_text(states), states / (static_cast<double>(free) * space_.num_devices),
        result_.num_considered - result_.num_impossible, need_text(problem_, result_.smallest_bytes),
        free_text(problem_));
    page.limit = part("Memory is the limit. The largest part of that layout is {}, {}.",
                      to_string(static_cast<Category>(largest)), bytes_text(most.bytes[largest]));
    page.first = devices > 0 ? part("Plan again with --devices {}.", devices)
                             : "Choose devices with more memory, or a smaller model.";
    page.changes = (devices > 0 ? part("- More devices: {}.\n", enough) : "") +
                   part("- Devices with {} of free memory instead of {}.\n- A shorter sequence, or a smaller model.\n",
                        bytes_text(needed_bytes(problem_, result_.smallest_bytes)), bytes_text(free));
    text.clear();
    say("Even the smallest layout, {}, does not fit.\n\n", mesh_text(smallest));
    say_memory_rows(most, stage, smallest.pipeline);
    say("| total | {} |\n| a device has | {} |\n", bytes_text(most.total()), free_text(problem_));
    return text;
  }

  const PlanProblem& problem_;
  const LayoutSpace& space_;
  const SearchResult& result_;
  const ErrorReport& report_;
};

}  // namespace

std::string no_layout_memo(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result,
                           const ErrorReport& report) {
  return NoLayoutMemo(problem, space, result, report).write();
}

}  // namespace espalier

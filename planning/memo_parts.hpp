// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "io/markup.hpp"
#include "planning/layout_limits.hpp"
#include "planning/search.hpp"

namespace espalier {

/// A machine that a memo is about; `best` is what it recommends there.
struct MemoSubject {
  const PlanProblem& problem;
  const LayoutSpace& space;
  const LayoutPrice& best;
  std::string name = {};                 ///< of the machine, where there are several
  const SearchResult* result = nullptr;  ///< of the search that found `best`, if one machine was asked for
  const std::vector<PlanProblem>* machines = nullptr;  ///< that one layout is for, where it is for several
  const LayoutPrice* own_best = nullptr;               ///< of the machine alone, where one layout is for several

  const Layout& layout() const { return best.layout; }
  std::size_t free_memory() const { return free_bytes(problem); }
  /// The recommended layout in another precision.
  LayoutPrice price_in(Precision precision) const;
  /// What a sentence about a layout that does not fit must not leave out; empty where it fits.
  std::string fit_text(const LayoutPrice& price) const;
};

namespace impl {

/// What a sentence shows of an argument: texts escaped, whoever wrote them; all else as it is.
template <class Argument>
decltype(auto) in_markdown(const Argument& argument) {
  if constexpr (std::is_convertible_v<const Argument&, std::string_view>)
    return markdown_escaped(argument);
  else {
    static_assert(std::is_arithmetic_v<Argument>, "a text that would not be escaped: make it a string");
    return Argument(argument);
  }
}

template <class Argument>
using InMarkdown = decltype(in_markdown(std::declval<const Argument&>()));

}  // namespace impl

/// A text that grows by sentences. The formats are Markdown; what stands in them is text.
struct MemoText {
  template <class... Arguments>
  void say(fmt::format_string<impl::InMarkdown<Arguments>...> format, const Arguments&... arguments) {
    text += fmt::format(format, impl::in_markdown(arguments)...);
  }

  /// The rows of a table: what a stage has in each category.
  void say_memory_rows(const MemoryByCategory& memory, int stage, int num_stages);

  std::string text;
};

/// The page that a manager reads, a text for each of its headings; without those that are empty.
struct MemoPage {
  std::string title;  ///< behind "How to train"
  std::string question;
  std::string answer;
  std::string reasons;
  std::string limit;
  std::string first;    ///< what to do first
  std::string changes;  ///< what would change the answer
  std::string certainty;
};
std::string page_text(const MemoPage& page);

/// "How should gpt-22b train on 8 devices: ...? A step has 512 sequences of 2048 tokens."
std::string question_text(const std::vector<PlanProblem>& machines, const LayoutSpace& space);
/// What has not been run or compared on these machines, and how memory is counted, a point each.
std::string certainty_text(const std::vector<PlanProblem>& machines);

/// "12.3 %".
std::string share_text(double part, double whole);
/// "1.50 GiB", of what was computed.
std::string rounded_bytes_text(double bytes);
/// "tensor 2 x data 1 x pipeline 4".
std::string mesh_text(const Layout& layout);
/// Who sums gradients: "16 replicas", "8 context ranks", "8 ranks (2 replicas x context 4)".
/// @pre gradient_ranks() > 1
std::string gradient_ranks_text(const Layout& layout);
/// With a capital first letter.
std::string capitalized(std::string text);

/// Parts of the details, from heading to the empty line behind: sizes of model and batch, and how it fits in memory;
/// what micro-batches do against the naive split.
std::string memory_part(const MemoSubject& subject);
std::string microbatches_part(const MemoSubject& subject);
/// Where gradients are summed, and what that costs.
std::string gradients_part(const MemoSubject& subject);
/// What the precision does to time and memory, what stays above it and why, and the limits of its numbers.
std::string precision_part(const MemoSubject& subject);

/// What limits a step, and what shortens it.
struct BottleneckTexts {
  std::string limit;    ///< sentences: the bottleneck
  std::string first;    ///< sentences: the first change that shortens it
  std::string changes;  ///< a point each: what would help and is not to be had as things are
  std::string table;    ///< of all changes, with its heading
};
BottleneckTexts bottleneck_texts(const MemoSubject& subject);

}  // namespace espalier

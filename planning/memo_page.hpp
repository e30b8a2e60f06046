// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "planning/goal.hpp"
#include "planning/memo_parts.hpp"
#include "planning/search.hpp"

namespace espalier {

/// What the first page of a memo is about.
struct MemoPageSubject {
  const PlanProblem& problem;
  const LayoutSpace& space;
  const SearchResult& result;
  const Goal& goal;
  const BottleneckTexts& bottleneck;
};

/// The page that a manager reads: question, answer, two reasons, what limits it, what to do first, what would change
/// the answer, how sure the answer is. No sentence has more than 25 words.
std::string memo_page(const MemoPageSubject& subject);

}  // namespace espalier

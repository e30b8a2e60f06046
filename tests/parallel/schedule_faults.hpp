// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/schedule/pipeline_schedule.hpp"

// To inject a fault into a list, and to find the sentence that names it.

namespace espalier {

using Lists = std::vector<PipelineSchedule>;

inline std::string joined(const std::vector<std::string>& problems) {
  std::string all;
  for (const std::string& problem : problems)
    all += problem + "\n";
  return all;
}

/// That the lists are refused with this sentence among the problems.
inline void expect_problem(const std::vector<std::string>& problems, const std::string& sentence) {
  EXPECT_TRUE(std::find(problems.begin(), problems.end(), sentence) != problems.end())
      << "wanted: " << sentence << "\ngot:\n"
      << joined(problems);
}

/// The first operation with this text.
inline PipelineSchedule::iterator find(PipelineSchedule& list, const std::string& operation,
                                       bool several_chunks = false) {
  const auto found = std::find_if(list.begin(), list.end(),
                                  [&](const Operation& each) { return text(each, several_chunks) == operation; });
  EXPECT_NE(found, list.end()) << operation;
  return found;
}

inline void drop(PipelineSchedule& list, const std::string& operation) { list.erase(find(list, operation)); }

inline void exchange(PipelineSchedule& list, const std::string& a, const std::string& b) {
  std::iter_swap(find(list, a), find(list, b));
}

}  // namespace espalier

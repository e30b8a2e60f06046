// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "diagnosis/diagnose.hpp"

// What a test asks of a diagnosis.
namespace espalier::test {

/// What is named first; of the cause "died" where nothing is.
inline const Finding& first(const Diagnosis& diagnosis) {
  static const Finding none{.cause = Cause::died, .title = "none"};
  return diagnosis.findings.empty() ? none : diagnosis.findings.front();
}

/// nullptr: no such finding.
inline const Finding* find(const Diagnosis& diagnosis, Cause cause) {
  for (const Finding& finding : diagnosis.findings)
    if (finding.cause == cause)
      return &finding;
  return nullptr;
}

inline void expect_within_20_percent(double got, double wanted) { EXPECT_NEAR(got, wanted, 0.2 * std::abs(wanted)); }

}  // namespace espalier::test

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "diagnosis/compare_runs.hpp"
#include "diagnosis/finding.hpp"
#include "diagnosis/recorded_run.hpp"
#include "diagnosis/step_profile.hpp"

namespace espalier {

/// What is to be said about a run.
struct Diagnosis {
  /// By concern: why it ended, where its time went, what endangers the training. Of time, faults of 5 % of a step and
  /// more come before what the layout costs as it was chosen; then by seconds. Of stability by risk.
  std::vector<Finding> findings;
  std::optional<StepProfile> profile = {};  ///< none where no step was finished
  std::optional<Comparison> comparison = {};
};

/// Looks through a run, beside another if there is one. Pure.
Diagnosis diagnose(const RecordedRun& run, const RecordedRun* against = nullptr);

/// The first finding that has a verdict; nullptr where nothing has spoilt the run.
const Finding* gravest(const Diagnosis& diagnosis);

/// "where the time goes": over the findings of this concern.
const char* heading(Concern concern);

/// For programs; docs/diagnose.md lists the fields.
nlohmann::ordered_json diagnosis_data(const RecordedRun& run, const Diagnosis& diagnosis);

/// For people, within 120 columns; for programs.
std::string diagnosis_text(const RecordedRun& run, const Diagnosis& diagnosis);
std::string diagnosis_json(const RecordedRun& run, const Diagnosis& diagnosis);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "diagnosis/finding.hpp"
#include "diagnosis/recorded_config.hpp"
#include "diagnosis/step_profile.hpp"
#include "models/layout.hpp"

namespace espalier {

/// Appends a finding for each rank that computes longer than the others that do the same work.
void find_slow_ranks(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings);

/// The same steps with every slow rank as fast as the others that do the same work: those of its stage, or where it has
/// that alone all others, each by the work of its stage.
StepProfile without_slow_ranks(const StepProfile& profile);

/// What takes time though nothing planned it: a slow rank, a slow link between stages, stalls of data and saves, all
/// ranks slower than predicted.
std::vector<Finding> find_faults(const RecordedRun& run, const StepProfile& profile);

/// Whether messages between two stages take longer than those over the other links of the same kind: inside a node, or
/// between nodes.
bool has_slow_stage_link(const RecordedRun& run, const StepProfile& profile);

/// Seconds that the ranks of a group along `axis` spend on an exchange, and not on waiting: the least of `phase` of
/// any, since who came last waited for nobody.
double min_of_group(const RecordedRun& run, const StepProfile& profile, int rank, Axis axis, Phase phase);

/// Of them, those that a link costs which the launch found slow; `axis` joins replicas or tensor ranks.
double seconds_of_slow_links(const RecordedRun& run, const StepProfile& profile, int rank, Axis axis);

/// What the layout costs as it was chosen: uneven stages, the bubble, what of gradient reduction and tensor
/// collectives is exposed, the optimizer, the rest. Slow ranks are taken out of the measured times before.
std::vector<Finding> find_limits(const RecordedRun& run, const StepProfile& profile);

/// The longest exchange of any group along `axis`, without what slow links cost: they are findings of their own.
double exposed_seconds(const RecordedRun& run, const StepProfile& profile, Axis axis, Phase phase);

/// "predicted: 0.2 s", of the stage that most of it is predicted for; empty without a prediction.
std::vector<std::string> prediction_evidence(const RecordedRun& run, Phase phase);

/// What the exchanges of tensor ranks cost: across nodes, where they may be moved inside; else of a smaller degree,
/// where the planner says that it fits. Adds a finding where there are such ranks.
void find_tensor(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings);

/// What the planner says of the memory of another layout of a run.
struct LayoutFit {
  enum class Answer { fits, too_large, unknown };
  Answer answer = Answer::unknown;
  std::string text;  ///< "stage 0 needs 1.20 GiB, a device has ...", why_too_large(), or why it is not known
};

/// A device has what run.device_memory gives, else what the device of run.cluster has.
LayoutFit fit_of(const RunConfig& config, const Layout& layout);

/// Choices of whoever started the run that make all of its ranks slow, whatever the layout: more threads than cores,
/// numbers wider than training needs. None where operations are imitated.
void find_settings(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings);

}  // namespace espalier

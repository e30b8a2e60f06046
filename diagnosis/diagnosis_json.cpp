// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "diagnosis/diagnose.hpp"
#include "io/json_by_name.hpp"
#include "io/pack/json_text.hpp"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

Json finding_json(const Finding& finding) {
  Json changes = Json::array();
  for (const Change& change : finding.changes) {
    Json each{{"setting", change.setting}};
    if (!change.estimated_by.empty())
      each.update({{"gain_seconds", change.gain_seconds}, {"estimated_by", change.estimated_by}});
    changes.push_back(each);
  }
  return {{"cause", to_string(finding.cause)},
          {"concern", to_string(concern_of(finding.cause))},
          {"heading", heading(concern_of(finding.cause))},
          {"title", finding.title},
          {"seconds", finding.seconds},
          {"share", finding.share},
          {"size", finding.size},
          {"unit", finding.unit},
          {"is_fault", finding.is_fault},
          {"risk", finding.risk},
          {"verdict", finding.verdict},
          {"ranks", finding.ranks},
          {"evidence", finding.evidence},
          {"changes", changes}};
}

Json known(double value) { return value > 0 ? Json(value) : Json(); }

Json profile_json(const StepProfile& profile) {
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < profile.ranks.size(); ++rank) {
    const RankProfile& each = profile.ranks[rank];
    ranks.push_back(
        {{"rank", rank},
         {"stage", each.coordinates[Axis::pp]},
         {"replica", each.coordinates[Axis::dp]},
         {"tensor", each.coordinates[Axis::tp]},
         {"seconds", json_by_name<Phase>(each.seconds.seconds)},
         {"transit_seconds", {{"activations", each.activation_transit}, {"gradients", each.gradient_transit}}}});
  }
  return {{"first_step", profile.first_step},
          {"last_step", profile.last_step},
          {"step_seconds", profile.step_seconds},
          {"checkpoint_seconds", profile.checkpoint_seconds},
          {"tokens_per_second", known(profile.tokens_per_second)},
          {"gemm_fraction", known(profile.gemm_fraction)},
          {"mfu", known(profile.mfu)},
          {"ranks", ranks}};
}

Json comparison_json(const Comparison& comparison) {
  Json differences = Json::array();
  for (const Difference& each : comparison.differences)
    differences.push_back({{"what", each.what}, {"before", each.before}, {"after", each.after}});
  return {{"against", comparison.against.string()},
          {"tokens_per_second_of_a_rank", {{"before", comparison.before}, {"after", comparison.after}}},
          {"explanation", comparison.explanation},
          {"explained_by", comparison.explained_by ? Json(to_string(*comparison.explained_by)) : Json()},
          {"seconds_for_1000_tokens",
           {{"before", json_by_name<Phase>(comparison.phases_before.seconds)},
            {"after", json_by_name<Phase>(comparison.phases_after.seconds)}}},
          {"differences", differences}};
}

}  // namespace

nlohmann::ordered_json diagnosis_data(const RecordedRun& run, const Diagnosis& diagnosis) {
  Json json{{"run", run.directory.string()},
            {"state", to_string(run.record.state)},
            {"alive", run.life == Life::silent ? Json() : Json(run.life == Life::alive)},
            {"layout", run.config.layout.mesh().text()},
            {"gaps", run.gaps},
            {"findings", Json::array()}};
  for (const Finding& finding : diagnosis.findings)
    json["findings"].push_back(finding_json(finding));
  if (diagnosis.profile)
    json["step"] = profile_json(*diagnosis.profile);
  if (run.predicted_time) {
    json["predicted"] = {{"step_seconds", run.predicted_time->step_seconds}, {"source", run.predicted_time->source}};
    for (const PhaseSeconds& stage : run.predicted_time->stages)
      json["predicted"]["stages"].push_back(json_by_name<Phase>(stage.seconds));
  }
  if (diagnosis.comparison)
    json["comparison"] = comparison_json(*diagnosis.comparison);
  return json;
}

std::string diagnosis_json(const RecordedRun& run, const Diagnosis& diagnosis) {
  return json_text(diagnosis_data(run, diagnosis), 1) + "\n";
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/incidents.hpp"

#include <fmt/format.h>

#include <array>

#include "io/input_limits.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/pack/json_text.hpp"
#include "io/records/run_paths.hpp"
#include "models/largest_model.hpp"
#include "parallel/collectives/agreement.hpp"
#include "parallel/collectives/collectives.hpp"
#include "training/checkpoint/training_state.hpp"

namespace espalier {
namespace {

constexpr const char* file_name = "incident.json";

// Whether rank 0 finds that the folder is still to be written; on all ranks.
bool is_wanted(const Path& folder, Index keep, const Communicator& world) {
  std::int32_t wanted = 0;
  attempt_together(world, ExitCode::write, [&] {
    if (world.rank() != 0 || keep == 0)
      return;
    make_directories(folder.parent_path());
    Index others = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.parent_path()))
      others += entry.path() == folder ? 0 : 1;
    wanted = others < keep && !std::filesystem::exists(folder / file_name) ? 1 : 0;
  });
  broadcast(world, std::span<std::int32_t>(&wanted, 1), 0);
  return wanted != 0;
}

constexpr const char* incident_format = "espalier-incident";

nlohmann::ordered_json to_json(const Incident& incident) {
  nlohmann::ordered_json json = {{"format", incident_format},
                                 {"format_version", 1},
                                 {"step", incident.step},
                                 {"anomaly", to_string(incident.anomaly)},
                                 {"policy", to_string(incident.policy)},
                                 {"loss", incident.loss},
                                 {"gradient_norm", incident.gradient_norm}};
  if (incident.scores) {
    json["loss_score"] = incident.scores->loss;
    json["gradient_norm_score"] = incident.scores->gradient_norm;
  }
  json["threshold"] = incident.threshold;
  json["first_sample"] = incident.samples.begin;
  json["last_sample"] = incident.samples.end - 1;
  json["loss_scale"] = incident.loss_scale;
  json["layout"] = incident.layout;
  name_non_finite(json);
  return json;
}

Incident from_json(const nlohmann::json& json) {
  Incident incident;
  if (field<std::string>(json, "format") != incident_format)
    refuse_field("format", json.at("format"), incident_format);
  field<Index>(json, "format_version", IntegerRange{1, 1});
  incident.step = field<Index>(json, "step", IntegerRange{1, steps_range.max});
  incident.anomaly = choice_field(json, "anomaly", std::array{Anomaly::spike, Anomaly::non_finite});
  incident.policy = choice_field(json, "policy", all_spike_policies);
  incident.loss = number_field(json, "loss");
  incident.gradient_norm = number_field(json, "gradient_norm");
  if (json.contains("loss_score"))
    incident.scores = {number_field(json, "loss_score"), number_field(json, "gradient_norm_score")};
  incident.threshold = field<double>(json, "threshold");
  incident.samples.begin = field<Index>(json, "first_sample", steps_range);
  const IntegerRange batch{incident.samples.begin, incident.samples.begin + LargestModel::batch};
  incident.samples.end = field<Index>(json, "last_sample", batch) + 1;
  incident.loss_scale = field<double>(json, "loss_scale", FloatRange{.min = 0});
  incident.layout = field<std::string>(json, "layout");
  return incident;
}

std::string consequence(const Incident& incident) {
  if (incident.policy == SpikePolicy::skip)
    return "no update";
  if (incident.policy == SpikePolicy::rollback)
    return "no update, back to the last checkpoint";
  return incident.anomaly == Anomaly::spike ? "the run continues" : "the run ends";
}

}  // namespace

Incident incident_of(const StepReport& report, const RunConfig& config, const std::string& layout) {
  return {.step = report.step,
          .anomaly = report.judgement.anomaly,
          .policy = config.stability.on_spike,
          .loss = report.loss,
          .gradient_norm = report.gradient_norm,
          .scores = report.judgement.scores,
          .threshold = config.stability.spike_threshold,
          .samples = report.samples,
          .loss_scale = report.loss_scale,
          .layout = layout};
}

std::string to_text(const Incident& incident) {
  const auto score = [&](double SpikeScores::*which) {
    return incident.scores ? fmt::format(" (score {:.1f})", (*incident.scores).*which) : std::string();
  };
  return fmt::format("step {} {}: loss {:.4f}{}, gradient norm {:.3g}{}, global samples {} to {}: {}", incident.step,
                     incident.anomaly == Anomaly::spike ? "is a spike" : "is not finite", incident.loss,
                     score(&SpikeScores::loss), incident.gradient_norm, score(&SpikeScores::gradient_norm),
                     incident.samples.begin, incident.samples.end - 1, consequence(incident));
}

Path incident_path(const Path& run_directory, const Incident& incident) {
  return run_directory / RunFolder::incidents /
         fmt::format("step-{:08}-sample-{:08}", incident.step, incident.samples.begin);
}

Path store_incident(const Incident& incident, const Trainer& trainer, const RunConfig& config,
                    const ProcessMesh& mesh) {
  const Path run = config.run.directory;
  Path folder = incident_path(run, incident);
  if (!is_wanted(folder, config.stability.keep_incidents, mesh.world()))
    return {};
  save_weights(folder / RunFolder::checkpoints, trainer, config, mesh, config.run_name(), ownership_of(trainer));
  attempt_together(mesh.world(), ExitCode::write, [&] {
    if (mesh.world().rank() == 0)
      write_file_atomically(folder / file_name, json_text(to_json(incident), 1) + "\n");
  });
  return folder;
}

Incident read_incident(const Path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path / file_name, ignored))
    throw Error(ExitCode::usage, {.what = "this is not an incident",
                                  .where = path.string(),
                                  .got = fmt::format("a path without {}", file_name),
                                  .wanted = "a folder RUN/incidents/step-XXXXXXXX-sample-XXXXXXXX",
                                  .todo = "look into the directory incidents/ of the run"});
  try {
    return from_json(parse_json(read_file(path / file_name, ExitCode::data, LargestFile::record)));
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw Error(ExitCode::data, {.what = "an incident's description is damaged",
                                 .where = (path / file_name).string(),
                                 .got = error.what(),
                                 .wanted = "what `espalier train` has written",
                                 .todo = "replay another incident of the run"});
  }
}

void IncidentNotes::before_anomaly(const StepReport& report) {
  const Incident incident = incident_of(report, run_.config, run_.layout.short_text());
  run_.note(to_text(incident));
  if (run_.config.stability.keep_incidents > 0)
    saver_.drain();       // one save at a time
  saver_.take_seconds();  // the step counts them itself
  try {
    if (const Path folder = store_incident(incident, trainer_, run_.config, run_.mesh); !folder.empty())
      run_.note(fmt::format("kept as {}: espalier train --replay {}", folder.string(), folder.string()));
  } catch (const Error& error) {
    if (error.code() != ExitCode::write)
      throw;
    run_.note(fmt::format("the incident could not be kept: {}", error.what()));
  }
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/step_records.hpp"

#include <fmt/format.h>

#include <string>

#include "core/memory_ledger.hpp"
#include "io/json_by_name.hpp"

namespace espalier {
namespace {

using nlohmann::ordered_json;

constexpr const char* validation_loss = "validation_loss";

// All fields that a line may have.
ordered_json line_with_all_fields() {
  StepReport report;
  report.judgement.scores.emplace();
  report.judgement.anomaly = Anomaly::spike;
  TrainProgress progress;
  progress.mfu = 0;
  ordered_json line = metrics_line(report, progress);
  line[validation_loss] = 0;
  return line;
}

// TensorBoard groups by what stands before the slash.
std::string tag_of(const std::string& field) {
  return field.find('/') == std::string::npos ? "training/" + field : field;
}

}  // namespace

nlohmann::ordered_json metrics_line(const StepReport& report, const TrainProgress& progress) {
  nlohmann::ordered_json line = {{"step", report.step},
                                 {"loss", report.loss},
                                 {"learning_rate", report.learning_rate},
                                 {"gradient_norm", report.gradient_norm},
                                 {"loss_scale", report.loss_scale},
                                 {"skipped_steps", report.skipped_steps},
                                 {"tokens", report.tokens},
                                 {"valid_tokens", report.counts.valid_tokens},
                                 {"attention_share", report.counts.attention_share},
                                 {"tokens_per_second", progress.tokens_per_second},
                                 {"step_seconds", report.step_seconds},
                                 {"seconds", json_by_name<Phase>(report.seconds.seconds)},
                                 {"bytes_sent", json_by_axis(report.bytes_sent)},
                                 {"memory_peak_bytes", json_by_name<Category>(MemoryLedger::instance().peak().bytes)},
                                 {"gemm_fraction", progress.gemm_fraction},
                                 {"passed_over_samples", report.passed_over}};
  if (progress.mfu)
    line["mfu"] = *progress.mfu;
  if (const auto& scores = report.judgement.scores) {
    line["loss_score"] = scores->loss;
    line["gradient_norm_score"] = scores->gradient_norm;
  }
  if (report.judgement.anomaly != Anomaly::none)
    line["anomaly"] = to_string(report.judgement.anomaly);
  return line;
}

StepRecords::StepRecords(const RunConfig& config, const Path& run, Index last_step)
    : metrics_(run / "metrics.jsonl", last_step) {
  if (config.run.metrics_csv)
    csv_.emplace(run / "metrics.csv", run / "metrics.jsonl", line_with_all_fields());
  if (config.run.tensorboard)
    events_.emplace(run / "tensorboard", last_step + 1);
  if (config.run.sample_interval > 0)
    samples_.emplace(run / "samples.jsonl", last_step);
}

void StepRecords::add_step(const StepReport& report, const TrainProgress& progress, bool validation_is_due) {
  const ordered_json line = metrics_line(report, progress);
  metrics_.append(line, validation_is_due ? validation_padding : 0);
  if (csv_)
    csv_->append(line);
  if (!events_)
    return;
  std::vector<std::pair<std::string, double>> values;
  const ordered_json fields = flat_fields(line, "/");
  for (const auto& [field, value] : fields.items())
    if (value.is_number() && field != "step")
      values.emplace_back(tag_of(field), value.get<double>());
  events_->scalars(report.step, values);
}

void StepRecords::add_validation(Index step, double loss) {
  metrics_.add_to_last(step, validation_loss, loss);
  if (csv_)
    csv_->add_to_last(step, validation_loss, loss);
  if (events_)
    events_->scalars(step, {{tag_of(validation_loss), loss}});
}

void StepRecords::add_samples(Index step, const std::vector<TextSample>& samples) {
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const TextSample& sample = samples[i];
    samples_->append({{"step", step}, {"prompt", sample.prompt}, {"text", sample.text}});
    if (events_)
      events_->text(step, fmt::format("samples/{}", i + 1), sample.prompt + sample.text);
  }
}

}  // namespace espalier

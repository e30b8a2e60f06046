// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/step_records.hpp"

#include <fmt/format.h>

#include <string>

#include "core/memory_ledger.hpp"
#include "io/records/run_paths.hpp"

namespace espalier {
namespace {

using nlohmann::ordered_json;

// All fields that a line may have.
ordered_json line_with_all_fields() {
  return to_json(StepRecord{
      .mfu = 0, .loss_score = 0, .gradient_norm_score = 0, .anomaly = to_string(Anomaly::spike), .validation_loss = 0});
}

// TensorBoard groups by what stands before the slash.
std::string tag_of(const std::string& field) {
  return field.find('/') == std::string::npos ? "training/" + field : field;
}

}  // namespace

StepTimes step_times(const StepReport& report) {
  return {.step = report.step,
          .step_seconds = report.step_seconds,
          .seconds = report.seconds,
          .bytes_sent = report.bytes_sent};
}

StepRecord step_record(const StepReport& report, const TrainProgress& progress) {
  StepRecord record{.loss = report.loss,
                    .learning_rate = report.learning_rate,
                    .gradient_norm = report.gradient_norm,
                    .loss_scale = report.loss_scale,
                    .skipped_steps = report.skipped_steps,
                    .tokens = report.tokens,
                    .valid_tokens = report.counts.valid_tokens,
                    .attention_share = report.counts.attention_share,
                    .tokens_per_second = progress.tokens_per_second,
                    .times = step_times(report),
                    .memory_peak = MemoryLedger::instance().peak(),
                    .gemm_fraction = progress.gemm_fraction,
                    .passed_over_samples = report.passed_over,
                    .mfu = progress.mfu};
  if (const auto& scores = report.judgement.scores) {
    record.loss_score = scores->loss;
    record.gradient_norm_score = scores->gradient_norm;
  }
  if (report.judgement.anomaly != Anomaly::none)
    record.anomaly = to_string(report.judgement.anomaly);
  return record;
}

StepRecords::StepRecords(const RunConfig& config, const Path& run, Index last_step)
    : metrics_(run / RunFile::metrics, last_step) {
  if (config.run.metrics_csv)
    csv_.emplace(run / RunFile::metrics_csv, run / RunFile::metrics, line_with_all_fields());
  if (config.run.tensorboard)
    events_.emplace(run / RunFolder::tensorboard, last_step + 1);
  if (config.run.sample_interval > 0)
    samples_.emplace(run / RunFile::samples, last_step);
}

void StepRecords::add_step(const StepReport& report, const TrainProgress& progress, bool validation_is_due) {
  const ordered_json line = to_json(step_record(report, progress));
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
  metrics_.add_to_last(step, validation_loss_key, loss);
  if (csv_)
    csv_->add_to_last(step, validation_loss_key, loss);
  if (events_)
    events_->scalars(step, {{tag_of(validation_loss_key), loss}});
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

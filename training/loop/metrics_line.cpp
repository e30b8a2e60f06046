// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/metrics_line.hpp"

#include "core/memory_ledger.hpp"
#include "io/json_by_name.hpp"

namespace espalier {

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

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "app/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "app/print.hpp"
#include "core/median.hpp"
#include "parallel/launch/runtime.hpp"
#include "training/config/with_compute_type.hpp"
#include "training/prediction/require_memory.hpp"
#include "training/verify/replay.hpp"
#include "training/verify/verify.hpp"

namespace espalier {
namespace {

constexpr std::size_t most_tensors = 8;
constexpr double outlier = 2;  // times the median of the samples

void print_comparison(const char* name, double recorded, double replayed, double tolerance) {
  print_answer("{:<14} recorded {:<14.8g} replayed {:<14.8g} {}\n", name, recorded, replayed,
               is_reproduced(recorded, replayed, tolerance) ? "reproduced" : "NOT reproduced");
}

template <double ReplayedSample::*Value>
double median_over(const std::vector<ReplayedSample>& samples) {
  std::vector<double> values;
  for (const ReplayedSample& sample : samples)
    values.push_back(sample.*Value);
  return median_of(std::move(values));
}

void print_samples(const std::vector<ReplayedSample>& samples) {
  const double usual_loss = median_over<&ReplayedSample::loss>(samples);
  const double usual_norm = median_over<&ReplayedSample::gradient_norm>(samples);
  // Written so that what is not a number stands out.
  const auto stands_out = [&](const ReplayedSample& sample) {
    return !(sample.loss <= outlier * usual_loss) || !(sample.gradient_norm <= outlier * usual_norm);
  };
  print_answer("\n{:>10} {:>10} {:>14}   {:<32} source\n", "sample", "loss", "gradient norm", "largest gradient");
  for (const ReplayedSample& sample : samples)
    print_answer("{:>10} {:>10.4f} {:>14.4g}{}  {:<32} {}, token {}\n", sample.sample, sample.loss,
                 sample.gradient_norm, stands_out(sample) ? '!' : ' ', sample.largest.name, sample.file,
                 sample.first_token);
  print_answer("! = loss or gradient norm above {} times the median of the samples, or not finite\n", outlier);
}

void print_tensors(const std::vector<TensorNorm>& tensors) {
  print_answer("\nlargest gradients of the step, by tensor\n");
  for (std::size_t i = 0; i < std::min(most_tensors, tensors.size()); ++i)
    print_answer("{:>14.4g}  {}\n", tensors[i].norm, tensors[i].name);
}

}  // namespace

int replay_command(const std::string& incident_path, const std::vector<std::string>& overrides, Runtime& runtime) {
  if (runtime.size() > 1)
    throw Error(ExitCode::usage, {.what = "a step is replayed on one rank",
                                  .got = fmt::format("{} ranks", runtime.size()),
                                  .todo = "start it without mpiexec"});
  const Incident incident = read_incident(incident_path);
  const RunConfig config = replay_config(incident_path, overrides);
  require_memory(config, make_run_layout(config, 1), memory_of_a_rank(runtime.world()));
  const double tolerance = default_tolerance(config.layout.precision);
  print_answer("{}\nlayout {}; here one rank, tolerance {:g}\n\n", to_text(incident), incident.layout, tolerance);
  const ProcessMesh mesh(runtime.world(), make_run_layout(config, 1).mesh());
  const Replay result = with_precision(config, [&]<class P>() {
    return replay<P>(incident_path, incident, config, mesh,
                     [](const std::string& text) { print_answer("{}\n", text); });
  });
  print_comparison("loss", incident.loss, result.loss, tolerance);
  print_comparison("gradient norm", incident.gradient_norm, result.gradient_norm, tolerance);
  print_samples(result.samples);
  print_tensors(result.tensors);
  const bool reproduced = is_reproduced(incident.loss, result.loss, tolerance) &&
                          is_reproduced(incident.gradient_norm, result.gradient_norm, tolerance);
  print_answer("\n{}\n", reproduced ? "the data and the weights give what was recorded"
                                    : "the data and the weights do not give what was recorded: suspect the layout "
                                      "(espalier verify) or the machine that ran it");
  return static_cast<int>(reproduced ? ExitCode::ok : ExitCode::numerical);
}

}  // namespace espalier

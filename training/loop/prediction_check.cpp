// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/prediction_check.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "io/records/run_details.hpp"
#include "io/units.hpp"
#include "models/cost.hpp"
#include "parallel/collectives/collectives.hpp"
#include "training/loop/run_files.hpp"
#include "training/prediction/predict_memory.hpp"

namespace espalier {
namespace {

double percent_over(double measured, double predicted) { return 100 * (measured / predicted - 1); }

}  // namespace

// What each rank sends to rank 0.
struct PredictionCheck::Measured {
  MemoryByCategory peak;
  double library_bytes = 0;
  PhaseSeconds seconds;  // means of the steps
  double step_seconds = 0;
};

PredictionCheck::PredictionCheck(const RunConfig& config, const Layout& layout, const ProcessMesh& mesh,
                                 double gemm_rate)
    : config_(config),
      mesh_(mesh),
      predicted_{.outlook = time_outlook(config, layout, gemm_rate), .memory = predict_memory(config, layout)},
      gemm_rate_(gemm_rate) {}

void PredictionCheck::add(const StepReport& report) {
  if (++reports_ == 1)
    return;
  ++steps_;
  step_seconds_ += report.step_seconds;
  attention_shares_ += report.counts.attention_share;
  for (std::size_t i = 0; i < num_phases; ++i)
    if (static_cast<Phase>(i) != Phase::checkpoint)  // outside of the step
      sum_.seconds[i] += report.seconds.seconds[i];
}

std::size_t PredictionCheck::stage_of(int rank) const {
  return static_cast<std::size_t>(mesh_.layout().coordinates(rank)[Axis::pp]);
}

PredictionCheck::Comparison PredictionCheck::compare() const {
  constexpr std::size_t width = num_categories + num_phases + 2;
  const MemoryLedger& ledger = MemoryLedger::instance();
  const MemoryByCategory peak = ledger.peak();
  const double steps = static_cast<double>(std::max<Index>(1, steps_));
  std::vector<double> mine;
  for (const std::size_t bytes : peak.bytes)
    mine.push_back(static_cast<double>(bytes));
  for (const double seconds : sum_.seconds)
    mine.push_back(seconds / steps);
  mine.push_back(static_cast<double>(ledger.library_scratch()));
  mine.push_back(step_seconds_ / steps);
  const Communicator& world = mesh_.world();
  std::vector<double> all(width * static_cast<std::size_t>(world.size()));
  all_gather(world, std::span<double>(all), std::span<const double>(mine));
  Comparison comparison;
  if (world.rank() != 0)
    return comparison;
  std::vector<Measured> ranks;
  for (auto at = all.begin(); at != all.end(); at += width) {
    Measured one;
    for (std::size_t i = 0; i < num_categories; ++i)
      one.peak.bytes[i] = static_cast<std::size_t>(at[static_cast<std::ptrdiff_t>(i)]);
    std::copy_n(at + num_categories, num_phases, one.seconds.seconds.begin());
    one.library_bytes = at[width - 2];
    one.step_seconds = at[width - 1];
    // Scratch of libraries only grows, and no prediction knows it.
    one.peak.bytes[static_cast<std::size_t>(Category::workspace)] -= static_cast<std::size_t>(one.library_bytes);
    ranks.push_back(one);
  }
  compare_memory(ranks, comparison);
  compare_time(ranks, comparison);
  return comparison;
}

void PredictionCheck::compare_memory(const std::vector<Measured>& ranks, Comparison& comparison) const {
  const auto highest = std::ranges::max_element(ranks, {}, [](const Measured& rank) { return rank.peak.total(); });
  const auto predicted =
      std::ranges::max_element(predicted_.memory, {}, [](const MemoryByCategory& stage) { return stage.total(); });
  const auto peak = static_cast<double>(highest->peak.total());
  const auto expected = static_cast<double>(predicted->total());
  comparison.notes.push_back(
      fmt::format("peak memory (highest rank): {}, predicted {} ({:+.2f} %), plus {} in libraries",
                  bytes_text(highest->peak.total()), bytes_text(predicted->total()), percent_over(peak, expected),
                  bytes_text(static_cast<std::size_t>(highest->library_bytes))));
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < num_categories; ++i)
    if (predicted->bytes[i] + highest->peak.bytes[i] > 0)
      parts.push_back(fmt::format("{} {} ({})", to_string(static_cast<Category>(i)), bytes_text(highest->peak.bytes[i]),
                                  bytes_text(predicted->bytes[i])));
  comparison.notes.push_back(fmt::format("by category (predicted): {}", fmt::join(parts, ", ")));
  comparison.details.update(
      details_of(MeasuredMemory{.peak = highest->peak,
                                .predicted = *predicted,
                                .library_bytes = static_cast<std::size_t>(highest->library_bytes),
                                .library_bytes_of_rank_0 = static_cast<std::size_t>(ranks.front().library_bytes)}));
}

// The mean over the ranks of a stage; the stage that works longest is printed.
void PredictionCheck::compare_time(const std::vector<Measured>& ranks, Comparison& comparison) const {
  if (steps_ == 0)
    return;
  std::vector<PhaseSeconds> stages(predicted_.memory.size());
  const double ranks_a_stage = static_cast<double>(ranks.size()) / static_cast<double>(stages.size());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    for (std::size_t i = 0; i < num_phases; ++i)
      stages[stage_of(static_cast<int>(rank))].seconds[i] += ranks[rank].seconds.seconds[i] / ranks_a_stage;
  const double step = ranks.front().step_seconds;
  const std::optional<TimePrediction>& predicted = predicted_.outlook.time;
  MeasuredTime measured{.step_seconds = step, .steps = steps_, .stages = stages};
  if (predicted)
    measured.predicted_seconds = predicted->step_seconds;
  comparison.details.update(details_of(measured));
  const double tokens_per_second = static_cast<double>(config_.tokens_per_step()) / step;
  if (const double fraction = gemm_fraction(config_.model.shape, config_.sequence_length, tokens_per_second, gemm_rate_,
                                            attention_shares_ / static_cast<double>(steps_));
      fraction > 1)
    comparison.notes.push_back(
        fmt::format("gemm_fraction is {:.0f} %: the GEMM rate measured at launch is too low; probably something else "
                    "ran. Times predicted from it are too long",
                    100 * fraction));
  if (!predicted) {
    comparison.notes.push_back("no prediction of the step's time: " + predicted_.outlook.why_not);
    return;
  }
  const auto work = [](const PhaseSeconds& s) { return s[Phase::forward] + s[Phase::backward]; };
  const auto busiest = std::ranges::max_element(stages, {}, work) - stages.begin();
  const PhaseSeconds& took = stages[static_cast<std::size_t>(busiest)];
  const PhaseSeconds& expected = predicted->stages[static_cast<std::size_t>(busiest)];
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < num_phases; ++i)
    if (took.seconds[i] > 0.005 * step || expected.seconds[i] > 0.005 * step)
      parts.push_back(
          fmt::format("{} {:.3g} ({:.3g})", to_string(static_cast<Phase>(i)), took.seconds[i], expected.seconds[i]));
  const std::string known =
      predicted->error_share > 0 ? fmt::format(" +-{:.0f} %", 100 * predicted->error_share) : std::string();
  comparison.notes.push_back(fmt::format("step: {:.4g} s, predicted {:.4g} s{} ({:+.0f} %) from {}", step,
                                         predicted->step_seconds, known, percent_over(step, predicted->step_seconds),
                                         predicted->source));
  if (!predicted->note.empty())
    comparison.notes.push_back(predicted->note);
  comparison.notes.push_back(fmt::format("by phase{}, seconds (predicted): {}",
                                         stages.size() > 1 ? fmt::format(" of stage {}", busiest) : std::string(),
                                         fmt::join(parts, ", ")));
}

void PredictionNotes::loop_ends(Index steps_done) {
  PredictionCheck::Comparison comparison = check_.compare();
  if (run_.files.keeps_figures())
    return;
  for (const std::string& text : comparison.notes)
    run_.note(text);
  comparison.details.update(details_of_steps_done(steps_done));
  run_.files.update(comparison.details);
}

}  // namespace espalier

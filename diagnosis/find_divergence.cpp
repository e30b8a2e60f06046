// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.hpp"
#include "core/median.hpp"
#include "diagnosis/find_stability.hpp"

namespace espalier {
namespace {

constexpr double loss_rise_of_divergence = 1.5;  // times the first loss
constexpr double above_guessing = 1.1;           // times ln(vocabulary), which the first losses themselves may be above
constexpr double rise_again = 1.1;               // times the lowest
constexpr double hardly_falls = 0.02;            // of the first losses
constexpr double no_more_than_counts = 0.98;     // of what token frequencies alone lead to
constexpr double recovered_share = 0.6;          // of that: what was lost has been learned again
constexpr std::size_t last_losses = 3;           // one high loss is a spike, not a direction
constexpr std::size_t steps_to_learn = 100;      // after which, and after the warmup, a loss has fallen

std::string guessing_text(const LossCourse& course, const RecordedRun& run) {
  return fmt::format("ln({}) = {:.4g}, the loss of guessing", run.config.model.shape.vocab_size, course.guessing);
}

bool has_had_time(const RecordedRun& run, const LossCourse& course) {
  return course.size() >= std::max(steps_to_learn, 2 * static_cast<std::size_t>(run.config.optimizer.warmup_steps));
}

bool ends_at_frequencies(const LossCourse& course) {
  return course.frequencies > 0 && course.last_median(end_window(course)) >= no_more_than_counts * course.frequencies;
}

// Its last losses against the first, which needs no window of steps before: an explosion in the first ten has none.
std::optional<Finding> ends_above_first(const RecordedRun& run, const LossCourse& course) {
  const double ratio = course.last_median(last_losses) / course.losses.front();
  if (course.losses.front() <= 0 || ratio <= loss_rise_of_divergence)
    return std::nullopt;
  Finding finding{.cause = Cause::divergence,
                  .title = {},
                  .size = ratio,
                  .unit = "times the first loss",
                  .risk = 0.95,
                  .verdict = "diverged"};
  finding.title = fmt::format("the training diverges, its loss rises: {:.4g} at step {}, {:.4g} at step {}",
                              course.losses.front(), course.steps.front(), course.losses.back(), course.steps.back());
  finding.evidence = {
      fmt::format("the median of the last {} losses is {:.4g} times the first", last_losses, finding.size)};
  if (course.last_median(last_losses) > above_guessing * course.guessing)
    finding.evidence.push_back("it ends above " + guessing_text(course, run));
  return finding;
}

struct Excursion {
  std::size_t first = 0;  // of the losses that are too high
  std::size_t peak = 0;
};

// Several losses in a row above that of guessing, and above the first: weights that know nothing do no worse.
std::optional<Excursion> excursion_of(const LossCourse& course) {
  const double limit = above_guessing * std::max(course.guessing, course.losses.front());
  std::optional<Excursion> found;
  for (std::size_t i = 1, in_a_row = 0; i < course.size(); ++i) {
    in_a_row = course.losses[i] > limit ? in_a_row + 1 : 0;
    if (in_a_row < last_losses)
      continue;
    if (!found)
      found = {i + 1 - in_a_row, i};
    for (std::size_t k = i + 1 - last_losses; k <= i; ++k)
      if (course.losses[k] > course.losses[found->peak])
        found->peak = k;
  }
  return found;
}

std::optional<Finding> rose_above_guessing(const RecordedRun& run, const LossCourse& course) {
  const std::optional<Excursion> excursion = excursion_of(course);
  if (!excursion)
    return std::nullopt;
  const double peak = course.losses[excursion->peak];
  const double end = course.last_median(end_window(course));
  const bool recovered = end < recovered_share * (course.frequencies > 0 ? course.frequencies : course.guessing);
  Finding finding{.cause = Cause::divergence,
                  .title = {},
                  .size = peak / course.guessing,
                  .unit = "times the loss of guessing",
                  .risk = recovered ? 0.7 : 0.95,
                  .verdict = recovered ? "" : "diverged"};
  finding.title = fmt::format("the training diverged: its loss rose from {:.4g} to {:.4g} at step {}, above {}",
                              course.losses.front(), peak, course.steps[excursion->peak], guessing_text(course, run));
  finding.evidence = {fmt::format("it was above that loss from step {} on; the last losses are {:.4g} (median)",
                                  course.steps[excursion->first], end)};
  if (course.frequencies > 0)
    finding.evidence.push_back(fmt::format("a model that knows only how often each token occurs has {:.4g}{}",
                                           course.frequencies,
                                           ends_at_frequencies(course) ? ": no more was learned" : ""));
  return finding;
}

// Medians of windows, the last against the lowest.
std::optional<Finding> rises_again(const LossCourse& course) {
  const std::size_t window = std::max<std::size_t>(8, course.size() / 20);
  if (course.size() < 3 * window)
    return std::nullopt;
  double lowest = INFINITY;
  Index lowest_step = 0;
  for (std::size_t end = window; end <= course.size(); end += window) {
    const auto last = course.losses.begin() + static_cast<std::ptrdiff_t>(end);
    const double median = median_of({last - static_cast<std::ptrdiff_t>(window), last});
    if (median < lowest) {
      lowest = median;
      lowest_step = course.steps[end - window / 2 - 1];
    }
  }
  const double end = course.last_median(window);
  if (lowest <= 0 || end <= rise_again * lowest || end - lowest <= course.chance(window))
    return std::nullopt;
  Finding finding{.cause = Cause::divergence,
                  .title = {},
                  .size = end / lowest,
                  .unit = "times the lowest",
                  .risk = 0.9,
                  .verdict = "diverged"};
  finding.title = fmt::format("the loss rises again: {:.4g} around step {}, {:.4g} in the last {} steps (medians)",
                              lowest, lowest_step, end, window);
  finding.evidence = {fmt::format("it is {:.0f} % above its lowest, and scatters by {:.2g} from step to step",
                                  100 * (finding.size - 1), course.noise)};
  return finding;
}

std::optional<Finding> never_falls(const RecordedRun& run, const LossCourse& course) {
  const std::size_t tenth = course.size() / 10;
  if (!has_had_time(run, course))
    return std::nullopt;
  const double first = course.first_median(tenth);
  const double last = course.last_median(tenth);
  const bool knows_nothing = last > 0.9 * course.guessing && last > 1.05 * course.frequencies;
  if (first <= 0 || last < first * (knows_nothing ? 1 - hardly_falls : 1))
    return std::nullopt;
  Finding finding{.cause = Cause::divergence,
                  .title = {},
                  .size = last / first,
                  .unit = "times the first losses",
                  .risk = knows_nothing ? 0.9 : 0.5,
                  .verdict = knows_nothing ? "did not learn" : ""};
  finding.title = fmt::format("the loss {}: {:.4g} in the first {} steps, {:.4g} in the last {} (medians)",
                              last < first ? "hardly falls" : "does not fall", first, tenth, last, tenth);
  finding.evidence = {
      fmt::format("{} steps, {} of them in the warm-up", course.size(), run.config.optimizer.warmup_steps)};
  return finding;
}

// It came there before the last quarter, or fell by less than 2 % from the quarter before to the last.
bool stands_still(const LossCourse& course) {
  const std::size_t quarter = course.size() / 4;
  const double before = median_of({course.losses.end() - static_cast<std::ptrdiff_t>(2 * quarter),
                                   course.losses.end() - static_cast<std::ptrdiff_t>(quarter)});
  return before < course.frequencies / no_more_than_counts || course.last_median(quarter) > (1 - hardly_falls) * before;
}

std::optional<Finding> knows_frequencies_only(const RecordedRun& run, const LossCourse& course) {
  if (!has_had_time(run, course) || !ends_at_frequencies(course))
    return std::nullopt;
  const bool rate_is_high = run.config.optimizer.learning_rate > 3 * usual_learning_rate(run.config.model.shape);
  if (!stands_still(course) && !rate_is_high)
    return std::nullopt;
  const double end = course.last_median(end_window(course));
  Finding finding{.cause = Cause::plateau,
                  .title = {},
                  .size = end / course.frequencies,
                  .unit = "times the loss of token frequencies",
                  .risk = 0.9,
                  .verdict = "did not learn"};
  finding.title = fmt::format(
      "the model learned {} than token frequencies: its loss ends at {:.4g}, and frequencies alone give {:.4g}",
      end * no_more_than_counts > course.frequencies ? "less" : "no more", end, course.frequencies);
  return finding;
}

// What the curves cannot show: the step in which it ended has no line, unless one before was not finite either.
std::optional<Finding> ended_in_a_step(const RecordedRun& run) {
  if (run.record.state != RunState::failed || run.record.exit_code != static_cast<int>(ExitCode::numerical))
    return std::nullopt;
  const Index last = run.steps.empty() ? 0 : run.steps.back().times.step;
  Finding finding{.cause = Cause::divergence, .title = {}, .risk = 0.95, .verdict = "diverged"};
  finding.title = fmt::format("the training diverged after step {}: loss or gradients were not finite", last);
  return finding;
}

}  // namespace

void find_divergence(const RecordedRun& run, std::vector<Finding>& findings) {
  const LossCourse course = loss_course(run);
  std::optional<Finding> found;
  bool stands = false;
  if (course.size() > last_losses) {
    found = ends_above_first(run, course);
    if (!found)
      found = rose_above_guessing(run, course);
    if (!found)
      found = rises_again(course);
    if (!found) {
      found = never_falls(run, course);
      if (!found)
        found = knows_frequencies_only(run, course);
      stands = found.has_value();
    }
  }
  if (!found || stands)
    if (std::optional<Finding> ended = ended_in_a_step(run)) {
      found = std::move(ended);
      stands = false;
    }
  if (!found)
    return;
  if (stands) {
    add_causes_of_standstill(run, *found);
  } else {
    const std::optional<Excursion> excursion = course.size() > last_losses ? excursion_of(course) : std::nullopt;
    const Index last = run.steps.empty() ? 0 : run.steps.back().times.step;
    add_causes_of_instability(run, excursion ? course.steps[excursion->peak] : last, *found);
  }
  findings.push_back(std::move(*found));
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/median.hpp"
#include "diagnosis/find_stability.hpp"

namespace espalier {
namespace {

// Of differences between neighbours, in which the course itself hardly shows.
double scatter(const std::vector<double>& losses) {
  std::vector<double> differences;
  for (std::size_t i = 1; i < losses.size(); ++i)
    differences.push_back(losses[i] - losses[i - 1]);
  return robust_deviation(std::move(differences)).deviation / std::numbers::sqrt2;
}

}  // namespace

double LossCourse::first_median(std::size_t count) const {
  return median_of({losses.begin(), losses.begin() + static_cast<std::ptrdiff_t>(std::min(count, size()))});
}

double LossCourse::last_median(std::size_t count) const {
  return median_of({losses.end() - static_cast<std::ptrdiff_t>(std::min(count, size())), losses.end()});
}

double LossCourse::chance(std::size_t count) const {
  constexpr double error_of_median = 1.2533;  // times that of a mean: sqrt(pi / 2)
  return 4 * error_of_median * noise / std::sqrt(static_cast<double>(std::max<std::size_t>(1, count)));
}

LossCourse loss_course(const RecordedRun& run) {
  LossCourse course;
  for (const StepRecord& step : run.steps)
    if (std::isfinite(step.loss)) {
      course.steps.push_back(step.times.step);
      course.losses.push_back(step.loss);
    }
  course.guessing = std::log(static_cast<double>(std::max<Index>(2, run.config.model.shape.vocab_size)));
  course.frequencies = run.facts.unigram_loss;
  course.noise = scatter(course.losses);
  return course;
}

std::size_t end_window(const LossCourse& course) { return std::max<std::size_t>(3, course.size() / 10); }

}  // namespace espalier

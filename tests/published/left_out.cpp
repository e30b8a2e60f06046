// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/left_out.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "planning/layer_time.hpp"

namespace espalier {
namespace {

constexpr double row_spread = 0.08;  // of one configuration, published twice: 2 to 10 %
constexpr double huber = 1.5;        // spreads: beyond them an error counts by its size, no more by its square
constexpr double step = 0.02;        // of a logarithm, for the gradients
constexpr int iterations = 8;        // of Huber's weights

// Solves A x = b of a positive definite A (n, n), row by row; A is overwritten. Cholesky's method.
std::vector<double> solved(std::vector<std::vector<double>> a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t j = 0; j < n; ++j)
    for (std::size_t i = j; i < n; ++i) {
      double sum = a[i][j];
      for (std::size_t k = 0; k < j; ++k)
        sum -= a[i][k] * a[j][k];
      a[i][j] = i == j ? std::sqrt(sum) : sum / a[j][j];
    }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k)
      b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k)
      b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

}  // namespace

FitTarget time_target() {
  return {.predicted =
              [](const PublishedCase& row, const Layout& layout) {
                if (!row.one_block)
                  return price_layout(row.problem, layout).step_seconds;
                return block_time(row.problem.model, row.problem.cluster, layout, row.problem.implementation,
                                  row.problem.sequence_length)
                    .seconds();
              },
          .measured = [](const PublishedCase& row) { return row.measured_seconds; }};
}

FitTarget memory_target() {
  return {.predicted =
              [](const PublishedCase& row, const Layout& layout) {
                const auto memory = published_memory(row.problem, row.memory, layout);
                return static_cast<double>(row.last_stage ? memory.back().total() : peak_bytes(memory));
              },
          .measured = [](const PublishedCase& row) { return row.measured_bytes; }};
}

ConstantFit::ConstantFit(std::vector<PricedCase> cases, std::vector<FittedConstant> constants, FitTarget target)
    : cases_(std::move(cases)),
      constants_(std::move(constants)),
      target_(std::move(target)),
      held_(constants_.size(), false) {
  std::map<std::string, double> rows_of_source;
  for (const PricedCase& each : cases_)
    ++rows_of_source[each.published.origin];
  for (const PricedCase& each : cases_)
    weights_.push_back(1 / (row_spread * row_spread * std::sqrt(rows_of_source[each.published.origin])));
  const LogFactors today(constants_.size(), 0);
  for (std::size_t row = 0; row < cases_.size(); ++row) {
    const double here = today_.emplace_back(residual(row, today));
    std::vector<double>& gradient = gradient_.emplace_back(constants_.size(), 0);
    for (std::size_t i = 0; i < constants_.size(); ++i) {
      PublishedCase probe = cases_[row].published;
      if (constants_[i].find(probe) == nullptr)
        continue;
      LogFactors changed = today;
      changed[i] = step;
      gradient[i] = (residual(row, changed) - here) / step;
    }
  }
}

double ConstantFit::residual(std::size_t row, const LogFactors& factors) const {
  PublishedCase changed = cases_[row].published;
  for (std::size_t i = 0; i < constants_.size(); ++i)
    if (double* const value = constants_[i].find(changed))
      *value *= std::exp(factors[i]);
  return std::log(target_.predicted(changed, cases_[row].layout) / target_.measured(changed));
}

LogFactors ConstantFit::fit(const std::function<bool(const PublishedCase&)>& uses) const {
  const std::size_t n = constants_.size();
  LogFactors factors(n, 0);
  for (int iteration = 0; iteration < iterations; ++iteration) {
    std::vector<std::vector<double>> a(n, std::vector<double>(n, 0));
    std::vector<double> b(n, 0);
    for (std::size_t i = 0; i < n; ++i) {
      const double known = held_[i] ? 1e12 : 1 / (constants_[i].spread * constants_[i].spread);
      a[i][i] = known;
      b[i] = -known * factors[i];
    }
    for (std::size_t row = 0; row < cases_.size(); ++row) {
      if (!uses(cases_[row].published))
        continue;
      const std::vector<double>& gradient = gradient_[row];
      const double off = std::inner_product(factors.begin(), factors.end(), gradient.begin(), today_[row]);
      const double weight = weights_[row] * std::min(1.0, huber * row_spread / std::max(std::abs(off), 1e-9));
      for (std::size_t i = 0; i < n; ++i) {
        b[i] -= weight * gradient[i] * off;
        for (std::size_t j = 0; j <= i; ++j)
          a[i][j] += weight * gradient[i] * gradient[j];
      }
    }
    const std::vector<double> change = solved(std::move(a), std::move(b));
    for (std::size_t i = 0; i < n; ++i)
      factors[i] += change[i];
  }
  return factors;
}

std::vector<ConstantFit::RowError> ConstantFit::errors(const LogFactors& factors,
                                                       const std::function<bool(const PublishedCase&)>& uses) const {
  std::vector<RowError> found;
  for (std::size_t row = 0; row < cases_.size(); ++row)
    if (uses(cases_[row].published))
      found.push_back({row, std::exp(residual(row, factors)) - 1});
  return found;
}

std::vector<ConstantFit::RowError> ConstantFit::left_out_errors(
    const std::function<std::string(const PublishedCase&)>& group_of) const {
  std::set<std::string> groups;
  for (const PricedCase& each : cases_)
    groups.insert(group_of(each.published));
  std::vector<RowError> all;
  for (const std::string& group : groups) {
    const auto is_left_out = [&](const PublishedCase& row) { return group_of(row) == group; };
    const auto mine = errors(fit([&](const PublishedCase& row) { return !is_left_out(row); }), is_left_out);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  return all;
}

}  // namespace espalier

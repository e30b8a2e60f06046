// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tests/published/fitted_constant.hpp"

namespace espalier {

/// Logarithms of the factors of constants.
using LogFactors = std::vector<double>;

/// What a fit predicts: seconds or bytes of a row in the layout that was found for it.
struct FitTarget {
  std::function<double(const PublishedCase&, const Layout&)> predicted;
  std::function<double(const PublishedCase&)> measured;
};
FitTarget time_target();
FitTarget memory_target();

/// Rows whose measurements are compared with predictions while constants change.
class ConstantFit {
 public:
  ConstantFit(std::vector<PricedCase> cases, std::vector<FittedConstant> constants, FitTarget target);

  /// The factors that fit best where `uses(row)` holds: least squares of log(predicted / measured), with Huber's
  /// weights against outliers, of sources that count by the root of their rows, and of the factors' own spread. The
  /// residuals are taken as linear in the logarithms, about the constants of today.
  LogFactors fit(const std::function<bool(const PublishedCase&)>& uses) const;

  /// predicted / measured - 1 of the rows where `uses(row)` holds, each with the number of its row.
  struct RowError {
    std::size_t row = 0;
    double error = 0;
  };
  std::vector<RowError> errors(const LogFactors& factors, const std::function<bool(const PublishedCase&)>& uses) const;

  /// Each row by constants fitted to the rows of other groups: group_of() names the group of a row.
  std::vector<RowError> left_out_errors(const std::function<std::string(const PublishedCase&)>& group_of) const;

  /// Keeps a constant at what it is today, or frees it again.
  void hold(std::size_t constant, bool held) { held_[constant] = held; }

  const std::vector<PricedCase>& cases() const { return cases_; }
  const std::vector<FittedConstant>& constants() const { return constants_; }

 private:
  double residual(std::size_t row, const LogFactors& factors) const;

  std::vector<PricedCase> cases_;
  std::vector<FittedConstant> constants_;
  FitTarget target_;
  std::vector<bool> held_;
  std::vector<double> weights_;                ///< of rows
  std::vector<double> today_;                  ///< residuals, where all factors are 1
  std::vector<std::vector<double>> gradient_;  ///< [row][constant] of them
};

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "tests/published/kind_interval.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

namespace espalier {
namespace {

// Rows of a source count by the root of their number, as in the fit.
class Ratios {
 public:
  void add(const KindError& error) { of_source_[error.source].push_back(error.ratio); }

  std::size_t num_sources() const { return of_source_.size(); }

  /// The ratio that a part of the rows lies below; without those of one source.
  double quantile(double part, const std::string& without = "") const {
    std::vector<std::pair<double, double>> weighted;
    double all = 0;
    for (const auto& [source, ratios] : of_source_) {
      if (source == without)
        continue;
      const double weight = 1 / std::sqrt(static_cast<double>(ratios.size()));
      for (const double ratio : ratios)
        weighted.emplace_back(ratio, weight);
      all += weight * static_cast<double>(ratios.size());
    }
    std::ranges::sort(weighted);
    double below = 0;
    for (const auto& [ratio, weight] : weighted)
      if ((below += weight) >= part * all)
        return ratio;
    return weighted.empty() ? 0 : weighted.back().first;  // none without the only source: nothing lies there
  }

 private:
  std::map<std::string, std::vector<double>> of_source_;
};

}  // namespace

std::vector<KindInterval> kind_intervals(const std::vector<KindError>& errors, double outside) {
  std::map<std::string, Ratios> ratios;
  for (const KindError& error : errors)
    ratios[error.kind].add(error);
  std::map<std::string, KindInterval> found;
  KindInterval all{.kind = "all rows"};
  for (const KindError& error : errors) {
    const Ratios& mine = ratios.at(error.kind);
    const bool held =
        error.ratio >= mine.quantile(outside, error.source) && error.ratio <= mine.quantile(1 - outside, error.source);
    for (KindInterval* kind : {&found[error.kind], &all}) {
      ++kind->rows;
      kind->held += held ? 1 : 0;
    }
  }
  std::vector<KindInterval> made;
  for (auto& [name, kind] : found) {
    kind.kind = name;
    kind.sources = ratios.at(name).num_sources();
    kind.low = ratios.at(name).quantile(outside);
    kind.high = ratios.at(name).quantile(1 - outside);
    made.push_back(kind);
  }
  if (all.rows > 0)
    made.push_back(all);
  for (KindInterval& kind : made)
    kind.held /= static_cast<double>(std::max<std::size_t>(kind.rows, 1));
  return made;
}

void add_pairs(const std::vector<LayoutRow>& rows, std::vector<LayoutPair>& pairs) {
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t j = i + 1; j < rows.size(); ++j)
      if (rows[i].layout != rows[j].layout) {
        const bool first_is_slower = rows[i].predicted > rows[j].predicted;
        const LayoutRow& slower = rows[first_is_slower ? i : j];
        const LayoutRow& faster = rows[first_is_slower ? j : i];
        pairs.push_back({slower.source, slower.predicted / faster.predicted - 1, slower.measured > faster.measured});
      }
}

double resolution_of(std::vector<LayoutPair> pairs) {
  std::map<std::string, double> pairs_of_source;
  for (const LayoutPair& pair : pairs)
    ++pairs_of_source[pair.source];
  std::ranges::sort(pairs, std::greater(), &LayoutPair::predicted_share);
  double least = 0;  // that still holds
  double all = 0;
  double in_order = 0;
  for (const LayoutPair& pair : pairs) {
    const double weight = 1 / std::sqrt(pairs_of_source.at(pair.source));
    all += weight;
    in_order += pair.in_order ? weight : 0;
    if (in_order >= 0.9 * all || least == 0)
      least = pair.predicted_share;
  }
  return least;
}

}  // namespace espalier

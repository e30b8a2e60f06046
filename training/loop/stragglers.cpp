// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/stragglers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/median.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/texts.hpp"
#include "training/loop/run_files.hpp"

namespace espalier {
namespace {

bool contains(const std::vector<Straggler>& stragglers, int rank) {
  return std::any_of(stragglers.begin(), stragglers.end(),
                     [&](const Straggler& straggler) { return straggler.rank == rank; });
}

// The median of sorted values without one of them that is `value`; 0 where that is the only one.
double median_of_others(const std::vector<double>& sorted, double value) {
  const auto own = static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin());
  const std::size_t others = sorted.size() - 1;
  const auto other = [&](std::size_t i) { return sorted[i < own ? i : i + 1]; };
  if (others == 0)
    return 0;
  return others % 2 == 1 ? other(others / 2) : (other(others / 2 - 1) + other(others / 2)) / 2;
}

double work_of(const PhaseSeconds& seconds) {
  return seconds[Phase::forward] + seconds[Phase::backward] + seconds[Phase::data] + seconds[Phase::optimizer];
}

}  // namespace

std::vector<Straggler> find_stragglers(const std::vector<double>& work_seconds, const std::vector<int>& stages,
                                       double threshold) {
  std::map<int, std::vector<double>> by_stage;
  for (std::size_t rank = 0; rank < work_seconds.size(); ++rank)
    by_stage[stages[rank]].push_back(work_seconds[rank]);
  for (auto& [stage, seconds] : by_stage)
    std::sort(seconds.begin(), seconds.end());
  std::vector<Straggler> found;
  for (std::size_t rank = 0; rank < work_seconds.size(); ++rank) {
    const double usual = median_of_others(by_stage.at(stages[rank]), work_seconds[rank]);
    if (usual > 0 && work_seconds[rank] > (1 + threshold) * usual)
      found.push_back({static_cast<int>(rank), work_seconds[rank] / usual - 1});
  }
  return found;
}

StragglerWatch::StragglerWatch(const RunConfig::Stability& config, const ProcessMesh& mesh)
    : mesh_(mesh),
      window_(config.straggler_window),
      threshold_(config.straggler_threshold),
      stages_(static_cast<std::size_t>(mesh.world().size())) {
  const int stage = mesh.pp().rank();
  all_gather(mesh.world(), std::span<int>(stages_), std::span<const int>(&stage, 1));
  hosts_ = gather_texts(mesh.world(), mesh.world().rank_progress().current().host.data());
}

std::vector<std::string> StragglerWatch::after_step(const StepReport& report) {
  if (window_ == 0 || mesh_.world().size() == 1)
    return {};
  work_.push_back(work_of(report.seconds));
  return static_cast<Index>(work_.size()) < window_ ? std::vector<std::string>() : compare(report.step);
}

std::vector<std::string> StragglerWatch::compare(Index step) {
  const double mine = median_of(std::exchange(work_, {}));
  std::vector<double> all(stages_.size());
  all_gather(mesh_.world(), std::span<double>(all), std::span<const double>(&mine, 1));
  if (mesh_.world().rank() != 0)
    return {};
  const std::vector<Straggler> slow = find_stragglers(all, stages_, threshold_);
  std::vector<std::string> lines;
  const auto rank_text = [&](const Straggler& straggler) {
    const auto i = static_cast<std::size_t>(straggler.rank);
    return fmt::format("rank {} (stage {}) on {}", straggler.rank, stages_[i], hosts_[i]);
  };
  std::vector<Straggler> still_slow;
  for (const Straggler& straggler : slow) {
    const bool is_known = contains(reported_, straggler.rank);
    if (is_known || contains(suspects_, straggler.rank))
      still_slow.push_back(straggler);
    if (!is_known && contains(suspects_, straggler.rank))
      lines.push_back(fmt::format("straggler: {} works {:.0f} % longer than the other ranks of its stage since step {}",
                                  rank_text(straggler), 100 * straggler.share, step - 2 * window_ + 1));
  }
  for (const Straggler& straggler : reported_)
    if (!contains(slow, straggler.rank))
      lines.push_back(fmt::format("straggler: {} works as long as the others again", rank_text(straggler)));
  suspects_ = slow;
  reported_ = still_slow;
  return lines;
}

nlohmann::json StragglerWatch::to_json() const {
  nlohmann::json list = nlohmann::json::array();
  for (const Straggler& straggler : reported_) {
    const auto i = static_cast<std::size_t>(straggler.rank);
    list.push_back(
        {{"rank", straggler.rank}, {"host", hosts_[i]}, {"stage", stages_[i]}, {"longer_by", straggler.share}});
  }
  return {{"stragglers", list}};
}

void StragglerNotes::after_step(const LoopStep& step) {
  const std::vector<std::string> lines = watch_.after_step(step.report);
  for (const std::string& line : lines)
    run_.note(line);
  if (!lines.empty())
    run_.files.update(watch_.to_json());
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "parallel/observe/rank_progress.hpp"

namespace espalier {
namespace {

constexpr std::string_view likely_culprit = "likely culprit: ";
constexpr std::string_view no_culprit = "no culprit: ";
constexpr double silent_seconds = 2.5;  // behind the others: who waits, and runs, writes about every second
constexpr double exchange_seconds = 1;  // that ranks may wait for each other at most, while messages are on their way

/// Whom it waits for: the peers that it names, or, in a collective of the MPI library, who has not begun it.
std::vector<int> peers_of(const RankProgress& progress, std::span<const RankProgress> all) {
  const auto named = std::span(progress.peers)
                         .first(static_cast<std::size_t>(std::clamp(progress.num_peers, 0, RankProgress::max_peers)));
  std::vector<int> peers(named.begin(), named.end());
  if (!peers.empty() || progress.waited_for.communicator == 0)
    return peers;
  for (const RankProgress& other : all)
    if (std::any_of(other.collectives.begin(), other.collectives.end(), [&](const RankProgress::Collectives& slot) {
          return slot.communicator == progress.waited_for.communicator && slot.begun < progress.waited_for.begun;
        }))
      peers.push_back(other.rank);
  return peers;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string operation_text(const RankProgress& progress) {
  std::string text = progress.step < 0 ? "before the first step" : fmt::format("step {}", progress.step);
  if (progress.operation[0] != '\0')
    text += fmt::format(", {}", progress.operation.data());
  if (progress.operation_index >= 0)
    text += fmt::format(" (operation {})", progress.operation_index);
  if (progress.microbatch >= 0)
    text += fmt::format(", micro-batch {}", progress.microbatch);
  if (progress.chunk > 0)
    text += fmt::format(", chunk {}", progress.chunk);
  return text;
}

std::string line_of(const RankProgress& progress, std::span<const RankProgress> all, double now) {
  std::string text = fmt::format("rank {} ({}, process {}): {}", progress.rank, progress.host.data(), progress.pid,
                                 operation_text(progress));
  const double seconds = std::max(0.0, now - progress.since);
  if (progress.finished != 0)
    return text + ", exited";
  if (progress.waiting == 0)
    return text + fmt::format(", busy for {:.1f} s", seconds);
  const std::vector<int> peers = peers_of(progress, all);
  text += fmt::format(", waits for {}", progress.waits_for.data());
  if (!peers.empty())
    text += " from " + ranks_text(peers);
  return text + fmt::format(" on communicator {} (after {} messages) for {:.1f} s", progress.communicator.data(),
                            progress.sequence, seconds);
}

/// Seconds between the last sign of life of this rank and that of any; 0 where unknown.
double silence(const RankProgress& progress, double last_sign_of_life) {
  return progress.alive > 0 ? std::max(0.0, last_sign_of_life - progress.alive) : 0;
}

double latest_write(std::span<const RankProgress> ranks) {
  double last = 0;
  for (const RankProgress& progress : ranks)
    last = std::max(last, progress.alive);
  return last;
}

/// Who must move first: the ends of the chains of waits.
class Waits {
 public:
  explicit Waits(std::span<const RankProgress> ranks) : last_sign_of_life_(latest_write(ranks)) {
    for (const RankProgress& progress : ranks)
      by_rank_[progress.rank] = &progress;
    for (const auto& [rank, progress] : by_rank_)
      if (waits(rank))
        for (const int peer : peers_of(*progress, ranks)) {
          waited_for_[rank].push_back(peer);
          waiters_[peer].push_back(rank);
        }
  }

  std::string verdict() const {
    std::map<int, std::set<int>> held_up;  // by the rank at the end of the chain
    int waiting = 0;
    for (const auto& [rank, progress] : by_rank_) {
      if (!waits(rank))
        continue;
      ++waiting;
      for (const int end : reached(rank, waited_for_))
        if (!waits(end))
          held_up[end].insert(rank);
    }
    if (held_up.empty())
      return without_culprit(waiting);
    std::size_t most = 0;
    for (const auto& [end, ranks] : held_up)
      most = std::max(most, ranks.size());
    std::vector<std::string> culprits;
    for (const auto& [end, ranks] : held_up)
      if (ranks.size() == most)
        culprits.push_back(describe(end));
    return fmt::format("{}{}; {} of {} ranks wait for {}, directly or along a chain", likely_culprit,
                       fmt::join(culprits, "; "), most, by_rank_.size(), culprits.size() == 1 ? "it" : "each of them");
  }

 private:
  bool waits(int rank) const {
    const auto found = by_rank_.find(rank);
    return found != by_rank_.end() && found->second->waiting != 0 && found->second->finished == 0 &&
           silence(*found->second, last_sign_of_life_) < silent_seconds;
  }

  using Edges = std::map<int, std::vector<int>>;

  // Itself only along a ring.
  static std::set<int> reached(int start, const Edges& edges) {
    std::set<int> reached;
    std::vector<int> to_visit{start};
    while (!to_visit.empty()) {
      const auto next = edges.find(to_visit.back());
      to_visit.pop_back();
      if (next == edges.end())
        continue;
      for (const int rank : next->second)
        if (reached.insert(rank).second)
          to_visit.push_back(rank);
    }
    return reached;
  }

  std::string describe(int rank) const {
    const auto found = by_rank_.find(rank);
    if (found == by_rank_.end())
      return fmt::format("rank {}, which recorded no progress", rank);
    const RankProgress& progress = *found->second;
    if (progress.finished != 0)
      return fmt::format("rank {} ({}), which exited before the others were done", rank, progress.host.data());
    if (progress.waiting != 0)
      return fmt::format("rank {} ({}), which has not reported for {:.1f} s: {}, stopped or ended while it waited",
                         rank, progress.host.data(), silence(progress, last_sign_of_life_), operation_text(progress));
    return fmt::format("rank {} ({}), which waits for no other rank: {}, busy or ended", rank, progress.host.data(),
                       operation_text(progress));
  }

  /// Ranks that wait for each other, directly or along a chain, and for how long all of them have.
  struct Ring {
    std::set<int> ranks;
    double seconds = 0;
  };

  // The one that has lasted longest. Who only waits for its ranks is not in it.
  std::optional<Ring> longest_ring() const {
    std::optional<Ring> longest;
    std::set<int> seen;
    for (const auto& [start, peers] : waited_for_) {
      const std::set<int> ahead = reached(start, waited_for_);
      if (seen.contains(start) || !ahead.contains(start))
        continue;
      Ring ring;
      double since = 0;
      for (const int rank : reached(start, waiters_))
        if (ahead.contains(rank)) {
          ring.ranks.insert(rank);
          since = std::max(since, by_rank_.at(rank)->since);
        }
      ring.seconds = std::max(0.0, last_sign_of_life_ - since);
      seen.insert(ring.ranks.begin(), ring.ranks.end());
      if (!longest || ring.seconds > longest->seconds)
        longest = ring;
    }
    return longest;
  }

  std::string without_culprit(int waiting) const {
    if (const std::optional<Ring> ring = longest_ring()) {
      const std::string ranks = ranks_text({ring->ranks.begin(), ring->ranks.end()});
      if (ring->seconds >= exchange_seconds)
        return fmt::format("{}{} wait for each other, a deadlock", no_culprit, ranks);
      return fmt::format(
          "{}{} were exchanging messages, for {:.1f} s: likely ended from outside, all at about the same time",
          no_culprit, ranks, ring->seconds);
    }
    std::vector<int> unsigned_ranks;
    for (const auto& [rank, progress] : by_rank_)
      if (progress->finished == 0)
        unsigned_ranks.push_back(rank);
    if (waiting > 0 || unsigned_ranks.size() == by_rank_.size())
      return fmt::format("{}no rank waits for another", no_culprit);
    if (unsigned_ranks.empty())
      return "all ranks exited cleanly";
    return fmt::format("{}{} was killed or crashed", likely_culprit, ranks_text(unsigned_ranks));
  }

  double last_sign_of_life_;
  std::map<int, const RankProgress*> by_rank_;
  Edges waited_for_;  // the peers of each rank that waits
  Edges waiters_;     // and the other way round
};

}  // namespace

std::string progress_report(std::span<const RankProgress> ranks, double now) {
  std::vector<const RankProgress*> sorted;
  double last_sign_of_life = 0;
  for (const RankProgress& progress : ranks) {
    sorted.push_back(&progress);
    last_sign_of_life = std::max(last_sign_of_life, progress.since);
  }
  if (now <= 0)
    now = last_sign_of_life;
  std::sort(sorted.begin(), sorted.end(),
            [](const RankProgress* a, const RankProgress* b) { return a->rank < b->rank; });
  std::string report;
  for (const RankProgress* progress : sorted)
    report += line_of(*progress, ranks, now) + '\n';
  return report + Waits(ranks).verdict() + '\n';
}

bool names_culprit(std::string_view text) {
  return text.find(likely_culprit) != std::string_view::npos || text.find(no_culprit) != std::string_view::npos;
}

}  // namespace espalier

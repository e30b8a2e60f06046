// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/common_layout.hpp"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "io/units.hpp"
#include "planning/layout_limits.hpp"
#include "planning/no_layout.hpp"
#include "planning/why_slower.hpp"

namespace espalier {
namespace {

constexpr std::size_t most_candidates = 16;  // besides those that the machines' own searches have found

// A layout where it was priced: on each machine.
struct Candidate {
  std::vector<LayoutPrice> prices;
  double worst_loss = 0;

  const Layout& layout() const { return prices.front().layout; }
};

class CommonSearch {
 public:
  CommonSearch(const std::vector<PlanProblem>& problems, const LayoutSpace& space)
      : problems_(problems), space_(space) {}

  CommonLayout run() {
    CommonLayout common;
    if (!search_each())
      return common;
    add_estimated();
    const auto best = std::ranges::min_element(candidates_, {}, key_of);
    if (best != candidates_.end()) {
      common.layout = best->layout();
      common.prices = best->prices;
    }
    common.bests = bests_;
    return common;
  }

 private:
  // Each machine alone; false where one has no layout. What is good on one of them is tried on all.
  bool search_each() {
    std::vector<Layout> good;
    for (const PlanProblem& problem : problems_) {
      const SearchResult own = search_layouts(problem, space_);
      if (own.ranking.empty())
        return false;
      bests_.push_back(own.ranking.front());
      for (const LayoutPrice& price : own.ranking)
        good.push_back(price.layout);
    }
    for (const Layout& layout : good)
      if (std::optional<Candidate> candidate = priced(layout, Effort::simulate))
        candidates_.push_back(std::move(*candidate));
    return true;
  }

  // Of each mesh of ranks the layout that loses least by its closed form, and of these the best few.
  void add_estimated() {
    std::map<MeshDegrees, Candidate> meshes;
    for (const Layout& layout : all_layouts())
      if (std::optional<Candidate> candidate = priced(layout, Effort::estimate)) {
        const auto [known, is_first] = meshes.try_emplace(degrees_of(layout), *candidate);
        if (!is_first && key_of(*candidate) < key_of(known->second))
          known->second = std::move(*candidate);
      }
    std::vector<Candidate> order;
    for (auto& [mesh, candidate] : meshes)
      order.push_back(std::move(candidate));
    std::ranges::stable_sort(order, {}, key_of);
    for (std::size_t i = 0; i < std::min(most_candidates, order.size()); ++i)
      candidates_.push_back(*priced(order[i].layout(), Effort::simulate));
  }

  // Spaces differ by the nodes alone, which bound the tensor axis: that of the largest holds the others.
  std::vector<Layout> all_layouts() const {
    const auto nodes = [](const PlanProblem& problem) { return problem.cluster.devices_per_node; };
    return enumerate_layouts(*std::ranges::max_element(problems_, {}, nodes), space_);
  }

  // Nothing where it is impossible or too large on one machine.
  std::optional<Candidate> priced(const Layout& layout, Effort effort) const {
    Candidate candidate;
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      if (!why_impossible(problems_[i], layout).empty())
        return std::nullopt;
      candidate.prices.push_back(price_layout(problems_[i], layout, effort));
      if (!why_too_large(problems_[i], candidate.prices.back()).empty())
        return std::nullopt;
      const double loss = candidate.prices.back().step_seconds / bests_[i].step_seconds - 1;
      candidate.worst_loss = std::max(candidate.worst_loss, loss);
    }
    return candidate;
  }

  // Of those that lose as much as each other the simplest; its text, so that the order of the machines does not decide.
  static std::tuple<double, int, std::string> key_of(const Candidate& candidate) {
    return {std::round(candidate.worst_loss / equal_share), complexity(candidate.layout()), candidate.layout().text()};
  }

  const std::vector<PlanProblem>& problems_;
  const LayoutSpace& space_;
  std::vector<LayoutPrice> bests_;
  std::vector<Candidate> candidates_;
};

bool are_alike(const std::vector<PlanProblem>& problems) {
  return std::ranges::all_of(problems, [&](const PlanProblem& each) {
    return each.cluster.num_devices() == problems.front().cluster.num_devices();
  });
}

// Of a token, where the cluster states it of an hour of a device.
double per_token(double of_device_hour, const PlanProblem& problem, const LayoutPrice& price) {
  return of_device_hour * problem.cluster.num_devices() / price.tokens_per_second;
}

}  // namespace

std::string machine_name(const std::vector<PlanProblem>& problems, std::size_t machine) {
  const Cluster& cluster = problems[machine].cluster;
  return are_alike(problems) ? cluster.name
                             : fmt::format("{} ({})", cluster.name, counted(cluster.num_devices(), "device"));
}

CommonLayout compare_machines(const std::vector<PlanProblem>& problems, LayoutSpace& space, bool wants_common) {
  if (wants_common && are_alike(problems))
    for (const bool runnable : {true, false}) {
      space.only_runnable = runnable;
      if (CommonLayout common = search_common_layout(problems, space); common.layout)
        return common;
    }
  CommonLayout found;
  space.only_runnable = true;
  for (const PlanProblem& problem : problems) {
    LayoutSpace own = space;
    own.num_devices = problem.cluster.num_devices();
    const SearchResult result = search_recommended(problem, own);
    found.bests.push_back(result.ranking.empty() ? LayoutPrice{} : result.ranking.front());
    found.why_none.push_back(result.ranking.empty() ? why_no_layout(problem, own, result) : "");
  }
  return found;
}

std::vector<std::string> comparison_sentences(const std::vector<PlanProblem>& problems, const CommonLayout& common) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < problems.size(); ++i)
    if (common.has(i))
      order.push_back(i);
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return common.price(i).tokens_per_second; });
  std::vector<std::string> sentences;
  for (std::size_t i = 0; i < problems.size(); ++i)
    if (!common.has(i))
      sentences.push_back(fmt::format("No layout is possible on {}.", machine_name(problems, i)));
  for (std::size_t k = 1; k < order.size(); ++k) {
    const PlanProblem& one = problems[order.front()];
    const PlanProblem& other = problems[order[k]];
    const LayoutPrice& fast = common.price(order.front());
    const LayoutPrice& slow = common.price(order[k]);
    const std::string name = machine_name(problems, order.front());
    const std::string other_name = machine_name(problems, order[k]);
    const double least = slow.step_interval.low / fast.step_interval.high;
    sentences.push_back(
        fmt::format("{} trains {:.2f} times as many tokens per second as {} ({:.2f} to {:.2f} within "
                    "both ranges).",
                    name, slow.step_seconds / fast.step_seconds, other_name, least,
                    slow.step_interval.high / fast.step_interval.low));
    if (least < 1)
      sentences.emplace_back("So either of the two may be faster.");
    const double longest = fast.step_interval.high / fast.step_seconds * slow.step_seconds / slow.step_interval.low;
    const double shortest = fast.step_interval.low / fast.step_seconds * slow.step_seconds / slow.step_interval.high;
    const auto compare = [&](const char* verb, const char* what, const char* less, double a, double b) {
      if (a <= 0 || b <= 0)
        return;
      const double ratio = per_token(a, one, fast) / per_token(b, other, slow);
      sentences.push_back(
          fmt::format("For the same tokens, {} {} {:.2f} times as much{} as {} ({:.2f} to {:.2f} within both ranges).",
                      name, verb, ratio, what, other_name, shortest * ratio, longest * ratio));
      if (shortest * ratio < 1 && longest * ratio > 1)
        sentences.push_back(fmt::format("So either of the two may {}.", less));
    };
    if (one.cluster.currency == other.cluster.currency)
      compare("costs", "", "be cheaper", one.cluster.price_per_device_hour, other.cluster.price_per_device_hour);
    compare("takes", " energy", "take less energy", one.cluster.device_watts, other.cluster.device_watts);
  }
  return sentences;
}

ErrorReport no_common_layout_report(const std::vector<PlanProblem>& problems, const LayoutSpace& space) {
  for (const PlanProblem& problem : problems) {
    LayoutSpace own = space;
    own.num_devices = problem.cluster.num_devices();
    if (const SearchResult result = search_layouts(problem, own); result.ranking.empty()) {
      ErrorReport report = no_layout_report(problem, own, result);
      report.where = problem.cluster.name;
      return report;
    }
  }
  return {.what = "no layout fits all of these machines",
          .where = "espalier plan",
          .got = "each machine has layouts, but no layout fits all of them",
          .todo = "plan with one --cluster at a time to see them"};
}

CommonLayout search_common_layout(const std::vector<PlanProblem>& problems, const LayoutSpace& space) {
  return CommonSearch(problems, space).run();
}

}  // namespace espalier

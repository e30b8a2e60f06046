// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/loop/link_check.hpp"

#include <algorithm>
#include <limits>
#include <optional>

#include "core/types.hpp"
#include "parallel/collectives/collectives.hpp"
#include "parallel/collectives/point_to_point.hpp"
#include "parallel/observe/slow_link.hpp"

namespace espalier {
namespace {

// The best time counts. What stands out is tried again: a rank that shares its core with others waits its turn now and
// then, a slow link is slow each time.
constexpr int num_tries = 3;
constexpr int num_rounds = 6;

std::vector<int> distances(int size) {
  std::vector<int> result;
  for (int distance = 1; distance < size; distance = size <= 8 ? distance + 1 : 2 * distance)
    result.push_back(distance);
  return result;
}

// Seconds of a message from the rank that lies `distance` before this one. It is sent when this rank says that it
// waits: what comes before the receiver looks says nothing about the link.
double transit_from(const Communicator& group, int distance) {
  const ExecSpace exec;
  const int before = (group.rank() - distance + group.size()) % group.size();
  const int after = (group.rank() + distance) % group.size();
  const Tensor<float, 1> out(ledger_label(Category::communication, "link_check_out"), 1);
  const Tensor<float, 1> in(ledger_label(Category::communication, "link_check_in"), 1);
  const Tensor<float, 1> go(ledger_label(Category::communication, "link_check_go"), 1);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < num_tries; ++i) {
    Request receive = irecv(exec, group, in, before);
    Request asked = irecv(exec, group, go, after, tags::ready);
    Request ask = isend(exec, group, out, before, tags::ready);
    std::optional<Request> answer;
    receive.wait([&] {
      if (!answer && asked.test())
        answer.emplace(isend(exec, group, out, after));
    });
    best = std::min(best, group.clock().now() - receive.sent_at());
    if (!answer) {
      asked.wait();
      answer.emplace(isend(exec, group, out, after));
    }
    answer->wait();
    ask.wait();
  }
  return best;
}

// Of two the lower: of two links one may be slow.
double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct SlowTransit {
  std::size_t step;  ///< which of the distances
  int to;            ///< rank
};

// Those whose best time stands out from the typical.
std::vector<SlowTransit> slow_links(const std::vector<double>& seconds, std::size_t num_steps, double typical) {
  std::vector<SlowTransit> slow;
  for (std::size_t i = 0; i < seconds.size(); ++i)
    if (is_slow_link(seconds[i], typical))
      slow.push_back({.step = i % num_steps, .to = static_cast<int>(i / num_steps)});
  return slow;
}

void check_axis(const ProcessMesh& mesh, Axis axis, LinkTimes& links) {
  const Communicator& group = mesh.along(axis);
  const std::vector<int> steps = distances(group.size());
  std::vector<double> mine(steps.size(), std::numeric_limits<double>::infinity());
  std::vector<double> all(steps.size() * static_cast<std::size_t>(mesh.world().size()));
  double typical = 0;
  std::vector<SlowTransit> slow;
  for (int round = 0; round == 0 || (round < num_rounds && !slow.empty()); ++round) {
    for (std::size_t i = 0; i < steps.size(); ++i)
      mine[i] = std::min(mine[i], transit_from(group, steps[i]));
    all_gather(mesh.world(), std::span<double>(all), std::span<const double>(mine));
    typical = lower_median(all);
    slow = slow_links(all, steps.size(), typical);
  }

  links.typical_seconds[static_cast<std::size_t>(axis)] = typical;
  for (const SlowTransit& link : slow) {
    PerAxis sender = mesh.layout().coordinates(link.to);
    sender[axis] = (sender[axis] - steps[link.step] + group.size()) % group.size();
    links.slow.push_back({.axis = axis,
                          .from = mesh.layout().rank_at(sender),
                          .to = link.to,
                          .seconds = all[static_cast<std::size_t>(link.to) * steps.size() + link.step]});
  }
}

}  // namespace

LinkTimes check_links(const ProcessMesh& mesh) {
  LinkTimes links;
  for (const Axis axis : trained_axes)
    if (mesh.along(axis).size() > 1)
      check_axis(mesh, axis, links);
  return links;
}

}  // namespace espalier

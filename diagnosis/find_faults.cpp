// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/median.hpp"
#include "diagnosis/find_time.hpp"
#include "diagnosis/finding.hpp"
#include "parallel/observe/slow_link.hpp"
#include "parallel/reduction/reduction_plan.hpp"
#include "training/config/run_layout.hpp"

namespace espalier {
namespace {

constexpr double slower_than_predicted = 0.25;

std::string hosts_text(const RecordedRun& run, int from, int to) {
  return fmt::format("rank {} is on {}, rank {} on {}", from, run.facts.host_of(to_size(from)), to,
                     run.facts.host_of(to_size(to)));
}

bool on_one_host(const RecordedRun& run, int from, int to) {
  const std::vector<std::size_t>& hosts = run.facts.host_of_rank;
  return run.is_on_one_host() ||
         (to_size(std::max(from, to)) < hosts.size() && hosts[to_size(from)] == hosts[to_size(to)]);
}

// Inside a host, messages go through its memory.
Change slow_link_change(const RecordedRun& run, const Finding& link, const char* estimated_by) {
  const bool inside = on_one_host(run, link.ranks.front(), link.ranks.back());
  return {.setting = fmt::format("{}; parallel.order puts another axis on this link",
                                 inside ? "these ranks are on one host: free the cores that they run on (other "
                                          "processes, ranks bound to the same cores)"
                                        : "look at the cable, switch port or adapter between these hosts"),
          .gain_seconds = link.seconds,
          .estimated_by = estimated_by};
}

// A way from one stage to the next, or back.
struct Link {
  int from = 0;
  int to = 0;
  OperationKind send = OperationKind::send_activations;
  int from_stage = 0;
  double transit = 0;
};

std::vector<Link> links_of(const RecordedRun& run, const StepProfile& profile) {
  std::vector<Link> links;
  const int stages = run.config.layout.pipeline;
  for (int rank = 0; rank < static_cast<int>(profile.ranks.size()); ++rank) {
    const RankProfile& receiver = profile.ranks[to_size(rank)];
    const auto add = [&](OperationKind send, int step, double transit) {
      PerAxis coordinates = receiver.coordinates;
      coordinates[Axis::pp] = (coordinates[Axis::pp] + step + stages) % stages;
      if (transit > 0)
        links.push_back({run.config.layout.mesh().rank_at(coordinates), rank, send, coordinates[Axis::pp], transit});
    };
    add(OperationKind::send_activations, -1, receiver.activation_transit);
    add(OperationKind::send_gradients, 1, receiver.gradient_transit);
  }
  return links;
}

double cost_of_delay(const RecordedRun& run, const StepProfile& profile, const Link& link, double typical) {
  const int replica = profile.ranks[to_size(link.to)].coordinates[Axis::dp];
  PipelineCosts costs = pipeline_of(run, profile, work_of_replicas(run, profile)[to_size(replica)]);
  costs.message = typical;
  const double without = pipeline_time(costs).window;
  costs.delay = [&](int stage, const Operation& send) {
    return stage == link.from_stage && send.kind == link.send ? link.transit - typical : 0;
  };
  return pipeline_time(costs).window - without;
}

struct SlowLink {
  Link link;
  double typical = 0;  // seconds of the others' messages
};

// Each link against the others that also lie inside a node, or also between nodes.
std::vector<SlowLink> slow_links(const RecordedRun& run, const StepProfile& profile) {
  const std::vector<Link> links = links_of(run, profile);
  const auto crosses = [&](const Link& link) { return run.node_of(link.from) != run.node_of(link.to); };
  std::vector<SlowLink> slow;
  for (std::size_t i = 0; i < links.size(); ++i) {
    std::vector<double> others;
    for (std::size_t j = 0; j < links.size(); ++j)
      if (j != i && crosses(links[j]) == crosses(links[i]))
        others.push_back(links[j].transit);
    const double typical = median_of(others);
    if (!others.empty() && is_slow_link(links[i].transit, typical))
      slow.push_back({links[i], typical});
  }
  return slow;
}

void find_slow_links(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings) {
  for (const auto& [link, typical] : slow_links(run, profile)) {
    const double extra = link.transit - typical;
    const bool crosses = run.node_of(link.from) != run.node_of(link.to);
    Finding finding{.cause = Cause::slow_link, .title = {}, .size = extra, .unit = "s a message", .is_fault = true};
    finding.seconds = cost_of_delay(run, profile, link, typical);
    finding.title =
        fmt::format("messages from rank {} to rank {} arrive {:.3g} ms later than those of other links between stages",
                    link.from, link.to, 1e3 * extra);
    finding.ranks = {link.from, link.to};
    finding.evidence = {fmt::format("{} take {:.4g} ms; on the other links {} they take {:.4g} ms",
                                    link.send == OperationKind::send_activations ? "activations" : "gradients",
                                    1e3 * link.transit, crosses ? "between nodes" : "inside a node", 1e3 * typical),
                        hosts_text(run, link.from, link.to)};
    finding.changes = {slow_link_change(run, finding, "the simulated schedule with this link as fast as the others")};
    findings.push_back(std::move(finding));
  }
}

// Messages of a step that may follow one another over a link between replicas (two a bucket of gradients, rather too
// many) or tensor ranks (those of its collectives).
double max_messages(const RecordedRun& run, const LinkTimes::Slow& link) {
  const RunConfig& config = run.config;
  const auto sent =
      static_cast<double>(run.ranks[to_size(link.to)].back().bytes_sent[static_cast<std::size_t>(link.axis)]);
  if (link.axis == Axis::dp) {
    const ReducerOptions options;
    const double bucket = std::clamp(sent / options.buckets, static_cast<double>(options.smallest_bucket_bytes),
                                     static_cast<double>(options.bucket_bytes));
    return 2 * std::ceil(std::max(1.0, sent / bucket));
  }
  const int stage = config.layout.mesh().coordinates(link.to)[Axis::pp];
  const std::vector<PipelineSchedule> schedules = make_schedules(config, config.layout);
  int passes = 0;  // of the ring, each with a message less than it has ranks
  for (const Operation& operation : schedules[to_size(stage)])
    passes += operation.tensor.passes();
  return static_cast<double>(passes) * (config.layout.mesh().degree(link.axis) - 1);
}

Phase exchange_along(Axis axis) { return axis == Axis::dp ? Phase::data_comm : Phase::tensor_comm; }

// The exposed exchange of the group, but for the share that it would take over the other links; and no more than each
// message's delay.
double cost_of_link_slow_at_start(const RecordedRun& run, const StepProfile& profile, const LinkTimes::Slow& link) {
  const double extra = link.seconds - run.facts.links.typical(link.axis);
  const double exposed = min_of_group(run, profile, link.to, link.axis, exchange_along(link.axis));
  return std::min(exposed * extra / link.seconds, max_messages(run, link) * extra);
}

// Between stages find_slow_links() sees the messages of the steps themselves.
bool is_reported_by_launch(const RecordedRun& run, const LinkTimes::Slow& link) {
  return link.axis != Axis::pp && std::max(link.from, link.to) < run.config.layout.num_devices();
}

// Between replicas or tensor ranks: what the launch measured.
void find_links_slow_at_start(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings) {
  for (const LinkTimes::Slow& link : run.facts.links.slow) {
    if (!is_reported_by_launch(run, link))
      continue;
    const Phase phase = exchange_along(link.axis);
    const double extra = link.seconds - run.facts.links.typical(link.axis);
    Finding finding{.cause = Cause::slow_link, .title = {}, .size = extra, .unit = "s a message", .is_fault = true};
    finding.seconds = cost_of_link_slow_at_start(run, profile, link);
    finding.title = fmt::format("messages from rank {} to rank {} arrive {:.3g} ms later than those of other {}",
                                link.from, link.to, 1e3 * extra, link.axis == Axis::dp ? "replicas" : "tensor ranks");
    finding.ranks = {link.from, link.to};
    finding.evidence = {fmt::format("a small message took {:.4g} ms at launch, over other links {:.4g} ms",
                                    1e3 * link.seconds, 1e3 * run.facts.links.typical(link.axis)),
                        fmt::format("the least {} of the ranks of this group is {:.4g} s a step", to_string(phase),
                                    min_of_group(run, profile, link.to, link.axis, phase)),
                        hosts_text(run, link.from, link.to)};
    finding.changes = {
        slow_link_change(run, finding, "upper bound: the smaller of the exposed exchange and the sum of the delays")};
    findings.push_back(std::move(finding));
  }
}

void find_data_stall(const StepProfile& profile, std::vector<Finding>& findings) {
  Finding finding{.cause = Cause::data_stall,
                  .title = {},
                  .seconds = profile.stall_seconds,
                  .size = profile.stall_seconds,
                  .unit = "s a step",
                  .is_fault = true};
  finding.title = fmt::format("reading tokens holds each step up for {:.4g} s", profile.stall_seconds);
  finding.ranks = {profile.stalled_rank};
  finding.evidence = {
      fmt::format("average time of the slowest reader of a step, most often rank {}", profile.stalled_rank)};
  finding.changes = {{.setting = "data.train on a disk of the node, or files that fit into its memory",
                      .gain_seconds = profile.stall_seconds,
                      .estimated_by = "all of the phase `data`"}};
  findings.push_back(std::move(finding));
}

void find_checkpoint_stall(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings) {
  const Index interval = run.config.checkpoint.interval;
  Finding finding{.cause = Cause::checkpoint_stall,
                  .title = {},
                  .seconds = profile.checkpoint_seconds,
                  .size = profile.checkpoint_seconds,
                  .unit = "s a step",
                  .is_fault = true};
  finding.title = fmt::format("training waits for saves: {:.4g} s a step on average", profile.checkpoint_seconds);
  finding.evidence = {fmt::format("checkpoint.interval = {}: a save takes about {:.4g} s", interval,
                                  profile.checkpoint_seconds * static_cast<double>(std::max<Index>(1, interval)))};
  finding.changes = {{.setting = fmt::format("checkpoint.interval = {}", 4 * std::max<Index>(1, interval)),
                      .gain_seconds = profile.checkpoint_seconds * 3 / 4,
                      .estimated_by = "a save takes the same time, but there are a quarter as many"}};
  findings.push_back(std::move(finding));
}

void find_slow_compute(const RecordedRun& run, const StepProfile& profile, std::vector<Finding>& findings) {
  if (!run.predicted_time || run.predicted_time->stages.size() != profile.stage_work.size())
    return;
  double least = std::numeric_limits<double>::infinity();  // of the ranks: what all of them are slower by
  std::vector<double> predictions;
  const StepProfile healthy = without_slow_ranks(profile);
  for (const RankProfile& rank : healthy.ranks) {
    const PhaseSeconds& predicted = run.predicted_time->stages[to_size(rank.coordinates[Axis::pp])];
    const double seconds = predicted[Phase::forward] + predicted[Phase::backward];
    if (seconds <= 0)
      return;
    least = std::min(least, rank.compute() / seconds);
    predictions.push_back(seconds);
  }
  if (least < 1 + std::max(slower_than_predicted, run.predicted_time->error_share))
    return;
  Finding finding{.cause = Cause::slow_compute, .title = {}, .size = least, .unit = "times as long"};
  finding.seconds = (least - 1) * median_of(predictions);
  finding.title = fmt::format("{} {:.0f} % longer than predicted",
                              profile.ranks.size() == 1 ? "the rank computes" : "all ranks compute", 100 * (least - 1));
  finding.evidence = {fmt::format("the prediction is by {}", run.predicted_time->source)};
  finding.changes = {{.setting =
                          "fewer threads than cores? another GEMM library (run.matmul)? other jobs on the nodes? "
                          "`espalier bench ops` measures this machine",
                      .gain_seconds = finding.seconds,
                      .estimated_by = "the prediction"}};
  findings.push_back(std::move(finding));
}

}  // namespace

bool has_slow_stage_link(const RecordedRun& run, const StepProfile& profile) {
  return !slow_links(run, profile).empty();
}

double min_of_group(const RecordedRun& run, const StepProfile& profile, int rank, Axis axis, Phase phase) {
  double least = std::numeric_limits<double>::infinity();
  for (const int member : run.config.layout.mesh().group(rank, axis))
    least = std::min(least, profile.ranks[to_size(member)].seconds[phase]);
  return least;
}

double seconds_of_slow_links(const RecordedRun& run, const StepProfile& profile, int rank, Axis axis) {
  const std::vector<int> group = run.config.layout.mesh().group(rank, axis);
  double most = 0;
  for (const LinkTimes::Slow& link : run.facts.links.slow)
    if (link.axis == axis && is_reported_by_launch(run, link) && std::ranges::find(group, link.to) != group.end())
      most = std::max(most, cost_of_link_slow_at_start(run, profile, link));
  return most;
}

std::vector<Finding> find_faults(const RecordedRun& run, const StepProfile& profile) {
  std::vector<Finding> findings;
  find_slow_ranks(run, profile, findings);
  find_slow_links(run, profile, findings);
  find_links_slow_at_start(run, profile, findings);
  find_data_stall(profile, findings);
  find_checkpoint_stall(run, profile, findings);
  find_slow_compute(run, profile, findings);
  return findings;
}

}  // namespace espalier

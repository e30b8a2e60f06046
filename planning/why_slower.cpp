// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/why_slower.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "io/units.hpp"
#include "planning/collective_time.hpp"
#include "planning/time_text.hpp"

namespace espalier {
namespace {

// "8", or "8 instead of 2" where the best has some, too.
std::string instead_text(Index count, Index of_best) {
  return of_best > 1 ? fmt::format("{} instead of {}", count, of_best) : fmt::format("{}", count);
}

// Products of one tensor rank and one micro-batch, against those of the best; empty where none are smaller, or some are
// and others larger.
std::string smaller_products(const Layout& layout, const Layout& best) {
  const auto rows = [](const Layout& of) { return static_cast<double>(of.micro_batch) / of.context; };
  if (layout.tensor < best.tensor || rows(layout) > rows(best))
    return {};
  std::vector<std::string> changes;
  if (layout.tensor > best.tensor)
    changes.push_back(fmt::format("tensor {} instead of {}", layout.tensor, best.tensor));
  if (layout.micro_batch < best.micro_batch)
    changes.push_back(fmt::format("micro-batch {} instead of {}", layout.micro_batch, best.micro_batch));
  if (layout.context > best.context)
    changes.push_back(fmt::format("context {} instead of {}", layout.context, best.context));
  return changes.empty() ? "" : fmt::format("smaller matmuls ({}) run at a lower rate", fmt::join(changes, ", "));
}

// Seconds that stages compute in a step.
struct StageWork {
  double mean = 0;
  double busiest = 0;
  double unevenness() const { return mean > 0 ? busiest / mean : 1; }
};

StageWork stage_work(const LayoutPrice& price) {
  StageWork found;
  for (const std::vector<ChunkPrice>& stage : price.chunks) {
    double work = 0;
    for (const ChunkPrice& chunk : stage)
      work += static_cast<double>(price.layout.num_microbatches()) * chunk.work.total();
    found.busiest = std::max(found.busiest, work);
    found.mean += work / static_cast<double>(price.chunks.size());
  }
  return found;
}

std::string cause_of_compute(const LayoutPrice& price, const LayoutPrice& best) {
  constexpr double same = 0.005;
  if (price.layout.precision != best.layout.precision)
    return fmt::format("it computes in {}", to_string(price.layout.precision));
  const StageWork work = stage_work(price);
  const StageWork of_best = stage_work(best);
  const double more_uneven = work.unevenness() / of_best.unevenness();
  if (more_uneven > 1 + same && more_uneven > work.mean / of_best.mean)
    return fmt::format("its busiest stage has {:.0f} % more work than its mean stage (best layout: {:.0f} %)",
                       100 * (work.unevenness() - 1), 100 * (of_best.unevenness() - 1));
  if (work.mean < (1 + same) * of_best.mean)
    return {};
  if (std::string products = smaller_products(price.layout, best.layout); !products.empty())
    return products;
  if (price.layout.tensor > 1 && !price.layout.sequence_parallel && best.layout.sequence_parallel)
    return "each tensor rank computes norms and residuals of all rows";
  return {};
}

std::string cause_of_backward(const LayoutPrice& price, const LayoutPrice& best) {
  const Recompute mode = price.layout.recompute;
  const Recompute of_best = best.layout.recompute;
  const double more = price[Phase::backward] - best[Phase::backward];
  if (mode == of_best || price.recompute_seconds - best.recompute_seconds < more / 2)
    return cause_of_compute(price, best);
  return of_best == Recompute::none
             ? fmt::format("recompute {} repeats work", to_string(mode))
             : fmt::format("recompute {} repeats more work than {}", to_string(mode), to_string(of_best));
}

std::string cause_of_tensor_messages(const Cluster& cluster, const Layout& layout, const Layout& best) {
  const auto crosses = [&](const Layout& of) { return of.tensor > 1 && crosses_nodes(cluster, tensor_axis(of)); };
  if (crosses(layout) && !crosses(best))
    return "its tensor ranks are on several nodes";
  if (layout.tensor > best.tensor)
    return fmt::format("{} tensor ranks exchange activations in every block", instead_text(layout.tensor, best.tensor));
  if (layout.context > best.context)
    return fmt::format("{} context ranks exchange keys and values in every block",
                       instead_text(layout.context, best.context));
  if (layout.recompute == Recompute::full && best.recompute != Recompute::full)
    return "recompute full repeats its collectives";
  if (layout.num_microbatches() > best.num_microbatches())
    return fmt::format("{} instead of {} micro-batches have collectives of their own", layout.num_microbatches(),
                       best.num_microbatches());
  return {};
}

std::string cause_of_bubble(const Layout& layout, const Layout& best) {
  const auto shares = [](const Layout& of) {
    return fmt::format("{} stages share {}", of.pipeline, counted(of.num_microbatches(), "micro-batch"));
  };
  if (best.pipeline == 1)
    return shares(layout);
  // Of a plain pipeline the share that fills and drains it.
  const auto ends = [](const Layout& of) { return (of.pipeline - 1.0) / static_cast<double>(of.num_microbatches()); };
  const double longer_ends = ends(layout) / ends(best);
  const double fewer_chunks = static_cast<double>(best.virtual_stages) / layout.virtual_stages;
  if (longer_ends > 1.01 && longer_ends >= fewer_chunks)
    return fmt::format("{} (best layout: {})", shares(layout), shares(best));
  if (fewer_chunks > 1)
    return fmt::format("it has {} per stage instead of {}", counted(layout.virtual_stages, "virtual stage"),
                       best.virtual_stages);
  if (layout.schedule != best.schedule)
    return fmt::format("its schedule is {} instead of {}", to_string(layout.schedule), to_string(best.schedule));
  return {};
}

std::string cause_of_stage_messages(const Cluster& cluster, const Layout& layout, const Layout& best) {
  if (best.pipeline == 1)
    return "stages wait for messages";
  if (crosses_nodes(cluster, pipeline_axis(layout)) && !crosses_nodes(cluster, pipeline_axis(best)))
    return "its stages are on several nodes";
  if (layout.pipeline * layout.virtual_stages > best.pipeline * best.virtual_stages)
    return fmt::format("{} instead of {} parts of the model send to the next part",
                       layout.pipeline * layout.virtual_stages, best.pipeline * best.virtual_stages);
  if (layout.num_microbatches() > best.num_microbatches())
    return fmt::format("{} instead of {} micro-batches travel from stage to stage", layout.num_microbatches(),
                       best.num_microbatches());
  return {};
}

// Under ZeRO-3 weights are gathered, under ZeRO-2 gradients scattered, for every micro-batch.
std::string cause_of_every_microbatch(const Layout& layout, const Layout& best) {
  const char* const what = layout.zero_stage == 3 ? "weights are gathered" : "gradients are scattered";
  if (layout.zero_stage < 2)
    return {};
  if (layout.zero_stage > best.zero_stage)
    return fmt::format("{} for every micro-batch", what);
  if (layout.num_microbatches() > best.num_microbatches())
    return fmt::format("{} for {} instead of {} micro-batches", what, layout.num_microbatches(),
                       best.num_microbatches());
  return {};
}

std::string cause_of_gradient_messages(const Cluster& cluster, const LayoutPrice& price, const LayoutPrice& best) {
  const Layout& layout = price.layout;
  const auto replicas = [](const Layout& of) { return Index{of.data} * of.context; };
  if (std::string cause = cause_of_every_microbatch(layout, best.layout); !cause.empty())
    return cause;
  if (replicas(layout) == 1)
    return best.tied_seconds > 0 ? "" : "the first and the last stage sum the gradients of their token embedding";
  if (replicas(best.layout) > 1 && crosses_nodes(cluster, data_axis(layout)) &&
      !crosses_nodes(cluster, data_axis(best.layout)))
    return "its replicas are on several nodes";
  // A ring of r ranks sends 2 (r - 1) / r times what each holds: the size of the shards counts for more than r.
  const double larger_shards =
      static_cast<double>(best.layout.tensor * best.layout.pipeline) / (layout.tensor * layout.pipeline);
  const auto sent = [&](const Layout& of) { return 1 - 1.0 / static_cast<double>(replicas(of)); };
  if (larger_shards > 1 && larger_shards * sent(best.layout) >= sent(layout))
    return fmt::format("each rank sums gradients of {:.3g} times as many weights", larger_shards);
  if (replicas(layout) > replicas(best.layout))
    return fmt::format("gradients are summed over {} ranks", instead_text(replicas(layout), replicas(best.layout)));
  return {};
}

// Why `price` has more of a phase than `best`: what holds for the one and not for the other; else empty.
std::string cause_of(const PlanProblem& problem, const LayoutPrice& price, const LayoutPrice& best, Phase phase) {
  const Cluster& cluster = problem.cluster;
  switch (phase) {
    case Phase::tensor_comm: return cause_of_tensor_messages(cluster, price.layout, best.layout);
    case Phase::bubble: return cause_of_bubble(price.layout, best.layout);
    case Phase::pipeline_comm: return cause_of_stage_messages(cluster, price.layout, best.layout);
    case Phase::data_comm: return cause_of_gradient_messages(cluster, price, best);
    case Phase::forward: return cause_of_compute(price, best);
    case Phase::backward: return cause_of_backward(price, best);
    case Phase::optimizer: return "each rank updates more weights";
    case Phase::data:
    case Phase::checkpoint:
    case Phase::other: break;
  }
  return {};
}

}  // namespace

std::string against_text(const LayoutPrice& price, const LayoutPrice& best) {
  const double percent = 100 * std::abs(price.step_seconds / best.step_seconds - 1);
  return fmt::format("{} % ({})", percent < 0.05 ? fmt::format("{:.2g}", percent) : fmt::format("{:.1f}", percent),
                     time_text(price.step_seconds, " against ", best.step_seconds));
}

Comparison compare_speed(const PlanProblem& problem, const LayoutPrice& price, const LayoutPrice& best) {
  if (price.step_seconds < best.step_seconds * (1 + equal_share))
    return {fmt::format("as fast ({})", time_text(price.step_seconds)), ""};
  const std::string result = "slower by " + against_text(price, best);
  if (price.layout.num_devices() < best.layout.num_devices())
    return {result, fmt::format("It uses {} instead of {}", counted(price.layout.num_devices(), "device"),
                                best.layout.num_devices())};
  const Phase phase = phase_with_most([&](Phase each) { return price[each] - best[each]; });
  const std::string cause = cause_of(problem, price, best, phase);
  return {result, fmt::format("It spends {} more in {}{}", time_text(price[phase] - best[phase]), to_string(phase),
                              cause.empty() ? "" : ", because " + cause)};
}

std::string why_slower(const PlanProblem& problem, const LayoutPrice& price, const LayoutPrice& best) {
  const auto [result, reason] = compare_speed(problem, price, best);
  return reason.empty() ? result : result + ". " + reason;
}

const char* what_is_more_complex(const Layout& layout, const Layout& best) {
  return layout.pipeline > best.pipeline       ? "it has more stages"
         : layout.tensor > best.tensor         ? "it has more tensor parallelism"
         : layout.zero_stage > best.zero_stage ? "it has a higher ZeRO stage"
                                               : "";
}

}  // namespace espalier

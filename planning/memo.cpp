// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/memo.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "io/units.hpp"
#include "planning/layout_memory.hpp"
#include "planning/mitigation.hpp"
#include "planning/runnable.hpp"

namespace espalier {
namespace {

constexpr double worthwhile = 0.005;  // a gain below is not one

std::string bytes(double value) { return bytes_text(static_cast<std::size_t>(value)); }

std::string microbatches_text(Index count) { return fmt::format("{} micro-batch{}", count, count == 1 ? "" : "es"); }

std::string share(double part, double whole) { return fmt::format("{:.1f} %", 100 * part / whole); }

class Memo {
 public:
  Memo(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result,
       const std::vector<ScalePoint>& scaling)
      : problem_(problem),
        space_(space),
        result_(result),
        scaling_(scaling),
        best_(result.ranking.front()),
        layout_(best_.layout),
        room_(static_cast<std::size_t>(problem.cluster.device.memory_bytes - problem.cluster.reserved_bytes)) {}

  std::string text() {
    recommendation();
    memory();
    gradients();
    microbatches();
    precision();
    bottleneck_and_mitigation();
    scaling();
    alternatives();
    basis();
    return text_;
  }

 private:
  template <class... Arguments>
  void say(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
    text_ += fmt::format(format, std::forward<Arguments>(arguments)...);
  }

  // What a sentence about a layout that does not fit must not leave out; empty where it fits.
  std::string fit_text(const LayoutPrice& price) const {
    return why_too_large(problem_, price).empty()
               ? ""
               : fmt::format(" (which does not fit: {} on the fullest device, {} free)", bytes_text(price.memory_bytes),
                             bytes_text(room_));
  }

  LayoutPrice price_in(Precision precision) const {
    PlanLayout other = layout_;
    other.precision = precision;
    return price_layout(problem_, other);
  }

  void recommendation() {
    const Cluster& cluster = problem_.cluster;
    say("# How to train {} on {} {}\n\n", problem_.model.name, space_.num_devices, cluster.device.name);
    say("**Recommendation.** {}: {:.3g} s a step (+-{:.0f} %), {:.4g} tokens a second, MFU {:.1f} %, {} of {} on the "
        "fullest "
        "device.\n\n",
        layout_.text(), best_.step_seconds, 100 * best_.error_share, best_.tokens_per_second,
        100 * best_.model_flops_share, bytes_text(best_.memory_bytes), bytes_text(room_));
    say("Model: {:.4g} billion parameters, {} layers, hidden size {}. Machine: {} with {} of {} each. Batch: {} of {} "
        "tokens, "
        "in {} of {} on each of {}.\n\n",
        num_parameters(problem_.model) / 1e9, problem_.model.num_layers, problem_.model.hidden_size,
        counted(cluster.num_nodes, "node"), counted(cluster.devices_per_node, "device"),
        bytes_text(static_cast<std::size_t>(cluster.device.memory_bytes)), counted(layout_.global_batch, "sequence"),
        problem_.sequence_length, microbatches_text(layout_.num_microbatches()), layout_.micro_batch,
        counted(layout_.data, "replica"));
    if (const std::string reason = why_not_runnable(problem_, layout_); !reason.empty())
      say("Priced, not yet runnable: {}.\n\n", reason);
  }

  void memory() {
    const StateBytes states = state_bytes(layout_.precision, problem_.implementation);
    const double parameters = num_parameters(problem_.model);
    say("## How it fits in memory\n\n");
    const double devices = parameters * states.total() / static_cast<double>(room_);
    say("Weights, gradients and optimizer take {:.0f} bytes a parameter, {} in all: {:.{}f} times what one device "
        "has. ",
        states.total(), bytes(parameters * states.total()), devices, devices < 10 ? 1 : 0);
    const int shards = layout_.tensor * layout_.pipeline;
    say("{}{}.\n\n",
        shards == 1 ? "Tensor 1 x pipeline 1 leaves the model in one piece"
                    : fmt::format("Tensor {} x pipeline {} cuts the model into {} shards", layout_.tensor,
                                  layout_.pipeline, shards),
        layout_.zero_stage == 0 || layout_.data * layout_.context == 1
            ? ""
            : fmt::format("; ZeRO-{} shares {} among {} ranks with the same shard", layout_.zero_stage,
                          layout_.zero_stage == 1   ? "the optimizer"
                          : layout_.zero_stage == 2 ? "optimizer and gradients"
                                                    : "all three",
                          layout_.data * layout_.context));
    const MemoryByCategory& stage = best_.memory[static_cast<std::size_t>(best_.fullest_stage)];
    say("| on stage {} of {}, the fullest | bytes |\n|---|---|\n", best_.fullest_stage, layout_.pipeline);
    for (std::size_t c = 0; c < num_categories; ++c)
      if (stage.bytes[c] > 0)
        say("| {} | {} |\n", to_string(static_cast<Category>(c)), bytes_text(stage.bytes[c]));
    say("| total | {}, {} of what is free |\n\n", bytes_text(stage.total()),
        share(static_cast<double>(stage.total()), static_cast<double>(room_)));
    for (const auto& [name, rejection] : plain_rejections(problem_, space_, best_))
      say("- Not {}: {}.\n", name, rejection.reason);
    say("\n");
  }

  void gradients() {
    say("## Where gradients are synchronised, and what it costs\n\n");
    if (layout_.data * layout_.context == 1) {
      say("There is one replica: no gradients are summed. A larger batch goes through as more micro-batches.\n\n");
      return;
    }
    const StateBytes whole = state_bytes(layout_.precision, problem_.implementation);
    const double kept = sharded_state_bytes(whole, layout_.zero_stage, layout_.data * layout_.context).weights;
    const double elements = static_cast<double>(best_.memory[0][Category::weights]) / kept;
    const bool every_time = layout_.zero_stage >= 2;
    say("Each of the {} has seen its own part of the batch; gradients are summed {}, over {}, {}. The first stage's "
        "take {} at {:.0f} bytes each. Of the step {:.3g} s ({}) wait for it",
        layout_.data > 1 ? fmt::format("{} replicas", layout_.data) : fmt::format("{} context ranks", layout_.context),
        every_time ? "after every micro-batch, because no rank keeps all of them"
                   : "once a step, with the last micro-batch",
        counted(layout_.data * layout_.context, "rank"),
        crosses_nodes(problem_.cluster, layout_.data_axis()) ? "over the network" : "inside the node",
        bytes(elements * whole.gradients), whole.gradients, best_[PlanPhase::data_comm],
        share(best_[PlanPhase::data_comm], best_.step_seconds));
    if (layout_.zero_stage == 3)
      say(", and for the weights, which are gathered before each use");
    if (every_time) {
      say(".\n\n");
      return;
    }
    if (best_.hidden_data_seconds <= 0) {
      say("; nothing is hidden behind other work.\n\n");
      return;
    }
    say("; {:.3g} s are hidden behind other work.\n\n", best_.hidden_data_seconds);
    PlanProblem exposed = problem_;
    exposed.implementation.overlaps_reduction = false;
    const LayoutPrice without = price_layout(exposed, layout_);
    say("The reduction starts block by block inside the last backward. Without that overlap the step would take "
        "{:.3g} s, {:.1f} % more.\n\n",
        without.step_seconds, 100 * (without.step_seconds / best_.step_seconds - 1));
  }

  void microbatches() {
    say("## What micro-batches do\n\n");
    if (layout_.pipeline == 1) {
      say("There is one stage, so nothing waits for another: {} of {} {}.\n",
          microbatches_text(layout_.num_microbatches()), counted(layout_.micro_batch, "sequence"),
          layout_.num_microbatches() == 1 ? "hold all activations of a step at once"
          : layout_.zero_stage == 3       ? "bound the activations, and each gathers the weights anew"
          : layout_.zero_stage == 2       ? "bound the activations, and each sums its gradients"
                                          : "only bound the activations");
      PlanLayout split = layout_;
      split.pipeline = std::gcd(4, static_cast<int>(std::min<Index>(problem_.model.num_layers, layout_.data)));
      if (split.pipeline > 1 && layout_.data % split.pipeline == 0) {
        split.data = layout_.data / split.pipeline;
        compare_microbatches(split);
      }
      say("\n");
      return;
    }
    compare_microbatches(layout_);
    say("\n");
  }

  // The same stages with the whole share of a replica as one micro-batch.
  void compare_microbatches(const PlanLayout& pipelined) {
    PlanLayout naive = pipelined;
    naive.micro_batch = pipelined.global_batch / pipelined.data;
    naive.schedule = PlanSchedule::one_f_one_b;
    naive.virtual_stages = 1;
    if (!why_impossible(problem_, naive).empty() || !why_impossible(problem_, pipelined).empty())
      return;
    const LayoutPrice bare = price_layout(problem_, naive);
    const LayoutPrice with = price_layout(problem_, pipelined);
    say("Naively split, {} stages work one after the other: {:.0f} % of the device time is idle, a step takes {:.3g} "
        "s{}. ",
        pipelined.pipeline, 100 * bare.idle_share, bare.step_seconds, fit_text(bare));
    if (pipelined.num_microbatches() > 1)
      say("With {} micro-batches ({}) the idle share is {:.1f} % and the step {:.3g} s{}, {:.1f} times as fast. ",
          pipelined.num_microbatches(), to_string(pipelined.schedule), 100 * with.idle_share, with.step_seconds,
          fit_text(with), bare.step_seconds / with.step_seconds);
    PlanLayout half = pipelined;
    half.micro_batch *= 2;
    if (pipelined.num_microbatches() % 2 == 0 && why_impossible(problem_, half).empty()) {
      const LayoutPrice fewer = price_layout(problem_, half);
      say("Half as many, twice as large: idle {:.1f} %, {:.3g} s{}.", 100 * fewer.idle_share, fewer.step_seconds,
          fit_text(fewer));
    }
    say("\n");
  }

  void precision() {
    say("## Precision\n\n");
    const Accelerator& device = problem_.cluster.device;
    const StateBytes states = state_bytes(layout_.precision, problem_.implementation);
    if (states.weights == 4) {
      say("Products are computed in {}; all that is kept is fp32, {:.0f} bytes a parameter. ",
          to_string(layout_.precision), states.total());
      const Precision half = device.has(Precision::bf16) ? Precision::bf16 : Precision::fp16;
      if (device.has(half)) {
        const LayoutPrice fast = price_in(half);
        say("In {} this layout would take {:.3g} s a step instead of {:.3g} s{}.\n\n", to_string(half),
            fast.step_seconds, best_.step_seconds, fit_text(fast));
      } else {
        say("The device has no faster type of 16 bits.\n\n");
      }
      return;
    }
    if (device.has(Precision::fp32)) {
      const LayoutPrice slow = price_in(Precision::fp32);
      say("Products in {} instead of fp32: {:.3g} s a step instead of {:.3g} s{}. ", to_string(layout_.precision),
          best_.step_seconds, slow.step_seconds, fit_text(slow));
    }
    say("Activations take {} bytes an element, in fp32 4; states {:.0f} bytes a parameter, in fp32 {:.0f}.\n\n",
        activation_bytes(layout_.precision), states.total(),
        state_bytes(Precision::fp32, problem_.implementation).total());
    what_stays_in_fp32(states);
    range_of_the_exponent();
  }

  void what_stays_in_fp32(const StateBytes& states) {
    const MemoryByCategory& stage = best_.memory[static_cast<std::size_t>(best_.fullest_stage)];
    const bool is_fp16 = layout_.precision == Precision::fp16;
    say("What stays in fp32, and why:\n\n");
    say("- master weights and Adam's moments, {} a rank: an update of a thousandth of a weight vanishes in the {} bits "
        "of {}'s mantissa;\n",
        bytes_text(stage[Category::optimizer]), is_fp16 ? 10 : 7, is_fp16 ? "fp16" : "bf16");
    if (states.gradients == 4)
      say("- gradients as they are summed over {} and {}, {} a rank: small terms would be lost in a large sum;\n",
          microbatches_text(layout_.num_microbatches()), counted(layout_.data, "replica"),
          bytes_text(stage[Category::gradients]));
    say("- statistics of norms and softmax, and the loss: sums over up to {} columns.\n\n",
        std::max(problem_.model.hidden_size, problem_.model.vocab_size));
  }

  void range_of_the_exponent() {
    const Accelerator& device = problem_.cluster.device;
    if (layout_.precision == Precision::fp16) {
      say("fp16 ends at 65504 and loses what is below 6e-8: it needs loss scaling, skips steps that overflow, and can "
          "diverge when the scale collapses. bf16 has the range of fp32, ");
      if (device.has(Precision::bf16))
        say("and takes {:.3g} s a step.\n\n", price_in(Precision::bf16).step_seconds);
      else
        say("but this device has none.\n\n");
    }
    if (layout_.precision == Precision::bf16) {
      say("bf16 has the range of fp32, so no loss scaling is needed");
      if (device.has(Precision::fp16))
        say("; fp16 would take {:.3g} s a step and overflow at 65504", price_in(Precision::fp16).step_seconds);
      say(".\n\n");
    }
  }

  // Seconds of a phase for as many tokens as a step has now.
  double comparable(const LayoutPrice& price, PlanPhase phase) const {
    return price[phase] * static_cast<double>(layout_.global_batch) / static_cast<double>(price.layout.global_batch);
  }

  // The phase that a change shortens most; or lengthens, where it loses.
  std::string where_text(const Mitigation& option) const {
    const auto benefit = [&](std::size_t i) {
      const double seconds = best_.seconds[i] - comparable(option.price, static_cast<PlanPhase>(i));
      return option.gain >= 0 ? seconds : -seconds;
    };
    std::size_t most = 0;
    for (std::size_t i = 1; i < num_plan_phases; ++i)
      if (benefit(i) > benefit(most))
        most = i;
    return fmt::format("{} {:.3g} s instead of {:.3g} s", to_string(static_cast<PlanPhase>(most)),
                       comparable(option.price, static_cast<PlanPhase>(most)), best_.seconds[most]);
  }

  void faster_links() {
    PlanProblem faster = problem_;
    const bool crosses = problem_.cluster.num_nodes > 1;
    LinkTier& link = crosses ? faster.cluster.network : faster.cluster.node;
    link.bandwidth *= 2;
    link.alone *= 2;
    say(" Twice the bandwidth {} would give {:+.1f} % tokens a second.", crosses ? "between nodes" : "inside the node",
        100 * (price_layout(faster, layout_).tokens_per_second / best_.tokens_per_second - 1));
  }

  void bottleneck_and_mitigation() {
    const PlanPhase phase = bottleneck(best_);
    say("## The most likely bottleneck, and the first thing to try\n\n");
    const std::string compute = share(best_[PlanPhase::forward] + best_[PlanPhase::backward], best_.step_seconds);
    if (best_[phase] < worthwhile * best_.step_seconds)
      say("Forward and backward themselves are {} of the step, and no other phase half a per cent.\n\n", compute);
    else
      say("Beside forward and backward themselves ({} of the step) most time goes to {}: {:.3g} s, {}.\n\n", compute,
          to_string(phase), best_[phase], share(best_[phase], best_.step_seconds));
    const std::vector<Mitigation> options = mitigations(problem_, best_);
    if (!options.empty() && options.front().gain >= worthwhile) {
      const Mitigation& first = options.front();
      say("First try {}: {:+.1f} % tokens a second, most of it in {} for as many tokens, {} on the fullest device.",
          first.change, 100 * first.gain, where_text(first), bytes_text(first.price.memory_bytes));
    } else {
      say("{}", options.empty() ? "No single change to the layout is possible and fits."
                                : "No single change to the layout gains half a per cent.");
      if (space_.num_devices > 1)
        faster_links();
    }
    say("\n\n");
    if (options.empty())
      return;
    say("| change | tokens/s | most of it in (for as many tokens) | memory |\n|---|---|---|---|\n");
    for (std::size_t i = 0; i < std::min<std::size_t>(options.size(), 5); ++i)
      say("| {} | {:+.1f} % | {} | {} |\n", options[i].change, 100 * options[i].gain, where_text(options[i]),
          bytes_text(options[i].price.memory_bytes));
    say("\n");
  }

  void scaling() {
    if (scaling_.empty())
      return;
    say("## Scaling\n\n| devices | batch | step | tokens/s | efficiency | layout | what bends "
        "|\n|---|---|---|---|---|---|---|\n");
    for (const ScalePoint& point : scaling_)
      if (point.price)
        say("| {} | {} | {:.3g} s | {:.4g} | {:.1f} % | {} | {} |\n", point.num_devices, point.global_batch,
            point.price->step_seconds, point.price->tokens_per_second, 100 * point.efficiency,
            point.price->layout.text(), point.what_bends);
      else
        say("| {} | {} | | | | | {} |\n", point.num_devices, point.global_batch, point.what_bends);
    say("\n");
  }

  void alternatives() {
    say("## What else was considered\n\n{} layouts: {} impossible, {} too large for a device.\n\n",
        result_.num_considered, result_.num_impossible, result_.num_too_large);
    std::size_t shown = 0;
    for (const Rejection& rejection : result_.rejections)
      if (shown++ < 5)
        say("- {}: {}.\n", rejection.layout.text(), rejection.reason);
    say("\n");
  }

  void basis() {
    say("## What this rests on\n\nTimes are predictions with an error of about {:.0f} %: products by the device's "
        "efficiency "
        "curve in {}, elementwise work by its memory bandwidth, collectives by ring formulas on the links that their "
        "axis lies "
        "on, the pipeline by running its operation lists in a simulator. Memory is counted from the shapes; {} of each "
        "device "
        "are kept back for the runtime.\n",
        100 * best_.error_share, to_string(layout_.precision),
        bytes_text(static_cast<std::size_t>(problem_.cluster.reserved_bytes)));
  }

  const PlanProblem& problem_;
  const LayoutSpace& space_;
  const SearchResult& result_;
  const std::vector<ScalePoint>& scaling_;
  const LayoutPrice& best_;
  const PlanLayout& layout_;
  std::size_t room_;
  std::string text_;
};

}  // namespace

std::string memo(const PlanProblem& problem, const LayoutSpace& space, const SearchResult& result,
                 const std::vector<ScalePoint>& scaling) {
  return Memo(problem, space, result, scaling).text();
}

}  // namespace espalier

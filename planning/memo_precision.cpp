// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/number_format.hpp"
#include "io/units.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/memo_parts.hpp"
#include "planning/runnable.hpp"
#include "planning/time_text.hpp"

namespace espalier {
namespace {

std::string format_text(const NumberFormat& format) {
  return fmt::format(
      "{} stores {} bits of the significand and {} of the exponent. "
      "Its largest number is {:.5g}, and it loses digits below {:.2g}",
      format.name, format.significand_bits, format.exponent_bits, format.largest, format.smallest_normal());
}

// Of what is kept between operations: that of the precision, and bf16 where matmuls cast to fp8.
const NumberFormat& kept_format(Precision precision) {
  if (activation_bytes(precision) == 4)
    return fp32_format;
  return precision == Precision::fp16 ? fp16_format : bf16_format;
}

class PrecisionPart : MemoText {
 public:
  explicit PrecisionPart(const MemoSubject& subject)
      : subject_(subject),
        best_(subject.best),
        precision_(best_.layout.precision),
        states_(state_bytes(types_of_precision(precision_))) {}

  std::string write() {
    text = "## Precision\n\n";
    if (states_.weights == 4) {
      all_in_fp32();
      return text;
    }
    time_and_memory();
    what_stays_higher();
    range();
    return text;
  }

 private:
  bool has(Precision precision) const { return subject_.problem.cluster.device.has(precision); }

  // "29 s per step, peak memory 34.27 GiB", and whether that is too much.
  std::string price_text(const LayoutPrice& price) const {
    const std::string too_large = subject_.fit_text(price);
    return fmt::format("{} per step{}", time_text(price.step_seconds),
                       too_large.empty() ? fmt::format(", peak memory {}", bytes_text(price.memory_bytes)) : too_large);
  }

  // The same layout in bf16, where `train` runs that.
  std::string runnable_instead() const {
    Layout layout = best_.layout;
    layout.precision = Precision::bf16;
    return why_not_runnable(subject_.problem, layout).empty() ? " In bf16 (above) it can run." : "";
  }

  void all_in_fp32() {
    say("Matmuls are computed in {}. All stored values are fp32, {} bytes per parameter: {}. ", to_string(precision_),
        states_.total(), price_text(best_));
    if (precision_ == Precision::tf32)
      say("tf32 has the range of fp32 and rounds the factors of matmuls to {} stored bits of {}. ",
          tf32_format.significand_bits, fp32_format.significand_bits);
    const Precision half = has(Precision::bf16) ? Precision::bf16 : Precision::fp16;
    if (has(half))
      say("In {} this layout would take {}.\n\n", to_string(half), price_text(subject_.price_in(half)));
    else
      say("The device has no faster 16-bit type.\n\n");
  }

  void time_and_memory() {
    say("Matmuls in {}: {}. ", to_string(precision_), price_text(best_));
    for (const Precision other : {Precision::bf16, Precision::tf32, Precision::fp32})
      if (has(other) && (other != Precision::bf16 || precision_ == Precision::fp8))
        say("In {}: {}. ", to_string(other), price_text(subject_.price_in(other)));
    if (precision_ == Precision::fp8)
      say("fp8 makes the matmuls of the blocks faster, but saves no memory. "
          "Activations are kept in 16 bits and cast before each matmul. "
          "Weights are 16-bit copies of the fp32 master weights. Messages have 16 bits. ");
    say("Activations take {} bytes per element (fp32: {}). "
        "Weights, gradients and optimizer states take {} bytes per parameter (fp32: {}).\n\n",
        activation_bytes(precision_), activation_bytes(Precision::fp32), states_.total(),
        state_bytes(types_of_precision(Precision::fp32)).total());
  }

  void what_stays_higher() {
    const MemoryByCategory& stage = best_.memory[static_cast<std::size_t>(best_.peak_stage)];
    const NumberFormat& kept = kept_format(precision_);
    const ModelConfig& model = subject_.problem.model;
    if (precision_ == Precision::fp8)
      say("What stays in bf16, and why:\n\n"
          "- Attention, the head and its logits: sums over up to {} columns need more than the {} stored bits of {}.\n"
          "- The residual stream, norms and activation functions: "
          "each block adds to the stream, and {} stored bits would round every sum.\n\n",
          model.vocab_size, e4m3_format.significand_bits, e4m3_format.name, e4m3_format.significand_bits);
    say("What stays in fp32, and why:\n\n");
    say("- Master weights and Adam's moments, {} per rank. {} stores {} bits of the significand, fp32 {}. "
        "So an update of less than {:.2g} % of its weight would be rounded away.\n",
        bytes_text(stage[Category::optimizer]), kept.name, kept.significand_bits, fp32_format.significand_bits,
        100 * kept.lost_update());
    if (states_.gradients == 4)
      say("- Gradients, {} per rank. {}.\n", bytes_text(stage[Category::gradients]),
          summed_over().empty() ? "They have the type of the moments"
                                : summed_over() + ", and small terms would be lost in a large sum");
    say("- Mean and rstd of norms, softmax and the loss: sums over up to {} columns.\n\n",
        std::max(model.hidden_size, model.vocab_size));
  }

  // "They are summed over 4 micro-batches and 2 replicas"; empty where there is nothing to sum.
  std::string summed_over() const {
    std::vector<std::string> parts;
    if (best_.layout.num_microbatches() > 1)
      parts.push_back(counted(best_.layout.num_microbatches(), "micro-batch"));
    if (best_.layout.gradient_ranks() > 1)
      parts.push_back(gradient_ranks_text(best_.layout));
    return parts.empty() ? "" : fmt::format("They are summed over {}", fmt::join(parts, " and "));
  }

  void range() {
    if (precision_ == Precision::fp16) {
      say("{}. Values below {:.1g} become 0. So gradients need a loss scale. A step that overflows is skipped, "
          "and training can diverge if the scale collapses. ",
          format_text(fp16_format), fp16_format.least() / 2);
      say("bf16 has the range of fp32 ({} bits of the exponent) for {} stored bits of the significand. ",
          bf16_format.exponent_bits, bf16_format.significand_bits);
      if (has(Precision::bf16))
        say("In bf16 this layout would take {}.\n\n", price_text(subject_.price_in(Precision::bf16)));
      else
        say("This device does not have it.\n\n");
    }
    if (precision_ == Precision::bf16) {
      say("bf16 has the range of fp32, so no loss scaling is needed: both have {} bits of the exponent. "
          "It stores {} bits of the significand.",
          bf16_format.exponent_bits, bf16_format.significand_bits);
      if (has(Precision::fp16))
        say(" fp16 would take {} per step and need a loss scale. {}.",
            time_text(subject_.price_in(Precision::fp16).step_seconds), format_text(fp16_format));
      if (has(Precision::fp8))
        say(" fp8 would take {} per step and as much memory, but `train` does not compute in fp8 yet.",
            time_text(subject_.price_in(Precision::fp8).step_seconds));
      say("\n\n");
    }
    if (precision_ == Precision::fp8) {
      say("{}. {}. So every tensor needs a scale of its own. The estimate includes the casts, but not the updates of "
          "the scales. ",
          format_text(e4m3_format), format_text(e5m2_format));
      say("`train` does not compute in fp8 yet, so this layout is only estimated.{}\n\n", runnable_instead());
    }
  }

  const MemoSubject& subject_;
  const LayoutPrice& best_;
  Precision precision_;
  StateBytes states_;
};

}  // namespace

std::string precision_part(const MemoSubject& subject) { return PrecisionPart(subject).write(); }

}  // namespace espalier

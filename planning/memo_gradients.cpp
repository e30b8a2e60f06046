// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/scalars.hpp"
#include "io/units.hpp"
#include "planning/collective_time.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/memo_parts.hpp"
#include "planning/time_text.hpp"

namespace espalier {
namespace {

std::string place_text(const MemoSubject& subject, const AxisPlacement& axis) {
  return crosses_nodes(subject.problem.cluster, axis) ? "over the network" : "inside the node";
}

double gradient_bytes(const MemoSubject& subject) {
  return sent_gradient_bytes(subject.problem.implementation, subject.layout().precision);
}

// Elements of the first stage, on its first tensor rank, whose gradients are summed over groups that `wanted` picks.
template <class Wanted>
double elements_of_first_stage(const MemoSubject& subject, const Wanted& wanted) {
  const Layout layout = with_layers(subject.problem, subject.layout());
  const DeclaredParameters declared = rank_parameters(subject.problem.model, layout).of(layout.chunks().front());
  double sum = 0;
  for (const Parameter& parameter : declared.parameters)
    if (wanted(parameter.spec.group()))
      sum += to_double(parameter.size);
  return sum;
}

// Seconds and place of a sum over neighbours that the estimate of the step leaves out.
std::string unpriced_text(const MemoSubject& subject, int ranks, double payload) {
  const AxisPlacement axis{.size = ranks, .stride = 1};
  const double seconds = collective_seconds(subject.problem.cluster, Collective::all_reduce, axis, payload);
  return fmt::format("{} on the first stage, {}. An all_reduce takes {}. The predicted time does not include it",
                     rounded_bytes_text(payload), place_text(subject, axis), quantity_text(Quantity::seconds, seconds));
}

// What would be if nothing overlapped.
std::string overlap_text(const MemoSubject& subject) {
  PlanProblem exposed = subject.problem;
  exposed.implementation.overlaps_reduction = false;
  const double seconds = price_layout(exposed, subject.layout()).step_seconds;
  return fmt::format("{} Without this overlap a step would take {}, {:.1f} % more.\n\n",
                     subject.layout().zero_stage >= 2
                         ? "The messages of a block are sent while the next block computes."
                         : "The reduction starts block by block during the last backward.",
                     time_text(seconds), 100 * (seconds / subject.best.step_seconds - 1));
}

std::string replicas_text(const MemoSubject& subject) {
  const Layout& layout = subject.layout();
  const LayoutPrice& best = subject.best;
  const double elements = elements_of_first_stage(subject, [](const GroupKey&) { return true; });
  const bool every_time = layout.zero_stage >= 2;
  const double waited = best[Phase::data_comm] - best.tied_seconds;
  std::string text = fmt::format(
      "Each of the {} processes its own part of the batch. So gradients are summed over them, {}. "
      "They are summed {}. The gradients of the first stage take {}, at {:.0f} bytes per parameter.",
      gradient_ranks_text(layout), place_text(subject, data_axis(layout)),
      every_time ? "after every micro-batch, because no rank keeps all of them"
                 : "once per step, with the last micro-batch",
      rounded_bytes_text(elements * gradient_bytes(subject)), gradient_bytes(subject));
  if (layout.zero_stage == 3)
    text += " Weights are gathered before each use.";
  if (best.gather_seconds > 0)
    text += fmt::format(" Each rank updates its share of the weights. Then {} are gathered. That takes {}, {}.",
                        layout.zero_stage == 3 ? "those of embedding and head" : "all weights",
                        time_text(best.gather_seconds),
                        subject.problem.implementation.overlaps_gather ? "during the next forward" : "without overlap");
  const double overlapped = best.overlapped_data_seconds > 1e-9 * best.step_seconds ? best.overlapped_data_seconds : 0;
  text += fmt::format(" In total this takes {} per step. A step waits for {} ({}); {} overlap with other work.\n\n",
                      time_text(overlapped + waited), time_text(waited), share_text(waited, best.step_seconds),
                      time_text(overlapped));
  return text + (overlapped > 0 ? overlap_text(subject) : "");
}

// Both ends of the pipeline hold the token embedding.
std::string token_embedding_text(const MemoSubject& subject) {
  const double table =
      elements_of_first_stage(subject, [](const GroupKey& key) { return key.tied; }) * gradient_bytes(subject);
  return fmt::format(
      "- The token embedding is also the head. The first and the last stage each compute a part of its gradient, "
      "{} per rank. They sum the parts once per step, after the last backward, {}. "
      "That takes {} ({}), without overlap.\n",
      rounded_bytes_text(table), place_text(subject, pipeline_axis(subject.layout())),
      time_text(subject.best.tied_seconds), share_text(subject.best.tied_seconds, subject.best.step_seconds));
}

// What several tensor ranks hold, all of them or runs of a few, and make parts of the gradient of.
bool sums_over_tensor(const GroupKey& key) { return key.axes.contains(Axis::tp); }

// Sequence parallelism gives each other rows; else all see the same rows.
std::string tensor_text(const MemoSubject& subject) {
  const Layout& layout = subject.layout();
  const ModelConfig& model = subject.problem.model;
  const double bytes =
      elements_of_first_stage(subject, [](const GroupKey& key) { return sums_over_tensor(key) && key.tp_run == 0; }) *
      gradient_bytes(subject);
  if (layout.sequence_parallel)
    return fmt::format(
        "- With sequence parallelism each of the {} tensor ranks computes other rows. "
        "So gradients of weights that all of them hold (norms{}{}) are summed over them. They take {}.\n",
        layout.tensor, model.bias ? ", biases of row-parallel matmuls" : "",
        model.learned_positions() > 0 ? ", positions" : "", unpriced_text(subject, layout.tensor, bytes));
  return fmt::format(
      "- The {} tensor ranks hold different parts of the matrices and compute the same rows. {}"
      "They exchange activations in every block (tensor_comm).\n",
      layout.tensor,
      bytes > 0 ? fmt::format("Each applies the norms of Q and K to its own heads. The gradients of these norms are "
                              "summed. They take {}. ",
                              unpriced_text(subject, layout.tensor, bytes))
      : layout.tensor > model.kv_heads() ? std::string()
                                         : "So no gradient of a weight is summed among them. ");
}

// More tensor ranks than heads of keys and values: neighbours hold copies of one.
std::string copied_heads_text(const MemoSubject& subject) {
  const ModelConfig& model = subject.problem.model;
  const int copies = subject.layout().tensor / static_cast<int>(model.kv_heads());
  const double elements =
      elements_of_first_stage(subject, [](const GroupKey& key) { return sums_over_tensor(key) && key.tp_run > 0; });
  return fmt::format(
      "- {} tensor ranks hold copies of each of the {} heads of keys and values. "
      "Their gradients are summed once per step. They take {}.\n",
      copies, model.kv_heads(), unpriced_text(subject, copies, elements * gradient_bytes(subject)));
}

}  // namespace

std::string gradients_part(const MemoSubject& subject) {
  const Layout& layout = subject.layout();
  const ModelConfig& model = subject.problem.model;
  std::string text = "## Where gradients are synchronised, and what it costs\n\n";
  std::string others;
  if (subject.best.tied_seconds > 0)
    others += token_embedding_text(subject);
  if (layout.tensor > 1)
    others += tensor_text(subject);
  if (layout.tensor > model.kv_heads())
    others += copied_heads_text(subject);
  if (layout.gradient_ranks() > 1)
    text += replicas_text(subject);
  else
    text += fmt::format(
        "There is one replica, which processes the whole batch. Gradients are summed in place over {}. {}\n\n",
        counted(layout.num_microbatches(), "micro-batch"),
        others.empty() ? "No other rank has a part of them." : "Other sums:");
  if (others.empty())
    return text;
  return text + others + "\n";
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// A schedule is data. Pure functions make the list of operations of each stage. The executor
// (training/step/forward_backward.hpp) runs it. The simulator (schedule_run.hpp) times it. check_schedules() checks the
// lists of the whole world before they run.

namespace espalier {

enum class ScheduleKind {
  sequential,   ///< one micro-batch at a time through all stages: the baseline, with the largest bubble
  gpipe,        ///< all forwards, then all backwards (Huang et al., 2019)
  one_f_one_b,  ///< "1f1b": a backward as soon as there is one (Narayanan et al., 2021)
  interleaved,  ///< 1F1B over several chunks (virtual stages) a stage (Narayanan et al., 2021)
  zero_bubble,  ///< ZB-H1: weight gradients fill the bubble (Qi et al., 2023)
  // For the planner alone, in closed form: they have no lists.
  zero_bubble_2p,  ///< ZB-2p, with the memory of two pipelines (Qi et al., 2023)
  zero_bubble_v    ///< ZB-V: the second chunks lie in reverse order (Qi et al., 2024)
};
const char* to_string(ScheduleKind kind);
const std::vector<ScheduleKind>& all_schedule_kinds();
/// Those that make_schedule() makes lists for, and `train` runs.
const std::vector<ScheduleKind>& schedule_kinds_with_lists();
bool has_list(ScheduleKind kind);
std::optional<ScheduleKind> parse_schedule_kind(std::string_view name);

/// How many chunks of the model each of several stages may hold.
struct ChunkCounts {
  int least = 1;
  int most = 1;
  bool has(int chunks) const { return least <= chunks && chunks <= most; }
};
ChunkCounts allowed_chunks(ScheduleKind kind);

enum class OperationKind {
  forward,
  backward,  ///< input and weight gradients together
  backward_input,
  backward_weight,
  send_activations,  ///< to the stage of the next chunk; goes on while other operations run
  receive_activations,
  send_gradients,     ///< to the stage of the chunk before
  receive_gradients,  ///< from the stage of the next chunk
  reduce,             ///< marks those gradients of the chunk that backward left unmarked: the sum is asynchronous
  tied_reduce,        ///< the token embedding's gradient, over the replicas of the first and the last stage
  optimizer,          ///< global norm, clipping, update: here the executor ends, and the trainer goes on
  gather_weights,     ///< ZeRO: all_gather of the updated weights, by the trainer, too
};
const char* to_string(OperationKind kind);
bool is_compute(OperationKind kind);  ///< forward and the kinds of backward

/// The number of collectives of each kind on the tensor axis inside an operation.
struct TensorCollectives {
  int all_reduce = 0;
  int all_gather = 0;
  int reduce_scatter = 0;
  /// In units of an all_gather: an all_reduce takes two.
  int passes() const { return 2 * all_reduce + all_gather + reduce_scatter; }
  bool operator==(const TensorCollectives&) const = default;
};

struct Operation {
  OperationKind kind = OperationKind::forward;
  int chunk = 0;         ///< on this stage (of a message too), see part_of_chunk()
  int microbatch = 0;    ///< -1 for operations of the whole step
  int peer = -1;         ///< messages: the stage at the other end
  bool reduces = false;  ///< the last backward of the chunk: reductions start inside it, block by block
  TensorCollectives tensor = {};
  bool operator==(const Operation&) const = default;
};

using PipelineSchedule = std::vector<Operation>;

/// The part of the model that a chunk of a stage is, in its order: parts go round the stages.
inline int part_of_chunk(int stage, int chunk, int stages) { return chunk * stages + stage; }

/// All that the lists of all stages depend on.
struct PipelineShape {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int stages = 1;
  int chunks = 1;                ///< virtual stages on each stage, see allowed_chunks()
  int microbatches = 1;          ///< may be fewer than stages
  bool gathers_weights = false;  ///< ZeRO, any stage
  bool ties_embeddings = true;   ///< the first and the last stage, if there are two, share the token embedding

  /// Does the stage sum the token embedding's gradient with another stage?
  bool ties(int stage) const { return ties_embeddings && stages > 1 && (stage == 0 || stage == stages - 1); }
};

/// The list of one step of `stage`: each receive directly before the operation that needs it, each send directly after
/// the one that makes it, and at the end reduce (last chunk first), tied_reduce, optimizer and gather_weights.
/// Backwards of a chunk always come in the order of the micro-batches, so that all schedules of the same stages give
/// the same bits. Pure.
PipelineSchedule make_schedule(const PipelineShape& shape, int stage);

/// The lists of all stages.
std::vector<PipelineSchedule> make_schedules(const PipelineShape& shape);

/// The activation slots that the stage needs for `chunk`: the most micro-batches at once between their forward and the
/// end of their backward (weight part included). Without a chunk: of all chunks together.
int slots_needed(const PipelineSchedule& schedule, std::optional<int> chunk = {});

/// The most micro-batches of `chunk` at once between backward_input and backward_weight.
int pending_weights_needed(const PipelineSchedule& schedule, int chunk);

/// "F3", "B0.1" (micro-batch 0, chunk 1 of several), "Bi2", "W2", "recv F3 from stage 0", "send B3 to stage 0",
/// "reduce" ("reduce chunk 1"), "optimizer": for reports, traces and --events.
std::string text(const Operation& operation, bool several_chunks = false);
/// Is it that of a backward_weight?
bool is_weight_text(std::string_view text);

}  // namespace espalier

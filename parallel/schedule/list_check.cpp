// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "parallel/schedule/list_check.hpp"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "parallel/schedule/schedule_run.hpp"

namespace espalier {
namespace {

constexpr std::size_t num_kinds = static_cast<std::size_t>(OperationKind::gather_weights) + 1;
constexpr int absent = -1;

bool is_of_microbatch(OperationKind kind) { return kind < OperationKind::reduce; }

class ListCheck {
 public:
  ListCheck(const PipelineSchedule& list, const PipelineShape& shape, int stage, const std::string& who,
            std::vector<std::string>& problems)
      : list_(list), shape_(shape), stage_(stage), who_(who), problems_(problems) {
    for (auto& of_kind : positions_)
      of_kind.assign(static_cast<std::size_t>(shape.chunks) * static_cast<std::size_t>(shape.microbatches), absent);
  }

  void run() {
    for (std::size_t i = 0; i < list_.size(); ++i)
      if (is_well_formed(static_cast<int>(i)))
        enter(static_cast<int>(i));
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      for (int microbatch = 0; microbatch < shape_.microbatches; ++microbatch) {
        check_work(chunk, microbatch);
        check_messages(chunk, microbatch);
      }
      check_gradients(chunk);
    }
    check_update();
  }

 private:
  /// The operations of a chunk of a micro-batch (or of the step) as the list should have them.
  static Operation wanted(OperationKind kind, int chunk, int microbatch, int peer = -1) {
    return {.kind = kind, .chunk = chunk, .microbatch = microbatch, .peer = peer};
  }

  std::string name(const Operation& operation) const { return text(operation, shape_.chunks > 1); }
  std::string name(int position) const { return name(list_[static_cast<std::size_t>(position)]); }

  template <class... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    problems_.push_back(who_ + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  int& position(OperationKind kind, int chunk, int microbatch) {
    const int cell = is_of_microbatch(kind) ? chunk * shape_.microbatches + microbatch : chunk;
    return positions_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(cell)];
  }

  bool is_well_formed(int i) {
    const Operation& operation = list_[static_cast<std::size_t>(i)];
    const bool has_chunk = is_of_microbatch(operation.kind) || operation.kind == OperationKind::reduce;
    const std::size_t before = problems_.size();
    if (operation.chunk < 0 || operation.chunk >= (has_chunk ? shape_.chunks : 1))
      report("operation {}, {}, has chunk {}, but there are {} a stage", i, name(i), operation.chunk, shape_.chunks);
    if (is_of_microbatch(operation.kind) ? operation.microbatch < 0 || operation.microbatch >= shape_.microbatches
                                         : operation.microbatch != -1)
      report("operation {}, {}, has micro-batch {}, but there are {} (-1 for the whole step)", i, name(i),
             operation.microbatch, shape_.microbatches);
    if (!is_send(operation.kind) && !is_receive(operation.kind) && operation.peer != -1)
      report("operation {}, {}, is no message and has the peer {}", i, name(i), operation.peer);
    return problems_.size() == before;
  }

  void enter(int i) {
    const Operation& operation = list_[static_cast<std::size_t>(i)];
    int& entry = position(operation.kind, operation.chunk, operation.microbatch);
    if (entry == absent)
      entry = i;
    else
      report("{} is there twice, as operations {} and {}", name(i), entry, i);
  }

  /// @return its position, or absent, which is reported unless `exists` is false; then presence is.
  int expect(bool exists, const Operation& operation) {
    const int at = position(operation.kind, operation.chunk, operation.microbatch);
    if (exists && at == absent)
      report("{} is missing", name(operation));
    else if (!exists && at != absent)
      report("{} (operation {}) does not belong here", name(at), at);
    return exists ? at : absent;
  }

  /// Where both are there.
  void expect_order(int first, int second) {
    if (first != absent && second != absent && first > second)
      report("{} (operation {}) comes before {} (operation {})", name(second), second, name(first), first);
  }

  /// Where the gradient of the input is made.
  int backward_place(int chunk, int microbatch) {
    const int whole = position(OperationKind::backward, chunk, microbatch);
    return whole != absent ? whole : position(OperationKind::backward_input, chunk, microbatch);
  }

  /// Where the gradients of the weights are made.
  int weight_place(int chunk, int microbatch) {
    const int whole = position(OperationKind::backward, chunk, microbatch);
    return whole != absent ? whole : position(OperationKind::backward_weight, chunk, microbatch);
  }

  void check_work(int chunk, int microbatch) {
    const int forward = expect(true, wanted(OperationKind::forward, chunk, microbatch));
    const int whole = position(OperationKind::backward, chunk, microbatch);
    const int input = position(OperationKind::backward_input, chunk, microbatch);
    const int weight = position(OperationKind::backward_weight, chunk, microbatch);
    if (whole == absent && input == absent && weight == absent) {
      expect(true, wanted(OperationKind::backward, chunk, microbatch));
    } else if (whole == absent) {
      expect(true, wanted(OperationKind::backward_input, chunk, microbatch));
      expect(true, wanted(OperationKind::backward_weight, chunk, microbatch));
    } else {
      for (const int part : {input, weight})
        if (part != absent)
          report("{} (operation {}) repeats a part of {} (operation {})", name(part), part, name(whole), whole);
    }
    expect_order(forward, backward_place(chunk, microbatch));
    expect_order(input, weight);
    if (microbatch == 0)
      return;
    expect_order(backward_place(chunk, microbatch - 1), backward_place(chunk, microbatch));
    if (whole == absent)
      expect_order(weight_place(chunk, microbatch - 1), weight_place(chunk, microbatch));
  }

  /// A message exists where the model goes on on another stage. @return its position
  int check_message(bool exists, OperationKind kind, int chunk, int microbatch, int peer) {
    const int at = expect(exists, wanted(kind, chunk, microbatch, peer));
    if (at != absent && list_[static_cast<std::size_t>(at)].peer != peer)
      report("{} (operation {}) has the wrong peer: stage {} is at the other end", name(at), at, peer);
    return at;
  }

  void check_messages(int chunk, int microbatch) {
    const int part = part_of_chunk(stage_, chunk, shape_.stages);
    const bool from_before = shape_.stages > 1 && part > 0;
    const bool to_after = shape_.stages > 1 && part < shape_.chunks * shape_.stages - 1;
    const int before = (stage_ + shape_.stages - 1) % shape_.stages;
    const int after = (stage_ + 1) % shape_.stages;
    const int forward = position(OperationKind::forward, chunk, microbatch);
    const int backward = backward_place(chunk, microbatch);
    expect_order(check_message(from_before, OperationKind::receive_activations, chunk, microbatch, before), forward);
    expect_order(forward, check_message(to_after, OperationKind::send_activations, chunk, microbatch, after));
    expect_order(check_message(to_after, OperationKind::receive_gradients, chunk, microbatch, after), backward);
    expect_order(backward, check_message(from_before, OperationKind::send_gradients, chunk, microbatch, before));
  }

  void check_gradients(int chunk) {
    const int last = weight_place(chunk, shape_.microbatches - 1);
    expect_order(last, expect(true, wanted(OperationKind::reduce, chunk, -1)));
    for (int i = 0; i < static_cast<int>(list_.size()); ++i) {
      const Operation& operation = list_[static_cast<std::size_t>(i)];
      if (operation.chunk != chunk || operation.reduces == (i == last))
        continue;
      if (operation.reduces)
        report("{} (operation {}) starts to reduce gradients that are not final", name(i), i);
      else
        report("{} (operation {}) is the last of its chunk, but does not start to reduce its gradients", name(i), i);
    }
  }

  void check_update() {
    const int tied = expect(shape_.ties(stage_), wanted(OperationKind::tied_reduce, 0, -1));
    const int optimizer = expect(true, wanted(OperationKind::optimizer, 0, -1));
    for (int chunk = 0; chunk < shape_.chunks; ++chunk) {
      if (tied != absent)
        expect_order(weight_place(chunk, shape_.microbatches - 1), tied);
      expect_order(position(OperationKind::reduce, chunk, -1), optimizer);
    }
    expect_order(tied, optimizer);
    expect_order(optimizer, expect(shape_.gathers_weights, wanted(OperationKind::gather_weights, 0, -1)));
  }

  const PipelineSchedule& list_;
  const PipelineShape& shape_;
  int stage_;
  const std::string& who_;
  std::vector<std::string>& problems_;
  std::array<std::vector<int>, num_kinds> positions_;  // [kind][chunk x micro-batch, or chunk]: position in the list
};

}  // namespace

void check_list(const PipelineSchedule& list, const PipelineShape& shape, int stage, const std::string& who,
                std::vector<std::string>& problems) {
  ListCheck(list, shape, stage, who, problems).run();
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "training/step/forward_backward.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <vector>

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "core/stopwatch.hpp"
#include "parallel/collectives/point_to_point.hpp"

namespace espalier {
namespace {

// The slots of activations, or of gradients. A holder is a micro-batch; where chunks share slots, a micro-batch of one
// chunk. Holders take free slots in turn: what was sent from a slot has the most time to leave before it is written
// again. All steps use the same slots.
class SlotPool {
 public:
  explicit SlotPool(int size) : slots_(static_cast<std::size_t>(size), none) {}

  // The slot that the holder has, or the next free one.
  int take(int holder) {
    const auto held = std::find(slots_.begin(), slots_.end(), holder);
    if (held != slots_.end())
      return static_cast<int>(held - slots_.begin());
    for (std::size_t tries = 0; tries < slots_.size(); ++tries) {
      const std::size_t slot = next_++ % slots_.size();
      if (slots_[slot] == none) {
        slots_[slot] = holder;
        return static_cast<int>(slot);
      }
    }
    ESPALIER_ASSERT(false, fmt::format("no slot is free for holder {}", holder));
  }
  int of(int holder) const {
    const auto held = std::find(slots_.begin(), slots_.end(), holder);
    ESPALIER_ASSERT(held != slots_.end(), fmt::format("holder {} has no slot", holder));
    return static_cast<int>(held - slots_.begin());
  }
  void release(int holder) { slots_[static_cast<std::size_t>(of(holder))] = none; }

 private:
  static constexpr int none = -1;
  std::vector<int> slots_;  // their holders
  std::size_t next_ = 0;
};

template <class P>
class Executor {
 public:
  Executor(const StepContext<P>& context, const std::vector<TokenBatch>& microbatches, PhaseSeconds& seconds,
           const ActivationMemory& memory, const UnitList& units)
      : c_(context),
        microbatches_(microbatches),
        seconds_(seconds),
        units_(units, [this](const UnitAction& action) { perform(action); }) {
    if (c_.model.shares_slots())
      slots_.emplace_back(memory.slots_together);
    for (const ChunkMemory& chunk : memory.chunks) {
      if (!c_.model.shares_slots())
        slots_.emplace_back(chunk.slots);
      gradient_slots_.emplace_back(chunk.gradients);
    }
  }

  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  void run(const PipelineSchedule& schedule) {
    const TimedCollectives<Compute<P>> marked(tensor(), c_.times.clock());
    const bool several_chunks = c_.model.num_chunks() > 1;
    for (std::size_t i = 0; i < schedule.size() && schedule[i].kind != OperationKind::optimizer; ++i) {
      const std::string name = text(schedule[i], several_chunks);
      observers().operation_begins(static_cast<int>(i), name, schedule[i].chunk, schedule[i].microbatch);
      run(schedule[i], name);
    }
    finish_sends();
    if (world().size() > 1)  // what the host waits for from now on is no time of these kernels
      c_.times.wait_and_account(seconds_);
  }

  void evaluate() {
    for (int m = 0; m < static_cast<int>(microbatches_.size()); ++m)
      for (int chunk = 0; chunk < c_.model.num_chunks(); ++chunk)
        evaluate(m, chunk);
    finish_sends();
  }

 private:
  const Communicator& world() const { return c_.mesh.world(); }
  StepObservers& observers() const { return world().observers(); }
  const TensorParallel<Compute<P>>& tensor() const { return c_.model.tensor(); }

  void run(const Operation& op, const std::string& name) {
    switch (op.kind) {
      case OperationKind::receive_activations:
        return receive(op, name, c_.model.input(take_free_slot(op)), tags::activations);
      case OperationKind::receive_gradients:
        return receive(op, name, c_.model.output_gradient(take_gradients(op)), tags::gradients);
      case OperationKind::send_activations: return send(op, take_slot(op));
      case OperationKind::send_gradients: return send(op, last_backward_);
      case OperationKind::forward: return forward(op, name);
      case OperationKind::backward:
      case OperationKind::backward_input:
      case OperationKind::backward_weight: return backward(op, name);
      case OperationKind::reduce:
        return mark_ready([&](const Segment& s) { return s.chunk == op.chunk && !is_tied(s); });
      case OperationKind::tied_reduce: return mark_ready([&](const Segment& s) { return is_tied(s); });
      case OperationKind::optimizer:
      case OperationKind::gather_weights: return;  // the trainer's
    }
  }

  // ---- compute ----

  void forward(const Operation& op, const std::string& name) {
    const ActivationIndex where = take_free_slot(op);
    timed(op, name, Phase::forward, [&](const auto& done) {
      c_.model.forward(c_.exec, where, batch(op.microbatch), batch(op.microbatch).weight, done);
    });
  }

  void backward(const Operation& op, const std::string& name) {
    const ActivationIndex where = take_gradients(op);
    if (op.kind != OperationKind::backward_weight)
      finish_sends_of(OperationKind::send_gradients, to_size(where.chunk), where.gradients);
    last_backward_ = where;
    timed(op, name, Phase::backward, [&](const auto& done) {
      const auto block_done = [&](int position) {
        if (op.reduces)
          mark_ready([&](const Segment& s) { return s.chunk == op.chunk && s.block == position && !is_tied(s); });
        done(position);
      };
      if (op.kind == OperationKind::backward)
        c_.model.backward(c_.exec, where, block_done);
      else if (op.kind == OperationKind::backward_input)
        c_.model.backward_input(c_.exec, where, block_done);
      else
        c_.model.backward_weight(c_.exec, where, block_done);
    });
    if (op.kind != OperationKind::backward_input) {
      slots_[slot_pool(op.chunk)].release(slot_holder(op));
      gradient_slots_[to_size(op.chunk)].release(op.microbatch);
    }
  }

  // Runs compute with a callback for its blocks; tensor collectives inside count as communication.
  template <class F>
  void timed(const Operation& op, const std::string& name, Phase phase, const F& compute) {
    const Region region(std::string("espalier::training::") + to_string(phase));
    const int begin = c_.times.mark();
    const double tensor_before = tensor().seconds();
    const double waited_before = waited_seconds_;
    const std::size_t first_enqueued = tensor().enqueued().size();
    observers().work_begins(phase, &op);
    enter_layer(op.kind, op.chunk, first_layer(c_.units.layers_of_chunk, op.kind, op.chunk));
    compute([&](int position) {
      observers().block_done(tensor().seconds() - tensor_before + waited_seconds_ - waited_before, [&] { progress(); });
      progress();
      next_layer(op.kind, op.chunk, position);
    });
    c_.times.add({op, name, phase, begin, c_.times.mark(), tensor().seconds() - tensor_before,
                  waited_seconds_ - waited_before, first_enqueued, tensor().enqueued().size()});
  }

  void evaluate(int microbatch, int chunk) {
    const ActivationIndex where(0, chunk);
    const ChunkLayers& layers = c_.model.layers(chunk);
    const Communicator& pp = c_.mesh.pp();
    const auto message = [&](OperationKind kind, int step) {
      return Operation{
          .kind = kind, .chunk = chunk, .microbatch = microbatch, .peer = (pp.rank() + step + pp.size()) % pp.size()};
    };
    finish_sends_of(OperationKind::send_activations, slot_pool(chunk), where.slot);
    if (!layers.embedding)
      receive(message(OperationKind::receive_activations, -1), "recv", c_.model.input(where), tags::activations);
    enter_layer(OperationKind::forward, chunk, 1);
    c_.model.evaluate(c_.exec, where, batch(microbatch), batch(microbatch).weight.loss,
                      [&](int position) { next_layer(OperationKind::forward, chunk, position); });
    if (!layers.head)
      send(message(OperationKind::send_activations, 1), where);
  }

  // ---- messages ----

  // The wait for work that is not done yet is bubble; what follows is communication.
  void receive(const Operation& op, const std::string& name, const typename Decoder<P>::Message& data, int tag) {
    const Region region("espalier::training::receive");
    const double begin = world().clock().now();
    Request request = irecv(c_.exec, c_.mesh.pp(), data, op.peer, tag);
    if (request.is_enqueued())
      return receive_in_stream(op, name, request);
    request.wait([&] { progress(); });
    const double end = world().clock().now();
    const double sent = std::clamp(request.sent_at(), begin, end);
    if (sent > begin) {
      MessageTransit::Sum& transit = c_.transit.of(op.kind);
      ++transit.messages;
      transit.seconds += end - sent;
    }
    seconds_[Phase::bubble] += sent - begin;
    seconds_[Phase::pipeline_comm] += end - sent;
    observers().spent({name, Phase::bubble, begin, sent, op.chunk, op.microbatch});
    observers().spent({name, Phase::pipeline_comm, sent, end, op.chunk, op.microbatch});
  }

  // The kernels behind wait, not the host. When the message left nobody says: all of it counts as bubble.
  void receive_in_stream(const Operation& op, const std::string& name, Request& request) {
    const int begin = c_.times.mark();
    request.wait();
    c_.times.add({op, name, Phase::bubble, begin, c_.times.mark(), 0});
  }

  void send(const Operation& op, ActivationIndex from) {
    const double begin = world().clock().now();
    if (op.kind == OperationKind::send_activations)
      sends_.push_back({isend(c_.exec, c_.mesh.pp(), c_.model.output(from), op.peer, tags::activations), op.kind,
                        slot_pool(op.chunk), from.slot});
    else
      sends_.push_back({isend(c_.exec, c_.mesh.pp(), c_.model.input_gradient(from), op.peer, tags::gradients), op.kind,
                        to_size(op.chunk), from.gradients});
    seconds_[Phase::pipeline_comm] += world().clock().now() - begin;
  }

  // Nothing advances by itself during a kernel.
  void progress() {
    move_sends();
    c_.reducer.progress();
  }
  void move_sends() {
    std::erase_if(sends_, [](Sent& sent) { return sent.request.test(); });
  }

  // Before memory is written again, what was sent from there must have left.
  void finish_sends_of(OperationKind kind, std::size_t pool, int held) {
    finish_sends_if([&](const Sent& sent) { return sent.kind == kind && sent.pool == pool && sent.held == held; });
  }
  void finish_sends() {
    finish_sends_if([](const Sent&) { return true; });
  }
  template <class F>
  void finish_sends_if(const F& wanted) {
    const double begin = world().clock().now();
    for (auto sent = sends_.begin(); sent != sends_.end();) {
      if (wanted(*sent)) {
        sent->request.wait([&] { c_.reducer.progress(); });
        sent = sends_.erase(sent);
      } else {
        ++sent;
      }
    }
    seconds_[Phase::pipeline_comm] += world().clock().now() - begin;
  }

  // ---- gradients ----

  // Final only when first and last stage are done; one stage alone has the table's whole gradient.
  bool is_tied(const Segment& segment) const { return segment.group.tied && c_.mesh.pp().size() > 1; }

  template <class F>
  void mark_ready(const F& wanted) {
    for (std::size_t i = 0; i < c_.reducer.segments().size(); ++i)
      if (const int s = static_cast<int>(i); wanted(c_.reducer.segments()[i]) && !c_.reducer.is_marked(s))
        c_.reducer.mark_ready(s);
  }

  // ---- layers of which ranks hold slices ----

  void enter_layer(OperationKind kind, int chunk, int position) {
    const Stopwatch stopwatch;
    if (const int unit = unit_at(c_.units.layers_of_chunk, chunk, position); unit >= 0)
      units_.enter({unit, writes_gradients(kind)});
    waited_seconds_ += stopwatch.seconds();
  }
  // Behind the kernels of what lies at this position.
  void next_layer(OperationKind kind, int chunk, int position) {
    if (unit_at(c_.units.layers_of_chunk, chunk, position) < 0)
      return;
    units_.leave();
    enter_layer(kind, chunk, position + direction(kind));
  }

  void perform(const UnitAction& action) {
    switch (action.kind) {
      case UnitAction::Kind::gather: return c_.gatherer.gather(action.unit);
      case UnitAction::Kind::wait_for_weights: return c_.gatherer.acquire(action.unit, [this] { progress(); });
      case UnitAction::Kind::wait_for_buffer: return c_.reducer.wait_for_buffer(action.unit, [this] { move_sends(); });
      case UnitAction::Kind::release: return c_.gatherer.release(action.unit);
      case UnitAction::Kind::reduce: return c_.reducer.reduce(action.unit, action.is_last);
    }
  }

  // ---- slots ----

  const TokenBatch& batch(int microbatch) const { return microbatches_.at(static_cast<std::size_t>(microbatch)); }
  std::size_t slot_pool(int chunk) const { return c_.model.shares_slots() ? 0 : to_size(chunk); }
  int slot_holder(const Operation& op) const {
    return op.chunk * static_cast<int>(microbatches_.size()) + op.microbatch;
  }
  ActivationIndex take_slot(const Operation& op) {
    return {slots_[slot_pool(op.chunk)].take(slot_holder(op)), op.chunk};
  }
  ActivationIndex take_free_slot(const Operation& op) {
    const ActivationIndex where = take_slot(op);
    finish_sends_of(OperationKind::send_activations, slot_pool(op.chunk), where.slot);
    return where;
  }
  ActivationIndex take_gradients(const Operation& op) {
    return {slots_[slot_pool(op.chunk)].of(slot_holder(op)), op.chunk,
            gradient_slots_[to_size(op.chunk)].take(op.microbatch)};
  }

  struct Sent {
    Request request;
    OperationKind kind;
    std::size_t pool;
    int held;  // the slot or set of gradients of that pool that it is sent from
  };

  const StepContext<P>& c_;
  const std::vector<TokenBatch>& microbatches_;
  PhaseSeconds& seconds_;
  std::vector<SlotPool> slots_;           // by chunk, or one that all chunks share
  std::vector<SlotPool> gradient_slots_;  // by chunk
  std::list<Sent> sends_;
  ActivationIndex last_backward_;  // released already; send_gradients follows directly
  UnitActionRunner units_;
  double waited_seconds_ = 0;  // for weights, and for buffers for gradients
};

}  // namespace

template <class P>
void forward_backward(const StepContext<P>& context, const std::vector<TokenBatch>& microbatches,
                      const PipelineSchedule& schedule, PhaseSeconds& seconds) {
  std::vector<ChunkLayers> chunks;
  for (int chunk = 0; chunk < context.model.num_chunks(); ++chunk)
    chunks.push_back(context.model.layers(chunk));
  Executor<P>(context, microbatches, seconds, activation_memory(schedule, chunks), context.units).run(schedule);
}

template <class P>
void forward_only(const StepContext<P>& context, const std::vector<TokenBatch>& batches, PhaseSeconds& seconds) {
  PipelineSchedule forwards;
  for (std::size_t m = 0; m < batches.size(); ++m)
    for (int chunk = 0; chunk < context.model.num_chunks(); ++chunk)
      forwards.push_back({.kind = OperationKind::forward, .chunk = chunk});
  const UnitList& units = context.units;
  Executor<P>(context, batches, seconds, {}, unit_list(forwards, units.layers_of_chunk, units.buffers)).evaluate();
}

#define ESPALIER_INSTANTIATE(P)                                                                                     \
  template void forward_backward<P>(const StepContext<P>&, const std::vector<TokenBatch>&, const PipelineSchedule&, \
                                    PhaseSeconds&);                                                                 \
  template void forward_only<P>(const StepContext<P>&, const std::vector<TokenBatch>&, PhaseSeconds&);
ESPALIER_FOR_PRECISIONS(ESPALIER_INSTANTIATE)
#undef ESPALIER_INSTANTIATE

}  // namespace espalier

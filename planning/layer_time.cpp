// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layer_time.hpp"

#include <algorithm>
#include <cmath>

#include "models/rank_memory.hpp"
#include "planning/collective_time.hpp"
#include "planning/expert_time.hpp"
#include "planning/layer_parameters.hpp"
#include "planning/to_double.hpp"

namespace espalier {
namespace {

// Letters: M rows of a micro-batch on a rank (B T / context), C hidden, F feed-forward, KV columns of K on a rank, t
// tensor ranks, e bytes of an activation.

constexpr double attention_block = 128;  // rows of a fused kernel's tile: on the diagonal it computes the masked half
constexpr double exponentials =
    16 * 1.8e9;                           // per second of a processor: 16 a cycle since Volta [CUDA guide, arithmetic]
constexpr double kernels_forward = 22;    // of a block: products, norms, attention, copies, adds
constexpr double kernels_unfused = 6;     // more, where attention is not one kernel
constexpr double kernels_compiled = 0.4;  // of them, where a compiler has fused the elementwise ones

struct Block {
  const ModelConfig& model;
  const Cluster& cluster;
  const Layout& layout;
  const Implementation& implementation;
  double rows, c, f, q, kv, t, e, sequences, length, heads;

  Block(const ModelConfig& m, const Cluster& machine, const Layout& plan, const Implementation& how, Index tokens)
      : model(m),
        cluster(machine),
        layout(plan),
        implementation(how),
        rows(to_double(plan.micro_batch) * to_double(tokens) / plan.context),
        c(to_double(m.hidden_size)),
        f(to_double(m.ffn_hidden_size)),
        q(to_double(m.q_size()) / plan.tensor),
        kv(to_double(block_shape(m, plan, tokens).kv_channels)),
        t(plan.tensor),
        e(activation_bytes(plan.precision)),
        sequences(to_double(plan.micro_batch)),
        length(to_double(tokens)),
        heads(to_double(m.num_heads) / plan.tensor) {}

  const Accelerator& device() const { return cluster.device; }
  bool is_fp8() const { return layout.precision == Precision::fp8; }
  double product(double m, double n, double k) const {
    return product_seconds(device(), layout.precision, m, n, k) / (is_fp8() ? implementation.fp8_product_share : 1);
  }

  // Of the matmuls that the layers list.
  double products(const Work& work) const {
    double seconds = 0;
    for (const MatmulWork& one : work.matmuls)
      if (one.n > 0 && one.k > 0 && one.m > 0)  // not the feed-forward that experts replace
        seconds += to_double(one.count) * product(to_double(one.m), to_double(one.n), to_double(one.k));
    return seconds;
  }

  // Q K^T, softmax and the product with V; backward 2.5 times the work of forward where it computes the scores again
  // [Dao 2023], twice where it kept them.
  PassTime attention(bool backward) const {
    PassTime pass;
    const double head_size = to_double(model.head_size());
    const Precision precision = attention_precision(layout.precision);
    if (implementation.fused_attention) {
      const MatrixRate& rate = device().rate(precision);
      pass.products = (backward ? 2.5 : 1) * 2 * rows * heads * std::max(head_size, least_head_size(rate)) *
                      keys_by_share(rate) / rate.peak_flops;
      return pass;
    }
    const double batch = sequences * heads;
    const double own = length / layout.context;
    pass.products = (backward ? 2 : 1) * narrow_loads(head_size * activation_bytes(precision)) *
                    (product_seconds(device(), precision, own, length, head_size, batch) +
                     product_seconds(device(), precision, own, head_size, length, batch));
    // Bytes per score: forward writes them, softmax and dropout read and write, the product reads; mask of one byte.
    const double bytes = backward ? 8 * e + 3 : 6 * e + 1;
    pass.elementwise = traffic_seconds(device(), bytes * batch * own * length);
    return pass;
  }

  // Times as long that products of heads take whose rows are no multiple of the 16 bytes that matrix units load at
  // once: loads of 8 or 4 bytes, in each of two operands.
  static double narrow_loads(double row_bytes) {
    double width = 16;
    while (width > 4 && std::fmod(row_bytes, width) != 0)
      width /= 2;
    return (16 / width) * (16 / width);
  }

  // Twice the keys that a query sees, over the share of the peak that a fused kernel reaches with so many, on average
  // over layers. Windows leave it few.
  double keys_by_share(const MatrixRate& rate) const {
    const auto of_layer = [&](double keys) {
      return (keys + attention_block) / rate.attention(implementation.tuned_attention, keys);
    };
    if (model.window == 0 || to_double(model.window) >= length)
      return of_layer(length);
    const double full = to_double(std::min(model.full_layers, model.num_layers)) / to_double(model.num_layers);
    const AttentionShape windowed{.batch = 1,
                                  .sequence_length = static_cast<Index>(length),
                                  .num_heads = 1,
                                  .head_size = 1,
                                  .num_kv_heads = 1,
                                  .window = model.window};
    return full * of_layer(length) + (1 - full) * of_layer(2 * windowed.seen_keys() / length);
  }

  // Channels of a head whose matmuls take as long as its exponentials. Narrower heads take no less, and the shares of
  // the peak are those of heads of 128.
  double least_head_size(const MatrixRate& rate) const {
    return std::min(128.0, rate.peak_flops / (4 * exponentials * device().processors));
  }

  double elementwise(bool backward) const {
    const double replicated = rows * c / (layout.sequence_parallel ? t : 1);
    const double masks = model.residual_dropout > 0 ? 1 : 0;
    const double norms_and_adds =
        (implementation.fused_residual ? 8 : (backward ? 13 + 2 * masks : 10 + masks)) * e * replicated;
    const double gated = model.gated() ? 1 : 0;
    double split = (backward ? 3 + 2 * gated : 2 + gated) * e * rows * f / t;
    if (!implementation.fused_residual)
      split += 2 * e * rows * (q + 2 * kv);  // heads to the front, and back
    if (model.positions != Positions::learned)
      split += 2 * e * rows * (q + kv);  // rotary positions
    if (model.qk_norm)
      split += (backward ? 7 : 4) * e * rows * (q + kv);
    if (model.bias && backward)
      split += e * rows * ((f + c) / t + 2 * kv) + 2 * e * rows * c;
    if (!implementation.fused_elementwise)
      split += (backward ? 2 : 1) * unfused_bytes();
    if (is_fp8())
      split += implementation.cast_bytes * rows *
               (backward ? 2 * c + ((1 + gated) * f + c) / t + 2 * kv : 2 * c + (c + f) / t);
    if (is_fp8() && implementation.casts_weights)  // to one form for forward, to the other for backward
      split += implementation.cast_bytes / 2 * to_double(matrix_parameters_per_layer(model)) / t;
    return traffic_seconds(device(), norms_and_adds + split);
  }

  // More than one kernel moves, of forward. RMSNorm as widening, square, mean, product, narrowing, weight; rotary
  // positions as widening, complex product, narrowing; gates as activation and product. Backward moves twice that.
  double unfused_bytes() const {
    double bytes = 0;
    if (model.norm == Norm::rmsnorm)
      bytes += 2 * 32 * rows * c / (layout.sequence_parallel ? t : 1);
    if (model.positions != Positions::learned)
      bytes += 16 * rows * (q + kv);
    if (model.gated())
      bytes += 4 * rows * f / t;
    return bytes;
  }

  // Of the collectives that the layers list, what does not overlap.
  double tensor_seconds(const Work& work) const {
    double seconds = 0;
    for (const CollectiveWork& one : work.collectives)
      seconds += to_double(one.count) * collective_seconds(cluster, one.kind, tensor_axis(layout),
                                                           to_double(one.elements * one.element_bytes));
    if (are_whole(implementation.experts))  // those of the feed-forward
      seconds /= 2;
    return seconds * (implementation.overlaps_tensor ? 1 - implementation.overlapped_share : 1);
  }

  // Keys and values go round the ring of the context axis behind the attention of the part at hand [Liu et al. 2023].
  double context_seconds(double attention_seconds, bool backward) const {
    if (layout.context == 1)
      return 0;
    const double bytes = (backward ? 2 : 1) * 2 * e * rows * kv;
    const double sent = (layout.context - 1) * message_seconds(cluster, context_axis(layout), bytes);
    return beside(device(), attention_seconds, sent) - attention_seconds;
  }

  double host(double passes) const {
    const double kernels = kernels_forward + (implementation.fused_attention ? 0 : kernels_unfused);
    return passes * kernels * start_seconds() * (implementation.compiled ? kernels_compiled : 1);
  }

  // Of the host, to start a kernel; a recorded graph starts all by itself.
  double start_seconds() const { return implementation.graphed ? 0 : device().kernel_seconds; }
};

}  // namespace

double overlapped(double a, double b) { return std::cbrt(a * a * a + b * b * b); }

double beside(const Accelerator& device, double work, double messages) {
  return device.moves_messages ? work + messages : overlapped(work, messages);
}

double PassTime::seconds() const {
  const double on_device = products + elementwise + tensor;
  const double longer = std::max(on_device, host);
  if (longer <= 0)
    return 0;
  const double a = on_device / longer;
  const double b = host / longer;
  return longer * std::pow(std::pow(a, 6) + std::pow(b, 6), 1.0 / 6);
}

PassTime& PassTime::operator+=(const PassTime& other) {
  products += other.products;
  elementwise += other.elementwise;
  tensor += other.tensor;
  host += other.host;
  return *this;
}

PassTime operator*(double count, PassTime pass) {
  pass.products *= count;
  pass.elementwise *= count;
  pass.tensor *= count;
  pass.host *= count;
  return pass;
}

namespace {

// To a block without feed-forward.
void add_experts(BlockTime& time, const Block& block) {
  const ExpertTime experts = expert_time(block.model, block.cluster, block.layout, block.implementation, block.rows);
  const double kernels = experts.kernels * block.start_seconds();
  const auto pass = [&](double products, const PassTime& others) {
    const double work = products + experts.copies + others.products + others.elementwise;
    const double messages = block.implementation.overlaps_experts
                                ? beside(block.device(), work, experts.messages) - work
                                : experts.messages;
    return PassTime{.products = products, .elementwise = experts.copies, .tensor = messages, .host = kernels};
  };
  time.forward += pass(experts.forward, time.forward);
  time.backward_input += pass(experts.backward_input, time.backward_input);
  time.backward_weight += {.products = experts.backward_weight, .host = kernels};
  if (block.layout.recompute == Recompute::full)
    time.recompute += block.implementation.recompute_share * pass(experts.forward, time.recompute);
}

}  // namespace

BlockTime block_time(const ModelConfig& model, const Cluster& cluster, const Layout& layout,
                     const Implementation& implementation, Index sequence_length) {
  const Block block(model, cluster, layout, implementation, sequence_length);
  const Experts& experts = implementation.experts;
  BlockShape shape = block_shape(model, layout, sequence_length);
  if (experts.count > 0)
    shape.ffn = shape.up = 0;  // add_experts() has them
  const LayerWork work = block_work(shape, training_types(layout.precision).compute);
  BlockTime time;
  const PassTime attention = block.attention(false);
  const PassTime attention_back = block.attention(true);
  const double context_forward = block.context_seconds(attention.products, false);

  time.forward = attention;
  time.forward.products += block.products(work.forward);
  time.forward.elementwise += block.elementwise(false);
  time.forward.tensor = block.tensor_seconds(work.forward) + context_forward;
  time.forward.host = block.host(1);

  time.backward_input = attention_back;
  time.backward_input.products += block.products(work.backward_input);
  time.backward_input.elementwise += block.elementwise(true);
  time.backward_input.tensor =
      block.tensor_seconds(work.backward_input) + block.context_seconds(attention_back.products, true);
  time.backward_input.host = block.host(1.3);

  time.backward_weight.products = block.products(work.backward_weight);
  if (!implementation.fused_accumulation)
    time.backward_weight.elementwise = traffic_seconds(
        cluster.device, 3 * implementation.gradient_bytes * to_double(matrix_parameters_per_layer(model)) / block.t);
  if (implementation.gathers_rows_again)
    time.backward_weight.tensor = block.tensor_seconds(work.backward_weight);
  time.backward_weight.host = block.host(0.3);

  if (implementation.overlaps_tensor_backward) {  // of sequence parallelism the reduce_scatters alone
    const double overlappable = time.backward_input.tensor * (layout.sequence_parallel ? 0.5 : 1);
    const double beside_it = time.backward_weight.products;
    time.backward_input.tensor -= overlappable;
    time.backward_input.tensor += beside(cluster.device, beside_it, overlappable) - beside_it;
  }

  if (layout.recompute == Recompute::full) {
    const Work& again = implementation.recomputes_last_product ? work.forward : work.recompute;
    time.recompute = time.forward;
    time.recompute.products = attention.products + block.products(again);
    time.recompute.tensor = block.tensor_seconds(again) + context_forward;
    if (implementation.keeps_products) {
      time.recompute.products = implementation.recompute_share * block.products(again);
      time.recompute.elementwise -= attention.elementwise;
      time.recompute.tensor = implementation.recompute_share * block.tensor_seconds(again);
    } else
      time.recompute = implementation.recompute_share * time.recompute;
  } else if (layout.recompute == Recompute::selective && implementation.recomputes_attention) {
    if (!implementation.fused_attention) {
      time.recompute = attention;
      time.recompute.host = block.host(0.3);
    }
  } else if (layout.recompute == Recompute::selective) {
    time.recompute.elementwise = traffic_seconds(cluster.device, work.recompute_for_weight.elementwise_bytes);
    time.recompute.host = block.host(0.2);
  }
  if (experts.count > 0)
    add_experts(time, block);
  return time;
}

BlockTime head_time(const ModelConfig& model, const Cluster& cluster, const Layout& layout,
                    const Implementation& implementation, Index sequence_length) {
  const Block block(model, cluster, layout, implementation, sequence_length);
  const double columns = to_double(model.vocab_size) / block.t;
  const Precision precision = attention_precision(layout.precision);
  // Of the whole vocabulary, of which each tensor rank has its part.
  const auto [logits, table_gradient, norm_gradient] = head_matmuls(
      make_block_shape(model, 1, false, layout.micro_batch, std::max<Index>(1, sequence_length / layout.context)));
  const auto product = [&](double m, double n, double k) {
    return product_seconds(cluster.device, precision, m, n, k);
  };
  BlockTime time;
  // The loss in fp32, kernel by kernel: 18 bytes a logit forward (cast, maximum, exponentials, sum), 12 backward
  // (gradient, cast); in one kernel a logit is read twice and its gradient written.
  const double loss_forward = implementation.fused_loss ? 3 * block.e : 18;
  const double loss_backward = implementation.fused_loss ? 0 : 12;
  time.forward.products = product(to_double(logits.m), to_double(logits.n) / block.t, to_double(logits.k));
  time.forward.elementwise =
      traffic_seconds(cluster.device, (loss_forward * columns + 4 * block.e * block.c) * block.rows);
  time.forward.host = block.host(0.6);
  time.backward_input.products =
      product(to_double(norm_gradient.m), to_double(norm_gradient.n), to_double(norm_gradient.k) / block.t);
  time.backward_input.elementwise =
      traffic_seconds(cluster.device, (loss_backward * columns + 6 * block.e * block.c) * block.rows);
  time.backward_input.host = block.host(0.4);
  if (layout.tensor > 1)
    time.backward_input.tensor =
        collective_seconds(cluster, Collective::all_reduce, tensor_axis(layout), block.e * block.rows * block.c);
  time.backward_weight.products =
      product(to_double(table_gradient.m) / block.t, to_double(table_gradient.n), to_double(table_gradient.k));
  return time;
}

BlockTime embedding_time(const ModelConfig& model, const Cluster& cluster, const Layout& layout,
                         Index sequence_length) {
  const Implementation any;  // the same in all
  const Block block(model, cluster, layout, any, sequence_length);
  BlockTime time;
  const double elements = block.rows * block.c;
  time.forward.elementwise = traffic_seconds(cluster.device, 6 * block.e * elements);
  time.forward.host = block.host(0.2);
  if (layout.tensor > 1)
    time.forward.tensor = collective_seconds(cluster, Collective::all_reduce, tensor_axis(layout), block.e * elements);
  time.backward_weight.elementwise = traffic_seconds(cluster.device, 10 * block.e * elements);
  time.backward_weight.host = block.host(0.2);
  return time;
}

}  // namespace espalier

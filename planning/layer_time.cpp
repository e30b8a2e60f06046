// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/layer_time.hpp"

#include <algorithm>
#include <cmath>

#include "core/scalars.hpp"
#include "models/rank_memory.hpp"
#include "planning/collective_time.hpp"
#include "planning/expert_time.hpp"
#include "planning/layer_parameters.hpp"

namespace espalier {
namespace {

constexpr double attention_block = 128;  // rows of a fused kernel's tile: on the diagonal it computes the masked half
constexpr double backward_products = 5.0 / 4;  // of a fused kernel, which computes the scores again [Dao 2023]
constexpr double exponentials =
    16 * 1.8e9;                           // per second of a processor: 16 a cycle since Volta [CUDA guide, arithmetic]
constexpr double kernels_forward = 22;    // of a block: products, norms, attention, copies, adds
constexpr double kernels_unfused = 6;     // more, where attention is not one kernel
constexpr double kernels_compiled = 0.4;  // of them, where a compiler has fused the elementwise ones
// Kernels of other passes, as rough shares of those that a block has in forward.
constexpr double kernels_input = 1.3;
constexpr double kernels_weight = 0.3;
constexpr double kernels_attention = 0.3;
constexpr double kernels_norms = 0.2;
constexpr double kernels_head_forward = 0.6;
constexpr double kernels_head_backward = 0.4;
constexpr double kernels_embedding = 0.2;

struct Block {
  const ModelConfig& model;
  const Cluster& cluster;
  const Layout& layout;
  const Implementation& implementation;
  BlockShape shape;
  ScalarType type;
  double rows, c, t, e;  // rows of a micro-batch on a rank, channels, tensor ranks, bytes of an activation
  double length;         // of a sequence, which context ranks share

  Block(const ModelConfig& m, const Cluster& machine, const Layout& plan, const Implementation& how, Index tokens)
      : model(m),
        cluster(machine),
        layout(plan),
        implementation(how),
        shape(block_shape(m, plan, tokens)),
        type(types_of_precision(plan.precision).compute),
        rows(to_double(shape.tokens())),
        c(to_double(m.hidden_size)),
        t(plan.tensor),
        e(activation_bytes(plan.precision)),
        length(to_double(tokens)) {}

  const Accelerator& device() const { return cluster.device; }
  bool is_fp8() const { return layout.precision == Precision::fp8; }
  double product(double m, double n, double k) const {
    return product_seconds(device(), layout.precision, m, n, k) / (is_fp8() ? implementation.fp8_matmul_efficiency : 1);
  }

  // Of the matmuls that the layers list.
  double products(const Work& work) const {
    double seconds = 0;
    for (const MatmulWork& one : work.matmuls)
      if (one.n > 0 && one.k > 0 && one.m > 0)  // not the feed-forward that experts replace
        seconds += to_double(one.count) * product(to_double(one.m), to_double(one.n), to_double(one.k));
    return seconds;
  }

  // Q K^T, softmax and the product with V.
  PassTime attention(const Work& work) const {
    PassTime pass;
    for (const AttentionWork& one : work.attention)
      pass += implementation.fused_attention ? PassTime{.products = fused_seconds(one)} : unfused(one.backward);
    return pass;
  }

  // Of one kernel, by layers with a window and without. Context ranks share the queries of a sequence; the rate depends
  // on `keys`, twice those that a query sees.
  double fused_seconds(AttentionWork one) const {
    const MatrixRate& rate = device().rate(attention_precision(layout.precision));
    one.shape.sequence_length = static_cast<Index>(length);
    const double channels = to_double(one.shape.head_size);
    const auto of_window = [&](Index window) {
      one.shape.window = window;
      const double keys = 2 * one.shape.seen_keys() / length;
      return one.flops() * (1 + (attention_block - 1) / keys) / rate.attention(implementation.tuned_attention, keys);
    };
    return (one.backward ? backward_products : 1) * std::max(1.0, least_head_size(rate) / channels) *
           model.sum_over_windows(of_window) / to_double(model.num_layers) / (rate.peak_flops * layout.context);
  }

  // Whole (T, T) matrices, which backward has kept.
  PassTime unfused(bool backward) const {
    const double head_size = to_double(model.head_size());
    const Precision precision = attention_precision(layout.precision);
    const double batch = to_double(shape.attention.batch * shape.attention.num_heads);
    const double own = length / layout.context;
    PassTime pass;
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

  // Channels of a head whose matmuls take as long as its exponentials. Narrower heads take no less, and the shares of
  // the peak are those of heads of 128. Unknown, and no limit, where the number of processors is not given.
  double least_head_size(const MatrixRate& rate) const {
    if (device().processors == 1)
      return 0;
    return std::min(128.0, rate.peak_flops / (4 * exponentials * device().processors));
  }

  // Of the kernels that the layers list, and what this program moves beyond.
  double elementwise(const Work& work, const MoreArrays& more) const {
    const double arrays = more.stream * to_double(shape.rows * shape.channels) +
                          rows * (more.qkv * to_double(shape.qkv_channels()) +
                                  more.qk * to_double(shape.qk_channels()) + more.ffn * to_double(shape.ffn));
    return traffic_seconds(device(), work.elementwise_bytes + e * arrays + cast_bytes(work));
  }

  // To fp8, of what the products read; of weights to one form for forward, to the other for backward.
  double cast_bytes(const Work& work) const {
    double bytes = 0;
    if (is_fp8())
      for (const MatmulWork& one : work.matmuls)
        bytes += implementation.cast_bytes * to_double(one.count * one.k) *
                 (to_double(one.m) + (implementation.casts_weights ? to_double(one.n) / 2 : 0));
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
    const double bytes = (backward ? 2 : 1) * 2 * e * rows * to_double(shape.kv_channels);
    const double sent = (layout.context - 1) * message_seconds(cluster, context_axis(layout), bytes);
    return beside(device(), attention_seconds, sent) - attention_seconds;
  }

  // `share`: of the kernels that a block has in forward.
  double host(double share) const {
    const double kernels = kernels_forward + (implementation.fused_attention ? 0 : kernels_unfused);
    return share * kernels * start_seconds() * (implementation.compiled ? kernels_compiled : 1);
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
  const auto sixth_power = [](double x) { return x * x * x * x * x * x; };
  return longer * std::cbrt(std::sqrt(sixth_power(on_device / longer) + sixth_power(host / longer)));
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
  const LayerWork listed = block_work(block.shape, block.type);
  LayerWork work = listed;
  if (experts.count > 0) {  // add_experts() has the products of the feed-forward
    BlockShape without = block.shape;
    without.ffn = without.up = 0;
    work = block_work(without, block.type);
  }
  BlockTime time;
  const PassTime attention = block.attention(work.forward);
  const double context_forward = block.context_seconds(attention.products, false);

  time.forward = attention;
  time.forward.products += block.products(work.forward);
  time.forward.elementwise += block.elementwise(listed.forward, implementation.more_forward);
  time.forward.tensor = block.tensor_seconds(work.forward) + context_forward;
  time.forward.host = block.host(1);

  time.backward_input = block.attention(work.backward_input);
  const double context_backward = block.context_seconds(time.backward_input.products, true);
  time.backward_input.products += block.products(work.backward_input);
  time.backward_input.elementwise += block.elementwise(listed.backward_input, implementation.more_backward);
  time.backward_input.tensor = block.tensor_seconds(work.backward_input) + context_backward;
  time.backward_input.host = block.host(kernels_input);

  time.backward_weight.products = block.products(work.backward_weight);
  time.backward_weight.elementwise = traffic_seconds(cluster.device, listed.backward_weight.elementwise_bytes);
  if (!implementation.fused_accumulation)
    time.backward_weight.elementwise += traffic_seconds(
        cluster.device, 3 * implementation.gradient_bytes * to_double(matrix_parameters_per_layer(model)) / block.t);
  if (implementation.gathers_rows_again)
    time.backward_weight.tensor = block.tensor_seconds(work.backward_weight);
  time.backward_weight.host = block.host(kernels_weight);

  if (implementation.overlaps_tensor_backward) {  // of sequence parallelism the reduce_scatters alone
    const double overlappable = time.backward_input.tensor * (layout.sequence_parallel ? 0.5 : 1);
    const double beside_it = time.backward_weight.products;
    time.backward_input.tensor -= overlappable;
    time.backward_input.tensor += beside(cluster.device, beside_it, overlappable) - beside_it;
  }

  if (layout.recompute == Recompute::full) {
    const auto part = implementation.recomputes_last_product ? &LayerWork::forward : &LayerWork::recompute;
    const Work& again = work.*part;
    time.recompute = attention;
    time.recompute.products += block.products(again);
    time.recompute.elementwise += block.elementwise(listed.*part, implementation.more_forward);
    time.recompute.host = time.forward.host;
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
      time.recompute.host = block.host(kernels_attention);
    }
  } else if (layout.recompute == Recompute::selective) {
    time.recompute.elementwise = traffic_seconds(cluster.device, listed.recompute_for_weight.elementwise_bytes);
    time.recompute.host = block.host(kernels_norms);
  }
  if (experts.count > 0)
    add_experts(time, block);
  return time;
}

BlockTime head_time(const ModelConfig& model, const Cluster& cluster, const Layout& layout,
                    const Implementation& implementation, Index sequence_length) {
  const Block block(model, cluster, layout, implementation, sequence_length);
  const Precision precision = attention_precision(layout.precision);
  const auto [logits, table_gradient, norm_gradient] = head_matmuls(block.shape);
  const auto product = [&](const MatmulWork& one) {
    return product_seconds(cluster.device, precision, to_double(one.m), to_double(one.n), to_double(one.k));
  };
  const LayerWork listed = head_work(model, block.shape, block.type);
  const auto elementwise = [&](const Work& work, double more) {
    return traffic_seconds(cluster.device,
                           work.elementwise_bytes + block.e * more * block.rows * to_double(block.shape.vocabulary));
  };
  BlockTime time;
  time.forward.products = product(logits);
  time.forward.elementwise = elementwise(listed.forward, implementation.more_forward.logits);
  time.forward.host = block.host(kernels_head_forward);
  time.backward_input.products = product(norm_gradient);
  time.backward_input.elementwise = elementwise(listed.backward_input, implementation.more_backward.logits);
  time.backward_input.host = block.host(kernels_head_backward);
  time.backward_input.tensor = block.tensor_seconds(listed.forward);  // the head's forward has its backward in it
  time.backward_weight.products = product(table_gradient);
  time.backward_weight.elementwise = elementwise(listed.backward_weight, 0);
  return time;
}

BlockTime embedding_time(const ModelConfig& model, const Cluster& cluster, const Layout& layout,
                         const Implementation& implementation, Index sequence_length) {
  const Block block(model, cluster, layout, implementation, sequence_length);
  const LayerWork listed = embedding_work(block.shape, block.type);
  BlockTime time;
  time.forward.elementwise = traffic_seconds(cluster.device, listed.forward.elementwise_bytes);
  time.forward.host = block.host(kernels_embedding);
  time.forward.tensor = block.tensor_seconds(listed.forward);
  time.backward_weight.tensor = block.tensor_seconds(listed.backward_weight);
  time.backward_weight.elementwise = traffic_seconds(cluster.device, listed.backward_weight.elementwise_bytes);
  time.backward_weight.host = block.host(kernels_embedding);
  return time;
}

}  // namespace espalier

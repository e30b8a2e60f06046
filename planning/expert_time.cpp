// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "planning/expert_time.hpp"

#include "core/scalars.hpp"
#include "planning/collective_time.hpp"
#include "planning/layer_parameters.hpp"

namespace espalier {
namespace {

constexpr double router_kernels = 20;     // softmax, the best, counts, offsets, sorting
constexpr double kernels_per_expert = 2;  // a product each, up and down
constexpr double casts_per_expert = 6;    // to fp8: of a product's input, and the layouts of both operands' scales

}  // namespace

ExpertTime expert_time(const ModelConfig& model, const Cluster& cluster, const Layout& layout,
                       const Implementation& implementation, double rows) {
  const Experts& experts = implementation.experts;
  const bool whole = are_whole(experts);
  const double c = to_double(model.hidden_size);
  const double width = to_double(model.ffn_hidden_size) / experts.of_token / (whole ? 1 : layout.tensor);
  const double up = (model.gated() ? 2 : 1) * width;
  const double own = to_double(experts.count) / experts.parallel;
  // Where experts are whole each tensor rank sends rows of its own.
  const double sent = rows * experts.of_token / (whole ? layout.tensor : 1);
  const double each = sent / own;  // rows of an expert: as many come as are sent
  const auto grouped = [&](double m, double n, double k) {
    return product_seconds(cluster.device, layout.precision, m, n, k, own);
  };
  const double e = activation_bytes(layout.precision);
  const double router = product_seconds(cluster.device, attention_precision(layout.precision),
                                        rows / (whole ? layout.tensor : 1), experts.count, c);
  ExpertTime time;
  time.forward = router + grouped(each, up, c) + grouped(each, c, width);
  time.backward_input = router + grouped(each, c, up) + grouped(each, width, c);
  time.backward_weight = router + grouped(c, up, each) + grouped(width, c, each);
  // Read and written on the way there and back; once more on the rank that rows have come to.
  double bytes = (experts.parallel > 1 ? 8 : 4) * e * sent * c;
  if (layout.precision == Precision::fp8)  // of what a product reads
    bytes += implementation.cast_bytes * sent * c;
  time.copies = traffic_seconds(cluster.device, bytes);
  const double one_way =
      all_to_all_seconds(cluster, {.size = experts.parallel, .stride = whole ? 1 : layout.tensor},
                         e * sent / experts.of_token * c, experts.of_token, implementation.sends_rows_once);
  time.messages = 2 * one_way;
  const double casts = layout.precision == Precision::fp8 ? casts_per_expert : 0;
  time.kernels = router_kernels + (kernels_per_expert + casts) * own;
  return time;
}

}  // namespace espalier

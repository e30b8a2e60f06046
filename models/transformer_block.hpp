// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cmath>

#include "models/attention.hpp"
#include "models/dropout_rows.hpp"
#include "models/mlp.hpp"
#include "models/model_config.hpp"
#include "models/norm_layer.hpp"

namespace espalier {

/// The pre-norm block: h = x + attention(norm1(x)); y = h + mlp(norm2(h)), with dropout of both summands. It is
/// stateless between calls: Saved has what backward needs, Gradients what backward_weight also needs. So micro-batches
/// may be in flight in any order, and backward_weight may come later.
template <class P>
class TransformerBlock {
  using T = Compute<P>;
  using Stream = Tensor<Residual<P>, 2>;

 public:
  struct Saved {
    typename NormLayer<P>::Saved norm1;
    typename Attention<P>::Saved attention;
    Stream h;  ///< (R, C), between the two halves
    typename NormLayer<P>::Saved norm2;
    typename Mlp<P>::Saved mlp;
    Stream y;  ///< (R, C), the input of the next block; not in the list: it is always kept

    template <class Visit>
    void each(Visit& visit, const BlockShape& shape) {
      norm1.each(visit, shape.norm, shape.rows, shape.channels);
      attention.each(visit, shape);
      visit(h, SavedArray{"h", MadeBy::matmul, ReadBy::both_parts}, shape.rows, shape.channels);
      norm2.each(visit, shape.norm, shape.rows, shape.channels);
      mlp.each(visit, shape);
    }
  };
  struct Gradients {
    Stream dmlp;          ///< (R, C), gradient of the mlp's output: dy after dropout, or dy itself without
    Tensor<T, 2> dnorm2;  ///< (R, C), of the output of norm2
    typename NormLayer<P>::Gradients norm2;
    Stream dh;            ///< (R, C)
    Stream dattention;    ///< (R, C), gradient of attention's output: dh after dropout, or dh itself without
    Tensor<T, 2> dnorm1;  ///< (R, C)
    typename NormLayer<P>::Gradients norm1;
    typename Mlp<P>::Gradients mlp;
    typename Attention<P>::Gradients attention;

    static Gradients take(Arena& arena, const BlockShape& shape) {
      Gradients gradients;
      if (shape.drops_residual) {
        gradients.dmlp = arena.take<Residual<P>>(shape.rows, shape.channels);
        gradients.dattention = arena.take<Residual<P>>(shape.rows, shape.channels);
      }
      gradients.dnorm2 = arena.take<T>(shape.rows, shape.channels);
      gradients.norm2 = NormLayer<P>::Gradients::take(arena, shape.norm, shape.rows, shape.channels);
      gradients.dh = arena.take<Residual<P>>(shape.rows, shape.channels);
      gradients.dnorm1 = arena.take<T>(shape.rows, shape.channels);
      gradients.norm1 = NormLayer<P>::Gradients::take(arena, shape.norm, shape.rows, shape.channels);
      gradients.mlp = Mlp<P>::Gradients::take(arena, shape);
      gradients.attention = Attention<P>::Gradients::take(arena, shape);
      return gradients;
    }
  };

  /// Block `layer` of the model: "h.LAYER". `rotary` must outlive it.
  TransformerBlock(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const RotaryTable<T>& rotary,
                   Index layer, const ModelConfig& config, Placement placement)
      : name_(name_of(layer)),
        tensor_(&tensor),
        num_heads_(config.num_heads),
        attention_dropout_(config.attention_dropout),
        residual_dropout_(config.residual_dropout),
        window_(config.window_of(layer)),
        norm1_(parameters, tensor, name_ + ".norm1", config, placement),
        attention_(parameters, tensor, rotary, name_ + ".attention", config, placement, initial_weight_std,
                   projection_std(config)),
        norm2_(parameters, tensor, name_ + ".norm2", config, placement),
        mlp_(parameters, tensor, name_ + ".mlp", config, placement, initial_weight_std, projection_std(config)) {}

  /// Whether backward_input reads arrays of a block that are not kept: then it first computes all of them again.
  static bool recomputes_for_input(Recompute mode) {
    return any_saved([&](const SavedArray& a) { return a.read_by != ReadBy::backward_weight && !is_kept(a, mode); });
  }
  /// Whether backward_weight computes again what it alone reads.
  static bool recomputes_for_weight(Recompute mode) {
    return !recomputes_for_input(mode) && any_saved([&](const SavedArray& a) { return !is_kept(a, mode); });
  }

  static LayerWork work(const BlockShape& shape) {
    LayerWork work;
    NormLayer<P>::work(work, shape);
    Attention<P>::work(work, shape);
    NormLayer<P>::work(work, shape);
    Mlp<P>::work(work, shape);
    if (shape.drops_residual)
      work.backward_input.elementwise_bytes += array_bytes<Residual<P>>(shape.rows, shape.channels, 4);
    return work;
  }

  /// saved.y = block(x); x must live until backward is done. @param positions, cached see Attention::forward
  void forward(const ExecSpace& exec, Stream x /* (R, C) */, const BlockShape& shape, Saved& saved,
               Tensor<int, 1> positions /* (N) */, const KvCache<T>& cached = {}) const {
    first_half(exec, x, shape, saved, positions, cached);
    mlp_.forward(exec, saved.y, saved.norm2.y, saved.h, saved.mlp, mlp_dropout(shape));
  }

  /// Forward again from x, all of `saved` but y.
  void recompute(const ExecSpace& exec, Stream x /* (R, C) */, const BlockShape& shape, Saved& saved,
                 Tensor<int, 1> positions /* (N) */) const {
    first_half(exec, x, shape, saved, positions);
    mlp_.recompute(exec, saved.norm2.y, saved.mlp);
  }

  /// Forward again what backward_weight alone reads, from the rest of `saved`.
  void recompute_for_weight(const ExecSpace& exec, Saved& saved) const {
    norm1_.forward(exec, saved.norm1.x, saved.norm1);
    norm2_.forward(exec, saved.norm2.x, saved.norm2);
    mlp_.recompute_for_weight(exec, saved.mlp);
  }

  /// dx may be dy only if backward_weight is not called later.
  void backward_input(const ExecSpace& exec, Stream dx /* (R, C), = */, Stream dy /* (R, C) */, const BlockShape& shape,
                      const Saved& saved, Gradients& gradients, Tensor<int, 1> positions /* (N) */) const {
    before_dropout(exec, gradients.dmlp, dy, mlp_dropout(shape));
    mlp_.backward_input(exec, gradients.dnorm2, gradients.dmlp, saved.mlp, gradients.mlp);
    norm2_.backward_input(exec, gradients.dh, dy, gradients.dnorm2, saved.norm2, gradients.norm2);
    before_dropout(exec, gradients.dattention, gradients.dh, projection_dropout(shape));
    attention_.backward_input(exec, gradients.dnorm1, gradients.dattention, in_window(shape), saved.attention,
                              gradients.attention, probability_dropout(shape), positions);
    norm1_.backward_input(exec, dx, gradients.dh, gradients.dnorm1, saved.norm1, gradients.norm1);
  }

  /// Overwrites the gradients of the weights (beta 0) or adds to them (1).
  void backward_weight(const ExecSpace& exec, const BlockShape& shape, const Saved& saved, const Gradients& gradients,
                       State<T> beta) const {
    mlp_.backward_weight(exec, saved.norm2.y, gradients.dmlp, saved.mlp, gradients.mlp, beta);
    norm2_.backward_weight(exec, gradients.dnorm2, saved.norm2, gradients.norm2, beta);
    attention_.backward_weight(exec, saved.norm1.y, gradients.dattention, in_window(shape), saved.attention,
                               gradients.attention, beta);
    norm1_.backward_weight(exec, gradients.dnorm1, saved.norm1, gradients.norm1, beta);
  }

 private:
  template <class Condition>
  static bool any_saved(const Condition& condition) {
    bool any = false;
    const auto visit = [&](auto&, const SavedArray& array, auto...) { any = any || condition(array); };
    Saved().each(visit, BlockShape{});
    return any;
  }

  // Each block adds two branches to the residual stream: their last layers start smaller, so that its variance does not
  // grow with the depth (GPT-2, section 2.3).
  static double projection_std(const ModelConfig& config) {
    return initial_weight_std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  }

  static std::string name_of(Index layer) { return fmt::format("h.{}", layer); }

  // Blocks of a model differ in nothing else.
  AttentionShape in_window(const BlockShape& shape) const {
    AttentionShape attention = shape.attention;
    attention.window = window_;
    return attention;
  }

  // Up to the input of the mlp.
  void first_half(const ExecSpace& exec, Stream x, const BlockShape& shape, Saved& saved,
                  const Tensor<int, 1>& positions, const KvCache<T>& cached = {}) const {
    norm1_.forward(exec, x, saved.norm1);
    attention_.forward(exec, saved.h, saved.norm1.y, x, in_window(shape), saved.attention, probability_dropout(shape),
                       projection_dropout(shape), positions, cached);
    norm2_.forward(exec, saved.h, saved.norm2);
  }

  Dropout mlp_dropout(const BlockShape& shape) const { return residual_dropout(shape, ".mlp"); }
  Dropout projection_dropout(const BlockShape& shape) const { return residual_dropout(shape, ".attention"); }
  Dropout residual_dropout(const BlockShape& shape, const char* half) const {
    return dropout_of_rows(shape.dropout, residual_dropout_, name_ + half, shape.attention.sequence_length,
                           tensor_->first_row(shape.tokens()));
  }
  AttentionDropout probability_dropout(const BlockShape& shape) const {
    const Index length = shape.attention.sequence_length;
    const Index first_head = tensor_->shard(0).range(num_heads_).begin;
    return {dropout_of_rows(shape.dropout, attention_dropout_, name_ + ".attention.probabilities", num_heads_ * length,
                            first_head * length),
            num_heads_};
  }

  // The gradient of what was dropped: what is left of dy, which it is itself where nothing is.
  static void before_dropout(const ExecSpace& exec, Stream& dx /* (R, C) */, const Stream& dy /* (R, C) */,
                             const Dropout& dropout) {
    if (dropout.is_on())
      apply_dropout<Residual<P>>(exec, dx, dy, dropout);
    else
      dx = dy;
  }

  std::string name_;
  const TensorParallel<T>* tensor_;
  Index num_heads_;  // of all ranks
  double attention_dropout_, residual_dropout_;
  Index window_;
  NormLayer<P> norm1_;
  Attention<P> attention_;
  NormLayer<P> norm2_;
  Mlp<P> mlp_;
};

}  // namespace espalier

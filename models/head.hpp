// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "core/ops/cross_entropy.hpp"
#include "core/ops/matmul.hpp"
#include "models/embedding.hpp"
#include "models/model_config.hpp"
#include "models/norm_layer.hpp"

namespace espalier {

/// Final norm, language-model head, softmax and cross-entropy over a vocabulary that is cut over the tensor axis: Vl
/// entries on this rank. The (N, V) logits are never stored: rows are processed in chunks of NL. In training each chunk
/// is finished, gradients included, before the next one begins (as in Liger kernels, Hsu et al., 2024). So forward adds
/// the gradient of the token embedding, in the order of the forwards, and only the norm is left for backward.
template <class P>
class Head {
  using T = Compute<P>;
  using Stream = Tensor<Residual<P>, 2>;

 public:
  struct Saved {
    typename NormLayer<P>::Saved norm;  ///< y is the output of the norm, after the loss its gradient
    typename NormLayer<P>::Gradients norm_gradients;
  };
  /// Used in forward only: one is enough.
  struct Scratch {
    Tensor<T, 2> logits;          ///< (NL, Vp): Vl and, on GPUs, columns of zeros, see LogitSizes
    Tensor<State<T>, 1> losses;   ///< (N)
    Tensor<State<T>, 1> largest;  ///< (NL), of the logits of all ranks; only where the vocabulary is cut
    Tensor<State<T>, 1> sums;     ///< (2 NL), see core/ops/cross_entropy; only where the vocabulary is cut
  };

  /// `table` is the handle of its weight, (V, C): of the embedding's table, or of one of its own.
  Head(ParameterStore<T>& parameters, const TensorParallel<T>& tensor, const ModelConfig& config, Placement placement,
       int table)
      : parameters_(&parameters),
        tensor_(&tensor),
        config_(config),
        norm_(parameters, tensor, "final_norm", config, placement),
        table_(table) {}

  static Saved take_saved(Arena& arena, const BlockShape& shape) {
    Saved saved;
    TakeArrays take(arena, [](const SavedArray&) { return true; });
    saved.norm.each(take, shape.norm, shape.rows, shape.channels);
    saved.norm_gradients = NormLayer<P>::Gradients::take(arena, shape.norm, shape.rows, shape.channels);
    return saved;
  }

  static Scratch take_scratch(Arena& arena, const BlockShape& shape) {
    Scratch scratch;
    scratch.logits = arena.take<T>(shape.logit_rows, shape.logit_columns);
    scratch.losses = arena.take<State<T>>(shape.tokens());
    if (shape.tensor_size > 1) {
      scratch.largest = arena.take<State<T>>(shape.logit_rows);
      scratch.sums = arena.take<State<T>>(2 * shape.logit_rows);
    }
    return scratch;
  }

  /// Those of so many rows, without the table's rows of zeros (LogitSizes): they are no work of the model.
  static HeadMatmuls matmuls(const BlockShape& shape, Index rows) {
    return {.logits = {rows, shape.vocabulary, shape.channels},
            .table_gradient = {shape.vocabulary, shape.channels, rows},
            .norm_gradient = {rows, shape.channels, shape.vocabulary}};
  }

  /// All matmuls are in forward.
  static LayerWork work(const BlockShape& shape, Index vocab_size) {
    LayerWork work;
    NormLayer<P>::work(work, shape);
    add_gather<T>(work.forward, shape, shape.channels);
    const Index columns = shape.vocabulary;
    const Index rows = logit_rows(shape.tokens(), vocab_size, shape.tensor_size, logits_here.max_at_once);
    for (Index first = 0; first < shape.tokens(); first += rows) {
      const Index count = std::min(rows, shape.tokens() - first);
      const HeadMatmuls of_chunk = matmuls(shape, count);
      work.forward.matmuls.push_back(of_chunk.logits);
      if (shape.tensor_size > 1)
        for (const Index values : {count, 2 * count})
          work.forward.collectives.push_back({Collective::all_reduce, values, sizeof(State<T>)});
      work.forward.matmuls.push_back(of_chunk.table_gradient);
      work.forward.matmuls.push_back(of_chunk.norm_gradient);
    }
    // Logits are read twice and become their gradient; where the vocabulary is cut the largest is found before.
    work.forward.elementwise_bytes += array_bytes<T>(shape.tokens(), columns, shape.tensor_size > 1 ? 4 : 3);
    work.backward_input.elementwise_bytes += array_bytes<Residual<P>>(shape.rows, shape.channels);  // zeros
    add_reduce<T>(work.forward, shape, shape.channels);
    return work;
  }

  /// saved.norm of x
  void forward(const ExecSpace& exec, Stream x /* (R, C) */, Saved& saved) const { norm_.forward(exec, x, saved.norm); }

  /// scratch.losses, the same on all ranks of the tensor axis.
  void loss(const ExecSpace& exec, Tensor<TokenId, 1> targets /* (N) */, const Saved& saved, Scratch& scratch) const {
    for_chunks(targets, tensor_->gather(exec, saved.norm.y), scratch,
               [&](Tensor<T, 2> normed, Tensor<TokenId, 1> wanted, Tensor<State<T>, 1> losses) {
                 const Tensor<T, 2> logits = without_padding(logits_of(exec, normed, scratch));
                 if (tensor_->size() > 1)
                   split_loss(exec, wanted, losses, logits, scratch);
                 else
                   cross_entropy_forward<T>(exec, losses, logits, wanted);
               });
  }

  /// The same; saved.norm.y becomes its own gradient, that of scale * (sum of losses), and the token embedding's is
  /// added. In the full form of the norm's output each chunk is replaced by its gradient (our summand of it) when it
  /// has been read for the last time.
  void loss_and_gradient(const ExecSpace& exec, Tensor<TokenId, 1> targets /* (N) */, State<T> scale, Saved& saved,
                         Scratch& scratch) const {
    for_chunks(targets, tensor_->gather(exec, saved.norm.y), scratch,
               [&](Tensor<T, 2> normed, Tensor<TokenId, 1> wanted, Tensor<State<T>, 1> losses) {
                 const Tensor<T, 2> dlogits = logits_of(exec, normed, scratch);  // at first the logits themselves
                 const Tensor<T, 2> logits = without_padding(dlogits);           // whose zeros beside them stay
                 if (tensor_->size() > 1) {
                   split_loss(exec, wanted, losses, logits, scratch);
                   const auto count = static_cast<Index>(logits.extent(0));
                   cross_entropy_split_backward<T>(exec, logits, wanted, part(scratch.largest, 0, count),
                                                   part(scratch.sums, 0, 2 * count), vocabulary().begin, scale);
                 } else {
                   cross_entropy_forward_backward<T>(exec, losses, logits, wanted, scale);
                 }
                 matmul<T, State<T>>(exec, parameters_->padded_gradient(table_), Transpose::yes, dlogits, Transpose::no,
                                     normed, State<T>(1), State<T>(1));
                 matmul<T>(exec, normed, Transpose::no, dlogits, Transpose::no, parameters_->padded_weight(table_));
               });
    tensor_->reduce(exec, saved.norm.y);
  }

  /// After forward, our logits (count, Vl) of rows [first, first + count); count is NL at most.
  Matrix<T> logits(const ExecSpace& exec, Index first, Index count, const Saved& saved, Scratch& scratch) const {
    ESPALIER_ASSERT(count <= static_cast<Index>(scratch.logits.extent(0)), "more rows than the logits have");
    return without_padding(logits_of(exec, rows_of(tensor_->gather(exec, saved.norm.y), first, count), scratch));
  }

  void backward_input(const ExecSpace& exec, Stream dx /* (R, C), = */, const Saved& saved) const {
    Kokkos::deep_copy(exec, dx, Residual<P>(0));
    norm_.backward_input(exec, dx, dx, saved.norm.y, saved.norm, saved.norm_gradients);
  }

  /// Of the norm, as TransformerBlock's; the table's is added to by loss_and_gradient.
  void backward_weight(const ExecSpace& exec, const Saved& saved, State<T> beta) const {
    norm_.backward_weight(exec, saved.norm.y, saved.norm, saved.norm_gradients, beta);
  }

  void zero_table_gradient(const ExecSpace& exec) const {
    Kokkos::deep_copy(exec, parameters_->padded_gradient(table_), State<T>(0));
  }

 private:
  template <class Vector>
  static Vector part(const Vector& values, Index first, Index count) {
    return Vector(values.data() + first, count);
  }
  static Tensor<T, 2> rows_of(const Tensor<T, 2>& matrix, Index first, Index count) {
    return Kokkos::subview(matrix, std::pair<Index, Index>(first, first + count), Kokkos::ALL);
  }

  // normed W^T, (rows, Vp): matmuls take the table's rows of zeros along.
  Tensor<T, 2> logits_of(const ExecSpace& exec, Tensor<T, 2> normed, Scratch& scratch) const {
    Tensor<T, 2> logits = rows_of(scratch.logits, 0, normed.extent(0));
    matmul<T>(exec, logits, Transpose::no, normed, Transpose::yes, parameters_->padded_weight(table_));
    return logits;
  }
  Tensor<T, 2> without_padding(const Tensor<T, 2>& logits) const {
    return Kokkos::subview(logits, Kokkos::ALL, std::pair<Index, Index>(0, vocabulary().size()));
  }

  // work(rows of normed, their targets, their losses) for chunk after chunk.
  template <class F>
  void for_chunks(Tensor<TokenId, 1> targets, Tensor<T, 2> normed, const Scratch& scratch, const F& work) const {
    const auto tokens = static_cast<Index>(normed.extent(0));
    const auto rows = static_cast<Index>(scratch.logits.extent(0));
    for (Index first = 0; first < tokens; first += rows) {
      const Index count = std::min(rows, tokens - first);
      work(rows_of(normed, first, count), part(targets, first, count), part(scratch.losses, first, count));
    }
  }

  // Maximum and sums of our columns, then of all: two small all_reduces of NL and 2 NL values.
  void split_loss(const ExecSpace& exec, Tensor<TokenId, 1> targets, Tensor<State<T>, 1> losses, Tensor<T, 2> logits,
                  Scratch& scratch) const {
    const auto count = static_cast<Index>(logits.extent(0));
    const Tensor<State<T>, 1> largest = part(scratch.largest, 0, count);
    const Tensor<State<T>, 1> sums = part(scratch.sums, 0, 2 * count);
    cross_entropy_largest<T>(exec, largest, logits);
    tensor_->all_reduce_rows(exec, largest, ReduceOp::max);
    cross_entropy_sums<T>(exec, sums, logits, targets, largest, vocabulary().begin);
    tensor_->all_reduce_rows(exec, sums, ReduceOp::sum);
    cross_entropy_losses<State<T>>(exec, losses, targets, largest, sums);
  }

  IndexRange vocabulary() const { return tensor_->shard(0).range(config_.vocab_size); }  // of this rank

  const ParameterStore<T>* parameters_;
  const TensorParallel<T>* tensor_;
  ModelConfig config_;
  NormLayer<P> norm_;
  int table_;
};

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint_reader.hpp"
#include "models/decoder.hpp"
#include "parallel/communicator.hpp"

namespace espalier {

/// The whole model of a checkpoint on one rank, to run forward: weights without gradients, and of the activations one
/// block's and the residual stream. P is the precision that it computes in. T = sequence length, V = vocabulary.
template <class P>
class LoadedModel {
 public:
  /// @param available_bytes of memory; 0: unknown
  /// @throws Error (checkpoint) where it is damaged, or its config and its tensors disagree; (memory) where the weights
  /// do not fit.
  LoadedModel(const CheckpointReader& checkpoint, std::size_t available_bytes);

  const ModelConfig& shape() const { return shape_; }
  Decoder<P>& decoder() { return model_; }
  const ExecSpace& exec() const { return exec_; }

  /// Makes room for micro-batches of (micro_batch, length). @throws Error (memory) where they do not fit.
  void make_room(Index micro_batch, Index length);

  /// Makes room for one sequence of `length` whose keys and values are kept. @throws Error (memory)
  void make_room_to_generate(Index length);

  /// Logits (V) of what follows the tokens. Those of the last call, if they begin alike, are not computed again.
  /// @pre make_room_to_generate() of a length that holds them
  std::vector<float> next_logits(const std::vector<TokenId>& tokens);

  /// Gives `visit` the logits of the last `count` tokens, row by row, several rows of V at a time, of what follows each
  /// of them. @pre room for micro-batches of one sequence that holds the tokens; count <= tokens.size()
  void visit_logits(const std::vector<TokenId>& tokens, Index count,
                    const std::function<void(std::span<const float>)>& visit);

 private:
  void require_memory(std::size_t activations) const;
  std::vector<float> to_host(const Matrix<Compute<P>>& logits /* (rows, V) */) const;

  ExecSpace exec_;
  Path path_;
  std::size_t available_bytes_;
  ModelConfig shape_;
  ParameterStore<Compute<P>> parameters_;
  Decoder<P> model_;
  Index length_ = 0;
  std::vector<TokenId> cached_;  // whose keys and values the decoder keeps
};

/// Gives `load` the newest checkpoint that it can load on all ranks, of those that `given` names (a checkpoint, or the
/// directory of a run): where it throws Error (checkpoint) on any, `note` is told on rank 0, and all take the next one.
/// Collective; `load` must not communicate. @throws what `load` throws of the last, on all ranks.
void load_newest(const std::string& given, const Communicator& world,
                 const std::function<void(const std::string&)>& note,
                 const std::function<void(const CheckpointReader&)>& load);

}  // namespace espalier

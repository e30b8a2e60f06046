// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "io/checkpoint/checkpoint_reader.hpp"
#include "models/decoder.hpp"
#include "parallel/collectives/communicator.hpp"

namespace espalier {

/// A text that generation continues: the sequence of the cache, and its tokens so far.
struct TextSoFar {
  int sequence = 0;
  std::span<const TokenId> tokens;
};

/// The model of a checkpoint, to run forward: weights without gradients, the activations of one block, and the residual
/// stream. It is whole on one rank, or cut over tensor ranks. P is the precision that it computes in.
/// T = sequence length, V = vocabulary.
template <class P>
class LoadedModel {
 public:
  /// @param available_bytes of memory; 0: unknown
  /// @param tensor ranks that share the model, each of which reads its part; none: one rank. It must outlive this.
  /// @throws Error (checkpoint) where it is damaged, or its config and its tensors disagree; (memory) where the weights
  /// do not fit; (usage) where so many ranks cannot share the model.
  LoadedModel(const CheckpointReader& checkpoint, std::size_t available_bytes, const Communicator* tensor = nullptr);

  const ModelConfig& shape() const { return shape_; }
  Decoder<P>& decoder() { return model_; }
  const ExecSpace& exec() const { return exec_; }

  /// Allocates what micro-batches of (micro_batch, length) need, with positions if documents are separate.
  /// @throws Error (memory) where they do not fit.
  void allocate_activations(Index micro_batch, Index length, bool separate_documents = false);

  /// Allocates the cache of keys and values for sequences of up to `length` tokens. @throws Error (memory)
  void allocate_cache(Index sequences, Index length);

  /// As many of `sequences` as memory has a cache for; 0: of none.
  Index sequences_that_fit(Index sequences, Index length) const;

  /// The useful number of sequences at a time: more do not take less time each.
  static constexpr Index useful_sequences = exec_is_host ? few_rows : max_decoded;

  /// Logits (V) of the token that follows each text, on every rank. The cache keeps the tokens of the last call for
  /// each sequence: where a text begins with these, only its new tokens are computed. On hosts a text has the same bits
  /// whatever the other texts are. Collective over the tensor ranks.
  /// @pre allocate_cache() for as many sequences and for the longest text; each sequence at most once
  std::vector<std::vector<float>> next_logits(const std::vector<TextSoFar>& texts);

  /// Before another text takes this place of the cache.
  void forget(int sequence) { cached_.at(static_cast<std::size_t>(sequence)).clear(); }

  /// Runs the tokens once, and gives `visit` the logits (rows, V) of what follows each of the last `count` tokens, some
  /// rows at a time, in order.
  /// @pre one rank; allocate_activations() for a micro-batch of one sequence of as many tokens; count <= tokens.size()
  /// @param positions of the tokens, in separate documents
  void visit_logits(const std::vector<TokenId>& tokens, Index count,
                    const std::function<void(std::span<const float>)>& visit, const std::vector<int>& positions = {});

 private:
  void require_memory(std::size_t activations, const std::string& todo = "") const;
  std::size_t weight_bytes() const;
  std::vector<float> to_host(const Matrix<Compute<P>>& logits /* (rows, V/tp) */) const;

  ExecSpace exec_;
  Path path_;
  std::size_t available_bytes_;
  const Communicator* tensor_;  // null: one rank
  ModelConfig shape_;
  ParameterStore<Compute<P>> parameters_;
  Decoder<P> model_;
  Index length_ = 0;
  Index rows_ = 0;                            // that the decoder takes in at a time
  std::vector<std::vector<TokenId>> cached_;  // by sequence: whose keys and values the decoder keeps
};

/// Gives `load` the newest checkpoint that it can load on all ranks, of those that `given` names (a checkpoint, or the
/// directory of a run): where it throws Error (checkpoint) on any, `note` gets it on rank 0, and all take the next one.
/// Collective; `load` must not communicate. @throws what `load` throws of the last, on all ranks.
void load_newest(const std::string& given, const Communicator& world,
                 const std::function<void(const std::string&)>& note,
                 const std::function<void(const CheckpointReader&)>& load);

}  // namespace espalier

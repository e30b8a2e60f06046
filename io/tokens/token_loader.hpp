// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "core/parameter_spec.hpp"
#include "io/tokens/blend.hpp"
#include "io/tokens/sample_index.hpp"

namespace espalier {

/// Letters: B = micro-batch size, T = sequence length.
struct Batch {
  Index batch_size = 0;
  Index sequence_length = 0;
  Index first_sample = 0;        ///< global sample index of row 0; rows are consecutive
  std::vector<TokenId> inputs;   ///< (B, T)
  std::vector<TokenId> targets;  ///< (B, T): the token after each input; -1 = ignored
  std::vector<int> positions;    ///< (B, T): of each token in its document, in this row; empty: documents are joined
};

struct LoaderOptions {
  Index micro_batch_size = 1;
  Index sequence_length = 1;
  Index global_batch_size = 1;  ///< sequences a step over all replicas
  int rank = 0;                 ///< of the data-parallel replica
  int size = 1;
  std::uint64_t seed = 0;
  Index vocab_size = 0;                   ///< every token read is checked against it; 0: unchecked
  bool separate_documents = false;        ///< batches say where documents start
  std::optional<TokenId> document_end{};  ///< ends documents in files that do not state them

  SampleOptions samples() const { return {sequence_length, vocab_size, separate_documents}; }
};

/// How many samples of the ranges, which share none, lie before a position.
Index samples_before(const std::vector<IndexRange>& ranges, Index position);

/// Training batches. Each set has a fresh shuffle in each of its epochs: its sample number d is window
/// permuted_index(seed, d / n, d mod n, n) of n. A blend says which set global sample g comes from; without one there
/// is one set, and d = g. So a step has the same tokens for any number of replicas. Replica r takes the r-th equal part
/// of a step.
class TokenLoader {
 public:
  /// @param blend of as many sets; may be empty for one
  TokenLoader(std::vector<SampleIndex> sets, std::optional<Blend> blend, const LoaderOptions& options);

  const std::vector<SampleIndex>& sets() const { return sets_; }
  const std::optional<Blend>& blend() const { return blend_; }
  Index num_tokens() const;  ///< of all sets, each counted once
  Index num_microbatches() const;
  Index valid_tokens() const;      ///< targets of a global step that count, where all do
  bool all_targets_count() const;  ///< else valid_tokens() is the most that may

  /// Where the tokens of a global sample come from.
  SampleIndex::Location locate(Index global_sample) const;

  /// Micro-batch `microbatch` of this replica, of the step whose first global sample is `position`.
  Batch batch(Index position, Index microbatch) const;

  /// All micro-batches of the step at position(), or at the next one that is not passed over; position() then is behind
  /// them.
  std::vector<Batch> next_step();

  /// The first `num_samples` of the next step, dealt out over the replicas in as few micro-batches as hold
  /// them, equally many on each: rows beyond have targets -1. Moves nothing.
  std::vector<Batch> preview(Index num_samples) const;

  /// Samples consumed or passed over so far.
  Index position() const { return position_; }
  void seek(Index position) { position_ = position; }

  /// Global samples that next_step() leaves out, whole steps each; the order of all others stays what it is. With
  /// position() all that a checkpoint keeps of the loader.
  const std::vector<IndexRange>& passed_over() const { return passed_over_; }
  void set_passed_over(std::vector<IndexRange> samples);
  Index num_passed_over() const { return samples_before(passed_over_, position_); }

 private:
  Index next_position() const;  ///< position(), or behind the samples passed over that it lies in
  void read_row(Batch& batch, Index row) const;
  /// The set of a global sample, and which of its windows it is.
  std::pair<const SampleIndex*, Index> find(Index global_sample) const;

  LoaderOptions options_;
  std::vector<SampleIndex> sets_;
  std::optional<Blend> blend_;
  Index position_ = 0;
  std::vector<IndexRange> passed_over_;  // by their begin
};

/// Validation batches: the first `max_samples` windows in file order (0: all of them), the same ones for any
/// number of replicas. Rows beyond the last sample have targets -1.
class SequentialLoader {
 public:
  SequentialLoader(std::vector<TokenFile> files, const LoaderOptions& options, Index max_samples);
  SequentialLoader(SampleIndex samples, const LoaderOptions& options, Index max_samples);
  Index num_samples() const { return num_samples_; }
  Index num_batches() const;   ///< the same on every replica
  Index valid_tokens() const;  ///< targets over all batches and replicas, where all count
  bool all_targets_count() const { return samples_.all_targets_count(); }
  Batch batch(Index index) const;

 private:
  LoaderOptions options_;
  SampleIndex samples_;
  Index num_samples_;
};

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/parameter_spec.hpp"
#include "io/token_file.hpp"

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
  Index vocab_size = 0;             ///< every token read is checked against it; 0: unchecked
  bool separate_documents = false;  ///< batches say where documents start
};

/// Samples of several token files: windows of T + 1 tokens that overlap by the one token which is target of
/// the first and input of the second.
class SampleIndex {
 public:
  SampleIndex(std::vector<TokenFile> files, Index sequence_length, Index vocab_size);
  Index num_samples() const { return last_sample_.back(); }
  Index num_tokens() const;
  const std::vector<TokenFile>& files() const { return files_; }

  /// Writes T inputs and T targets.
  void read(Index sample, TokenId* inputs, TokenId* targets) const;

  /// Where a sample's first token stands.
  struct Place {
    const TokenFile* file = nullptr;
    Index first_token = 0;
  };
  Place place(Index sample) const;

 private:
  std::vector<TokenFile> files_;
  std::vector<Index> last_sample_;  // of each file, exclusive: a running sum
  Index sequence_length_;
  Index vocab_size_;
};

/// How many samples of the ranges, which share none, lie before a position.
Index samples_before(const std::vector<IndexRange>& ranges, Index position);

/// Training batches. Global sample g is window permuted_index(seed, g / n, g mod n, n) of n: a fresh shuffle
/// every epoch, the same tokens in a step for any number of replicas. Replica r takes the r-th equal part of
/// a step.
class TokenLoader {
 public:
  TokenLoader(std::vector<TokenFile> files, const LoaderOptions& options);

  Index num_samples() const { return samples_.num_samples(); }  ///< an epoch
  Index num_tokens() const { return samples_.num_tokens(); }
  Index num_microbatches() const;
  Index valid_tokens() const;  ///< targets of a global step that count: all of them

  /// Where the tokens of a global sample come from.
  SampleIndex::Place place(Index global_sample) const;

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

  LoaderOptions options_;
  SampleIndex samples_;
  Index position_ = 0;
  std::vector<IndexRange> passed_over_;  // by their begin
};

/// Validation batches: the first `max_samples` windows in file order (0: all of them), the same ones for any
/// number of replicas. Rows beyond the last sample have targets -1.
class SequentialLoader {
 public:
  SequentialLoader(std::vector<TokenFile> files, const LoaderOptions& options, Index max_samples);
  Index num_samples() const { return num_samples_; }
  Index num_batches() const;   ///< the same on every replica
  Index valid_tokens() const;  ///< over all batches and replicas
  Batch batch(Index index) const;

 private:
  LoaderOptions options_;
  SampleIndex samples_;
  Index num_samples_;
};

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "io/tokens/token_file.hpp"

namespace espalier {

/// Documents that follow each other in a file: where they begin in the file, and in what is read of it.
struct DocumentRun {
  Index in_file = 0;
  Index in_subset = 0;
};

/// A token file, or those of its documents that are on one side of a split, one after the other. Positions count the
/// tokens of the subset.
class TokenSubset {
 public:
  /// All of the file. @param document_end ends each document where the file does not state them
  explicit TokenSubset(TokenFile file, std::optional<TokenId> document_end = {});
  TokenSubset(TokenFile file, std::optional<TokenId> document_end, std::vector<DocumentRun> runs, Index num_tokens);

  const TokenFile& file() const { return file_; }
  Index num_tokens() const { return num_tokens_; }
  Index position_in_file(Index position) const;
  void read(Index first, std::span<TokenId> tokens) const;

  /// The places t > 0 among these tokens, which were read from `first` on, where a document starts.
  std::vector<std::size_t> document_starts(Index first, std::span<const TokenId> tokens) const;

  bool has_loss_mask() const { return file_.has_loss_mask(); }
  void read_loss_mask(Index first, std::span<std::uint8_t> loss_mask) const;

 private:
  template <class Visit>
  void for_each_piece(Index first, std::size_t size, const Visit& visit) const;

  TokenFile file_;
  std::optional<TokenId> document_end_;
  std::vector<DocumentRun> runs_;
  Index num_tokens_;
};

std::vector<TokenSubset> whole_files(std::vector<TokenFile> files, std::optional<TokenId> document_end = {});

/// Which documents of a file train and which validate. In memory are 16 bytes for each change of side.
struct DocumentSplit {
  std::vector<DocumentRun> train;
  std::vector<DocumentRun> validation;
  Index train_tokens = 0;
  Index validation_tokens = 0;
};

/// A document validates if its random number, which is made of (seed, file, document), is below `fraction`. Reads the
/// file's list of documents, or all tokens where `document_end` ends them. @throws Error (data) for a file in rows
DocumentSplit split_documents(const TokenFile& file, std::optional<TokenId> document_end, std::uint64_t seed,
                              std::size_t file_number, double fraction);

/// @throws Error (data) for a file that does not say where its documents are, and without `document_end`.
/// @param key of the config that wants to know it
void require_documents(const TokenFile& file, std::optional<TokenId> document_end, const char* key);

struct SampleOptions {
  Index sequence_length = 1;        ///< T
  Index vocab_size = 0;             ///< every token read is checked against it; 0: unchecked
  bool separate_documents = false;  ///< else one follows the other as if they were one
};

/// Samples of a set of token files: windows of T + 1 tokens that overlap by the one token which is target of the first
/// and input of the second.
class SampleIndex {
 public:
  /// @throws Error (data) for a file that is shorter than one sequence, or a set whose documents are where a file is
  /// split between training and validation
  SampleIndex(std::vector<TokenSubset> files, const SampleOptions& options);
  Index num_samples() const { return last_sample_.back(); }
  Index num_tokens() const;
  const std::vector<TokenSubset>& files() const { return files_; }

  /// Whether no target of any sample is -1.
  bool all_targets_count() const;

  /// Writes T inputs and T targets: -1 behind the last token of a document that is separate, and where the file's loss
  /// mask says so. @param positions T: of each token in its document, from 0 at the beginning of the sample; or nullptr
  void read(Index sample, TokenId* inputs, TokenId* targets, int* positions = nullptr) const;

  /// Where a sample's first token stands.
  struct Location {
    const TokenFile* file = nullptr;
    Index first_token = 0;
  };
  Location locate(Index sample) const;

 private:
  struct Window {
    const TokenSubset* file = nullptr;
    Index first = 0;
  };
  Window window(Index sample) const;

  std::vector<TokenSubset> files_;
  std::vector<Index> last_sample_;  // of each file, exclusive: a running sum
  SampleOptions options_;
};

}  // namespace espalier

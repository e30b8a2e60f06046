// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "io/tokens/token_subset.hpp"

namespace espalier {

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
  struct Place {
    const TokenFile* file = nullptr;
    Index first_token = 0;
  };
  Place place(Index sample) const;

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

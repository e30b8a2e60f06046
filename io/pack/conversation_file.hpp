// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "io/pack/conversations.hpp"
#include "io/pack/pack_conversations.hpp"
#include "io/pack/spool_file.hpp"
#include "io/tokens/token_file.hpp"

namespace espalier {

/// Writes a token file of conversations: one behind the other, or in rows (io/pack/pack_conversations.hpp).
class ConversationFile {
 public:
  /// @param sequence_length of the rows; 0: no rows  @param padding the token in what a row has left
  ConversationFile(const Path& path, const Tokenizer& tokenizer, Index sequence_length, TokenId padding);
  ConversationFile(const ConversationFile&) = delete;
  ConversationFile& operator=(const ConversationFile&) = delete;

  void add(ConversationTokens conversation);
  const ConversationFileSummary& summary() const { return summary_; }
  /// @throws Error (data) where the file has no conversation
  void require_conversations() const;
  /// Writes all of it to the partial file; adds no more conversations.
  void complete();
  /// Gives the completed file its name.
  void finish() { writer_.finish(); }

 private:
  void put_aside(const ConversationTokens& conversation);
  void write_rows();

  Path path_;
  Index sequence_length_;
  TokenId padding_;
  TokenFileWriter writer_;
  SpoolFile aside_;               // conversations for rows, until all are there: of each its tokens, then its loss mask
  std::string unwritten_;         // behind them
  std::vector<Index> begins_{0};  // of these, and behind the last one, in tokens
  ConversationFileSummary summary_;
};

/// Puts whole documents into rows of `capacity` tokens by best-fit decreasing: the longest first, each into the row
/// that it fills most (Ding et al. 2024, "Fewer Truncations Improve Language Modeling"). Costs n log(capacity).
/// @param lengths 1 to `capacity` tokens each
/// @returns the documents of each row
std::vector<std::vector<Index>> best_fit_rows(std::span<const Index> lengths, Index capacity);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/conversations.hpp"
#include "io/pack_conversations.hpp"
#include "io/token_file.hpp"

namespace espalier {

/// Writes a token file of conversations: one behind the other, or in rows (io/pack_conversations.hpp).
class ConversationFile {
 public:
  /// @param sequence_length of the rows; 0: no rows  @param padding the token in what a row has left
  ConversationFile(const Path& path, const Tokenizer& tokenizer, Index sequence_length, TokenId padding);
  ConversationFile(const ConversationFile&) = delete;
  ConversationFile& operator=(const ConversationFile&) = delete;
  ~ConversationFile();

  void add(ConversationTokens conversation);
  const ConversationFileSummary& summary() const { return summary_; }
  /// @throws Error (data) where the file has no conversation
  void require_conversations() const;
  void finish();

 private:
  void write_rows();

  Path path_;
  std::string tokenizer_;
  Index vocab_size_;
  Index sequence_length_;
  TokenId padding_;
  Path unsorted_;  // where conversations are kept until all are there; empty: no rows
  std::optional<TokenFileWriter> writer_;
  std::vector<Index> begins_;  // of the conversations, and behind the last one
  ConversationFileSummary summary_;
};

}  // namespace espalier

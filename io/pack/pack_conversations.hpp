// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "io/file.hpp"
#include "io/text/chat_template.hpp"
#include "io/text/tokenizer.hpp"

namespace espalier {

struct ConversationOptions {
  Index sequence_length = 0;       ///< of rows that hold whole conversations; 0: no rows, one behind the other
  double validation_fraction = 0;  ///< of the conversations
  std::uint64_t seed = 0;          ///< of the choice of those
  bool skip_bad = false;           ///< skip and count lines that hold no conversation
  Index num_threads = 0;           ///< that encode; 0: one a core
};

/// What a token file of conversations holds.
struct ConversationFileSummary {
  Index num_conversations = 0;
  Index num_tokens = 0;    ///< of them
  Index num_targets = 0;   ///< tokens that the loss counts: those of the answers
  Index num_cut = 0;       ///< conversations that were longer than a row, and lost their end
  Index num_left_out = 0;  ///< conversations whose row ends before an answer begins
  Index num_rows = 0;
};

struct ConversationSummary {
  Index num_bad = 0;                        ///< lines left out
  std::vector<std::string> bad_lines = {};  ///< the first of them: where, and why
  ConversationFileSummary train;
  ConversationFileSummary validation;
};

/// Packs conversations, a line of JSON each (io/pack/conversations.hpp), into token files with documents and a loss
/// mask. Files may be gzip or zstd; "-" alone is standard input. With a sequence length T, rows of T tokens hold whole
/// conversations (io/pack/conversation_file.hpp), and a longer one is cut: the samples of a loader with that length are
/// these rows. Space that is left belongs to the last conversation of a row and does not count. Which conversations
/// validate: those whose random number, of the seed and their text, is below the fraction. Keeps a bit a token, 8 bytes
/// a conversation that goes to a row, and some MiB a thread; such conversations lie in a temporary file without a name
/// until all are there. What a killed process has left is replaced.
/// @throws Error before anything is written under the name of an output: (data) for a line that holds no conversation,
/// or a file without one, (usage) for outputs that are inputs
ConversationSummary pack_conversations(const std::vector<Path>& files, const Tokenizer& tokenizer,
                                       const ChatTemplate& chat, const Path& output, const Path& validation_output,
                                       const ConversationOptions& options);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "io/text/chat_template.hpp"
#include "io/text/tokenizer.hpp"

namespace espalier {

/// The conversation of a line of JSON: {"messages": [{"role": "user", "content": "..."}, ...]}, or {"prompt": "...",
/// "completion": "..."}, where either may be such a list too, and a text is the user's or the assistant's.
/// @throws std::runtime_error: says what is wrong; also for a conversation without an answer
std::vector<ChatMessage> read_conversation(std::string_view line);

/// A conversation as tokens. What counts is the answers, each with its end; nothing else does.
struct ConversationTokens {
  std::vector<TokenId> tokens;
  std::vector<std::uint8_t> counts;  ///< 1 or 0 each: as a target
};

/// Each answer is encoded apart from what stands before it: so it meets the tokens of the prompt of `espalier generate`.
/// @throws ChatError as ChatTemplate::render
ConversationTokens encode_conversation(std::span<const ChatMessage> messages, const ChatTemplate& chat,
                                       const Tokenizer& tokenizer);

/// The token that ends an answer. @throws Error (data) where the tokenizer has none of that text
TokenId answer_end_token(const ChatTemplate& chat, const Tokenizer& tokenizer);

}  // namespace espalier

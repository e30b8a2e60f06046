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
  std::vector<std::uint8_t> loss_mask;  ///< 1: the loss counts the token as a target; 0: it does not
};

/// The tokens are those of the whole text. An answer begins with the first token that the text before it alone has not.
/// @pre an answer ends with a token of its own: answer_end_token()
/// @throws ChatError as ChatTemplate::render
ConversationTokens encode_conversation(std::span<const ChatMessage> messages, const ChatTemplate& chat,
                                       const Tokenizer& tokenizer);

/// The token that ends an answer. @throws Error (data) where the tokenizer has none of that text
TokenId answer_end_token(const ChatTemplate& chat, const Tokenizer& tokenizer);

}  // namespace espalier

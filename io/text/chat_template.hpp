// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

struct ChatMessage {
  std::string role;  ///< "system", "user", "assistant"
  std::string content;
};

/// A conversation that a template does not take. what() says why.
class ChatError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Text of a conversation: of an answer, its end included, or of what stands between answers.
struct ChatPart {
  std::string text;
  bool is_answer = false;
};

/// How the messages of a conversation become one text: ChatML (SmolLM2, Qwen), Llama 3, or Mistral.
struct ChatTemplate {
  /// What stands around the content of a message.
  struct Turn {
    std::string begin;
    std::string end;
    bool trims = false;  ///< white space around the content is left out
  };
  /// Where the system message stands: in a turn of its own, or before the content of a user's message: of the first, of
  /// the last, or of the last only if it ends the conversation; or nowhere.
  enum class System { turn, first_user, last_user, ending_user, refused };

  std::string kind;
  std::string conversation_begin = {};
  Turn system = {};
  Turn user = {};
  Turn assistant = {};
  std::string before_answer = {};  ///< is part of the answer
  std::string after_answer = {};   ///< follows the answer's end, and is no part of it
  System system_position = System::turn;
  std::optional<std::string> default_system = {};  ///< of a conversation without a system message
  std::string before_first_system = {};            ///< stands before its content
  bool alternates = false;                         ///< user and assistant take turns
  bool has_reasoning = false;                      ///< Qwen3: answers behind the last question have a <think> block

  /// @throws ChatError for a role, or an order of roles, that the template does not take
  std::vector<ChatPart> render(std::span<const ChatMessage> messages) const;

  /// The text up to where the model's answer begins. @throws ChatError
  std::string prompt(std::span<const ChatMessage> messages) const;
};

/// The template that a Jinja text means. It is recognized by its parts; no Jinja is run.
/// @param bos, eos the tokens that it calls bos_token and eos_token
/// @throws std::runtime_error for one that is none of those above: says what is not supported
ChatTemplate chat_template_of(std::string_view jinja, const std::string& bos, const std::string& eos);

/// The template in chat_template.jinja or tokenizer_config.json beside a tokenizer.
/// @param tokenizer its file, or the directory with it
/// @throws Error: (usage) where there is none, (data) for one that is not supported
ChatTemplate load_chat_template(const std::string& tokenizer);

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/pack/conversations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "core/printable_text.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"
#include "io/text/tokenizer_files.hpp"

namespace espalier {
namespace {

using nlohmann::json;

const std::string& text_at(const json& value, const std::string& where) {
  if (!value.is_string())
    throw std::runtime_error(fmt::format("{} is {}, wanted a text", where, shown_json(value)));
  return value.get_ref<const std::string&>();
}

const json& field_of(const json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end())
    throw std::runtime_error(fmt::format("{} has no \"{}\"", where, key));
  return *found;
}

// What would change the text, and is not written into it.
void refuse_fields(const json& object, std::initializer_list<const char*> keys, const std::string& where) {
  for (const char* const key : keys)
    if (const auto found = object.find(key);
        found != object.end() && !found->empty() && *found != json(""))  // null is empty
      throw std::runtime_error(fmt::format("{} has \"{}\", which is not supported", where, key));
}

void add_messages(const json& list, const char* key, std::vector<ChatMessage>& messages) {
  if (!list.is_array())
    throw std::runtime_error(fmt::format("\"{}\" is {}, wanted a list of messages", key, shown_json(list)));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("message {} of \"{}\"", i + 1, key);
    if (!list[i].is_object())
      throw std::runtime_error(
          fmt::format("{} is {}, wanted an object with role and content", where, shown_json(list[i])));
    refuse_fields(list[i], {"tool_calls", "function_call", "reasoning_content", "thinking", "images", "audio"}, where);
    messages.push_back({text_at(field_of(list[i], "role", where), where + ": \"role\""),
                        text_at(field_of(list[i], "content", where), where + ": \"content\"")});
  }
}

void add_side(const json& line, const char* key, const char* role, std::vector<ChatMessage>& messages) {
  const json& side = field_of(line, key, "the line");
  if (side.is_array())
    add_messages(side, key, messages);
  else
    messages.push_back({role, text_at(side, fmt::format("\"{}\"", key))});
}

}  // namespace

std::vector<ChatMessage> read_conversation(std::string_view line) {
  if (!is_utf8(line))
    throw std::runtime_error("the line is not UTF-8");
  json value;
  try {
    value = parse_json(line);
  } catch (const JsonError& error) {
    throw std::runtime_error(fmt::format("the line is not JSON: {}", error.what()));
  }
  if (!value.is_object())
    throw std::runtime_error(fmt::format("the line is {}, wanted an object", shown_json(value)));
  refuse_fields(value, {"tools", "functions", "images", "audio", "chat_template_kwargs"}, "the line");
  std::vector<ChatMessage> messages;
  if (value.contains("messages")) {
    add_messages(value["messages"], "messages", messages);
  } else if (value.contains("prompt") || value.contains("completion")) {
    add_side(value, "prompt", "user", messages);
    add_side(value, "completion", "assistant", messages);
  } else {
    throw std::runtime_error(R"(the line has no "messages", and no "prompt" and "completion")");
  }
  const auto is_answer = [](const ChatMessage& message) { return message.role == "assistant"; };
  if (std::ranges::none_of(messages, is_answer))
    throw std::runtime_error("the conversation has no answer: no message of the role \"assistant\"");
  if (std::ranges::any_of(messages,
                          [&](const ChatMessage& message) { return is_answer(message) && message.content.empty(); }))
    throw std::runtime_error("the conversation has an empty answer");
  return messages;
}

ConversationTokens encode_conversation(std::span<const ChatMessage> messages, const ChatTemplate& chat,
                                       const Tokenizer& tokenizer) {
  ConversationTokens conversation;
  auto& [tokens, loss_mask] = conversation;
  const std::vector<ChatPart> parts = chat.render(messages);
  std::vector<TokenId> before;  // tokens of what stands before an answer
  for (std::size_t i = 0; i < parts.size();) {
    EncodeOptions options{.is_begin = i == 0};
    std::string text = parts[i].is_answer ? "" : parts[i++].text;
    const bool has_answer = i < parts.size();
    before.clear();
    tokenizer.encode(text, before, {.is_begin = options.is_begin, .is_end = !has_answer});
    if (has_answer)
      text += parts[i++].text;
    options.is_end = i == parts.size();
    const auto begin = std::ssize(tokens);
    tokenizer.encode(text, tokens, options);
    const auto answer = std::mismatch(tokens.begin() + begin, tokens.end(), before.begin(), before.end()).first;
    loss_mask.resize(static_cast<std::size_t>(answer - tokens.begin()), 0);
    loss_mask.resize(tokens.size(), has_answer ? 1 : 0);
  }
  return conversation;
}

TokenId answer_end_token(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  const TokenId token = chat.assistant.end.empty() ? -1 : tokenizer.special_token(chat.assistant.end);
  if (token < 0)
    throw Error(ExitCode::data,
                {.what = "a tokenizer has no token for the end of an answer",
                 .where = tokenizer.name(),
                 .got = chat.assistant.end.empty() ? fmt::format("a {} without an eos_token", TokenizerFile::config)
                                                   : fmt::format("no token \"{}\"", printable_line(chat.assistant.end)),
                 .wanted = fmt::format("the tokens of the {} template", chat.kind),
                 .todo = "use the tokenizer and the template of the same model"});
  // The text is encoded part by part: each part ends with this token.
  const auto encoded = [&](const std::string& text) {
    std::vector<TokenId> tokens;
    tokenizer.encode(text, tokens, {.is_begin = false});
    return tokens;
  };
  std::vector<TokenId> parts = encoded(" a");
  parts.insert(parts.begin(), token);
  if (encoded(chat.assistant.end + " a") != parts)
    throw Error(ExitCode::data,
                {.what = "a tokenizer does not find the end of an answer in a text",
                 .where = tokenizer.name(),
                 .got = fmt::format("other tokens for \"{}\"", printable_line(chat.assistant.end)),
                 .wanted = fmt::format("the token {} there", token),
                 .todo = "use the model's tokenizer.json: tokens of a SentencePiece model are not found in texts"});
  return token;
}

}  // namespace espalier

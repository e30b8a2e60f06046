// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/conversations.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/printable_text.hpp"
#include "io/json_fields.hpp"
#include "io/json_reader.hpp"

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

void add_messages(const json& list, const char* key, std::vector<ChatMessage>& messages) {
  if (!list.is_array())
    throw std::runtime_error(fmt::format("\"{}\" is {}, wanted a list of messages", key, shown_json(list)));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("message {} of \"{}\"", i + 1, key);
    if (!list[i].is_object())
      throw std::runtime_error(
          fmt::format("{} is {}, wanted an object with role and content", where, shown_json(list[i])));
    if (const auto calls = list[i].find("tool_calls"); calls != list[i].end() && !calls->is_null() && !calls->empty())
      throw std::runtime_error(where + " has \"tool_calls\", which are not supported");
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
  std::vector<ChatMessage> messages;
  if (value.contains("messages")) {
    add_messages(value["messages"], "messages", messages);
  } else if (value.contains("prompt") || value.contains("completion")) {
    add_side(value, "prompt", "user", messages);
    add_side(value, "completion", "assistant", messages);
  } else {
    throw std::runtime_error(R"(the line has no "messages", and no "prompt" and "completion")");
  }
  if (std::ranges::none_of(messages, [](const ChatMessage& message) { return message.role == "assistant"; }))
    throw std::runtime_error("the conversation has no answer: no message of the role \"assistant\"");
  return messages;
}

ConversationTokens encode_conversation(std::span<const ChatMessage> messages, const ChatTemplate& chat,
                                       const Tokenizer& tokenizer) {
  ConversationTokens conversation;
  auto& [tokens, counts] = conversation;
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
    counts.resize(static_cast<std::size_t>(answer - tokens.begin()), 0);
    counts.resize(tokens.size(), has_answer ? 1 : 0);
  }
  return conversation;
}

TokenId answer_end_token(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  const TokenId token = chat.assistant.end.empty() ? -1 : tokenizer.special_token(chat.assistant.end);
  if (token < 0)
    throw Error(ExitCode::data,
                {.what = "a tokenizer has no token for the end of an answer",
                 .where = tokenizer.name(),
                 .got = chat.assistant.end.empty() ? "a tokenizer_config.json without an eos_token"
                                                   : fmt::format("no token \"{}\"", printable_line(chat.assistant.end)),
                 .wanted = fmt::format("the tokens of the {} template", chat.kind),
                 .todo = "take the tokenizer and the template of one model"});
  return token;
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/chat_template.hpp"

#include <fmt/format.h>

#include "core/printable_text.hpp"
#include "io/file.hpp"
#include "io/input_limits.hpp"
#include "io/json_reader.hpp"
#include "io/text/normalizer.hpp"
#include "io/text/tokenizer_files.hpp"
#include "io/text/utf8.hpp"

namespace espalier {
namespace {

// What Python's str.strip() removes.
bool is_space(std::uint32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

std::string_view stripped_content(std::string_view text) {
  while (!text.empty() && is_space(code_point(text)))
    text.remove_prefix(character_bytes(text));
  while (!text.empty() && is_space(code_point(last_character(text))))
    text.remove_suffix(last_character(text).size());
  return text;
}

std::string_view without_newlines(std::string_view text, bool at_end) {
  text.remove_prefix(std::min(text.size(), text.find_first_not_of('\n')));
  return at_end ? text.substr(0, text.find_last_not_of('\n') + 1) : text;
}

// Qwen3 takes what stands before the last </think> out of an answer, and writes it before the answers behind the last
// question alone.
struct Reasoning {
  std::string_view text;
  std::string_view answer;
};

Reasoning reasoning_of(std::string_view content) {
  const std::size_t last = content.rfind("</think>");
  if (last == std::string_view::npos)
    return {"", content};
  std::string_view text = content.substr(0, content.find("</think>"));
  if (const std::size_t begin = text.rfind("<think>"); begin != std::string_view::npos)
    text.remove_prefix(begin + 7);
  return {without_newlines(text, true), without_newlines(content.substr(last + 8), false)};
}

bool is_tool_response(std::string_view content) {
  return content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
}

std::size_t last_question(std::span<const ChatMessage> messages) {
  for (std::size_t i = messages.size(); i-- > 0;)
    if (messages[i].role == "user" && !is_tool_response(messages[i].content))
      return i;
  return messages.size() - 1;
}

void add(std::vector<ChatPart>& parts, std::string_view text, bool is_answer) {
  if (text.empty())
    return;
  if (parts.empty() || parts.back().is_answer != is_answer)
    parts.push_back({"", is_answer});
  parts.back().text += text;
}

void check_roles(const ChatTemplate& chat, std::span<const ChatMessage> messages) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant")
      throw ChatError(fmt::format("message {} has the role \"{}\"; wanted system, user or assistant", i + 1,
                                  printable_line(role.substr(0, 40))));
    if (role == "system" && chat.system_position == ChatTemplate::System::refused)
      throw ChatError(fmt::format("message {}: the {} template takes no system message", i + 1, chat.kind));
  }
}

void check_order(const ChatTemplate& chat, std::span<const ChatMessage> turns) {
  for (std::size_t i = 0; i < turns.size(); ++i)
    if (turns[i].role != (i % 2 == 0 ? "user" : "assistant"))
      throw ChatError(fmt::format("turn {} is the {}'s: in the {} template user and assistant take turns", i + 1,
                                  turns[i].role, chat.kind));
}

}  // namespace

std::vector<ChatPart> ChatTemplate::render(std::span<const ChatMessage> messages) const {
  check_roles(*this, messages);
  std::vector<ChatPart> parts;
  add(parts, conversation_begin, false);
  std::optional<std::string> first_system = default_system;
  if (!messages.empty() && messages.front().role == "system") {
    first_system = messages.front().content;
    messages = messages.subspan(1);
  }
  if (alternates)
    check_order(*this, messages);
  const auto content_of = [](const Turn& turn, std::string_view content) {
    return turn.trims ? stripped_content(content) : content;
  };
  if (first_system && system_position == System::turn)
    add(parts, system.begin + before_first_system + std::string(content_of(system, *first_system)) + system.end, false);

  const std::size_t question = messages.empty() ? 0 : last_question(messages);
  const auto system_before = [&](std::size_t i) {  // is it in the user's message?
    switch (system_position) {
      case System::first_user: return i == 0;
      case System::last_user: return i == question;
      case System::ending_user: return i + 1 == messages.size();
      default: return false;
    }
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "assistant") {
      const Turn& turn = role == "user" ? user : system;
      const std::string note = role == "user" && first_system && system_before(i) ? *first_system + "\n\n" : "";
      add(parts, turn.begin + note + std::string(content_of(turn, messages[i].content)) + turn.end, false);
      continue;
    }
    std::string_view content = content_of(assistant, messages[i].content);
    add(parts, assistant.begin, false);
    add(parts, before_answer, true);
    if (has_reasoning) {
      const Reasoning reasoning = reasoning_of(content);
      content = reasoning.answer;
      if (i > question && (i + 1 == messages.size() || !reasoning.text.empty())) {
        add(parts, fmt::format("<think>\n{}\n</think>\n\n", reasoning.text), true);
        content = without_newlines(content, false);
      }
    }
    add(parts, content, true);
    add(parts, assistant.end, true);
    add(parts, after_answer, false);
  }
  return parts;
}

std::string ChatTemplate::prompt(std::span<const ChatMessage> messages) const {
  std::string text;
  for (const ChatPart& part : render(messages))
    text += part.text;
  return text + assistant.begin;
}

namespace {

// "<s>", or {"content": "<s>", ...} as older files have it; empty where there is none.
std::string token_of(const nlohmann::json& config, const char* key) {
  const auto token = config.find(key);
  if (token == config.end())
    return "";
  if (token->is_object() && token->contains("content") && token->at("content").is_string())
    return token->at("content").get<std::string>();
  return token->is_string() ? token->get<std::string>() : "";
}

// A text, or a list of named ones, of which the one named "default" is taken.
std::string template_in(const nlohmann::json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null())
    return "";
  if (found->is_string())
    return found->get<std::string>();
  if (found->is_array())
    for (const nlohmann::json& named : *found)
      if (named.is_object() && named.contains("name") && named["name"] == "default" && named.contains("template") &&
          named["template"].is_string())
        return named["template"].get<std::string>();
  throw std::runtime_error("chat_template is neither a text nor a list with one named \"default\"");
}

}  // namespace

ChatTemplate load_chat_template(const std::string& tokenizer) {
  std::error_code ignored;
  const Path directory =
      std::filesystem::is_directory(tokenizer, ignored) ? Path(tokenizer) : Path(tokenizer).parent_path();
  const Path config_file = directory / TokenizerFile::config;
  const Path template_file = directory / TokenizerFile::chat_template;
  const auto refuse = [](const Path& where, const std::string& got) -> Error {
    return {ExitCode::data,
            {.what = "a chat template is not supported",
             .where = where.string(),
             .got = got,
             .wanted = "the template of ChatML (SmolLM2, Qwen2.5, Qwen3), Llama 3 or Mistral",
             .todo = fmt::format("write one of these as {} beside the tokenizer", TokenizerFile::chat_template)}};
  };
  nlohmann::json config = nlohmann::json::object();
  if (std::filesystem::exists(config_file, ignored)) {
    try {
      config = parse_json(read_file(config_file, ExitCode::data, LargestFile::record));
    } catch (const JsonError& error) {
      throw refuse(config_file, error.what());
    }
    if (!config.is_object())
      throw refuse(config_file, "JSON that is not an object");
  }
  const bool has_file = std::filesystem::exists(template_file, ignored);
  const Path where = has_file ? template_file : config_file;
  try {
    const std::string jinja =
        has_file ? read_file(template_file, ExitCode::data, LargestFile::line) : template_in(config);
    if (!jinja.empty())
      return chat_template_of(jinja, token_of(config, "bos_token"), token_of(config, "eos_token"));
  } catch (const Error&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw refuse(where, error.what());
  }
  throw Error(ExitCode::usage, {.what = "a tokenizer has no chat template",
                                .where = tokenizer,
                                .got = directory.empty() ? "a file in no directory" : "none in " + directory.string(),
                                .wanted = fmt::format("{}, or {} with a chat_template", TokenizerFile::chat_template,
                                                      TokenizerFile::config),
                                .todo = "name the directory of a model that was trained on conversations, or write "
                                        "a template there"});
}

}  // namespace espalier

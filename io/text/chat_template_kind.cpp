// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <utility>

#include "core/printable_text.hpp"
#include "io/text/chat_template.hpp"
#include "io/text/chat_template_tags.hpp"
#include "io/text/tokenizer_files.hpp"

namespace espalier {
namespace {

using Fragments = std::initializer_list<std::string_view>;

bool has(const JinjaTags& tags, std::string_view fragment) { return tags.text.find(fragment) != std::string::npos; }

[[noreturn]] void refuse_template(const std::string& what) { throw std::runtime_error("the template " + what); }

void require_part(const JinjaTags& tags, std::string_view fragment) {
  if (!has(tags, fragment))
    refuse_template(fmt::format("has no {}", printable_line(fragment)));
}

// What would change the text in a way that is not known here.
void require_none(const JinjaTags& tags, Fragments fragments) {
  for (const std::string_view fragment : fragments)
    if (has(tags, fragment))
      refuse_template(fmt::format("uses {}", printable_line(fragment)));
}

// The one of the list whose fragment the template has.
template <class List, class Fragment = std::identity>
auto one_of(const JinjaTags& tags, const char* what, const List& known, Fragment fragment = {}) {
  const auto is_there = [&](std::string_view text) { return has(tags, text); };
  const auto* const found = std::ranges::find_if(known, is_there, fragment);
  if (found == std::end(known) || std::ranges::any_of(found + 1, std::end(known), is_there, fragment))
    refuse_template(fmt::format("writes {} in a way that is not known", what));
  return *found;
}

// Tokens such as <|im_start|>, all of which must be known.
void require_marks(const JinjaTags& tags, Fragments known) {
  for (std::size_t begin = tags.text.find("<|"); begin != std::string::npos; begin = tags.text.find("<|", begin + 2)) {
    const std::string mark =
        tags.text.substr(begin, std::min<std::size_t>(tags.text.find("|>", begin), begin + 60) + 2 - begin);
    if (std::ranges::find(known, mark) == known.end())
      refuse_template("writes " + printable_line(mark));
  }
}

// The system message that ChatML writes where a conversation has none.
std::optional<std::string> default_system(const JinjaTags& tags) {
  constexpr std::string_view begin = "<|im_start|>system\n";
  constexpr std::string_view end = "<|im_end|>\n";
  std::optional<std::string> found;
  for (const std::string& literal : tags.literals) {
    if (!literal.starts_with(begin) || !literal.ends_with(end))
      continue;
    const std::string text = literal.substr(begin.size(), literal.size() - begin.size() - end.size());
    if (found && *found != text)
      refuse_template("has two system messages of its own");
    found = text;
  }
  const bool has_other = has(tags, "{{'<|im_start|>system\n'}}");  // a text follows: only for tools
  if (has_other && !has(tags, "{%iftools%}{{'<|im_start|>system\n'}}"))
    refuse_template("writes a system message in a way that is not known");
  return found;
}

ChatTemplate chat_ml(const JinjaTags& tags) {
  require_marks(tags, {"<|im_start|>", "<|im_end|>", "<|endoftext|>"});
  require_part(tags, "{%ifadd_generation_prompt%}{{'<|im_start|>assistant\n'}}");
  one_of(tags, "a message",
         Fragments{"'<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>'+'\n'",
                   "'<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>\n'",
                   "'<|im_start|>'+message['role']+'\n'+content+'<|im_end|>'+'\n'"});
  require_none(tags, {"bos_token", "eos_token", "strftime_now", "|trim", "|upper", "|replace", "{{'<think>\n'}}"});
  const bool has_reasoning = has(tags, "think>");
  if (has_reasoning) {  // as Qwen3 does, or not at all
    require_part(
        tags,
        "{%ifloop.index0>ns.last_query_index%}{%ifloop.lastor(notloop.lastandreasoning_content)%}{{'<|im_start|>'+"
        "message['role']+'\n<think>\n'+reasoning_content.strip('\n')+'\n</think>\n\n'+content.lstrip('\n')}}");
  } else {
    require_none(tags, {"strip("});
  }
  // GCC 12 destroys members twice where a later member's initializer throws: all that may throw stands before.
  const std::optional<std::string> own_system = default_system(tags);
  return {.kind = "ChatML",
          .system = {"<|im_start|>system\n", "<|im_end|>\n"},
          .user = {"<|im_start|>user\n", "<|im_end|>\n"},
          .assistant = {"<|im_start|>assistant\n", "<|im_end|>"},
          .after_answer = "\n",
          .default_system = own_system,
          .has_reasoning = has_reasoning};
}

ChatTemplate llama3(const JinjaTags& tags, const std::string& bos) {
  require_marks(tags, {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"});
  require_part(tags, "{%ifadd_generation_prompt%}{{'<|start_header_id|>assistant<|end_header_id|>\n\n'}}");
  require_part(tags,
               "'<|start_header_id|>'+message['role']+'<|end_header_id|>\n\n'+message['content']|trim+'<|eot_id|>'");
  require_part(tags, "bos_token");
  const auto turn = [](const std::string& role) {
    return ChatTemplate::Turn{fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n", role), "<|eot_id|>", true};
  };
  ChatTemplate chat{.kind = "Llama 3",
                    .conversation_begin = bos,
                    .system = turn("system"),
                    .user = turn("user"),
                    .assistant = turn("assistant")};
  if (!has(tags, "Date")) {
    require_none(tags, {"strftime_now", "system_message"});
    return chat;
  }
  // Llama 3.1 to 3.3. Today's date is the template's own, as a text must not depend on the day.
  require_part(tags, "{%setdate_string='26 Jul 2024'%}");
  require_part(tags, "{{'Cutting Knowledge Date: December 2023\n'}}{{'Today Date: '+date_string+'\n\n'}}");
  chat.before_first_system = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";
  chat.default_system = "";
  return chat;
}

// The one literal with a mark, and nothing else but spaces around it.
std::string mark_of(const JinjaTags& tags, std::string_view mark) {
  std::string found;
  for (const std::string& literal : tags.literals) {
    if (literal.find(mark) == std::string::npos)
      continue;
    if (literal.find_first_not_of(' ') != literal.find(mark) || (!found.empty() && found != literal))
      refuse_template(fmt::format("writes {} in a way that is not known", mark));
    found = literal;
  }
  if (found.empty() || found.find_last_not_of(' ') + 1 != found.find(mark) + mark.size())
    refuse_template(fmt::format("writes {} in a way that is not known", mark));
  return found;
}

ChatTemplate::System mistral_system(const JinjaTags& tags) {
  using enum ChatTemplate::System;
  if (has(tags, "[SYSTEM_PROMPT]"))
    return turn;
  if (!has(tags, "+system_message+"))
    return refused;
  require_part(tags, "+system_message+'\n\n'+message['content']+");
  return one_of(tags, "a system message", mistral_systems, &SystemTag::tag).position;
}

ChatTemplate mistral(const JinjaTags& tags, const std::string& bos, const std::string& eos) {
  require_part(tags, "bos_token");
  require_marks(tags, {});
  require_none(tags, {"<<SYS>>", "strftime_now", "default_system_message", "[THINK]", "[IMG]"});
  const AnswerTag answer = one_of(tags, "an answer", mistral_answers, &AnswerTag::tag);
  const std::string user_begin = mark_of(tags, "[INST]");
  const std::string user_end = mark_of(tags, "[/INST]");
  require_part(tags, fmt::format("'{}'+message['content']+'{}'", user_begin, user_end));
  const ChatTemplate::System position = mistral_system(tags);
  ChatTemplate chat{.kind = "Mistral",
                    .conversation_begin = bos,
                    .user = {user_begin, user_end},
                    .assistant = {"", eos, answer.trims},
                    .before_answer = answer.before,
                    .after_answer = answer.after,
                    .system_position = position,
                    .alternates = has(tags, "mustalternate") || has(tags, "must alternate")};
  if (position == ChatTemplate::System::turn) {
    chat.system.begin = mark_of(tags, "[SYSTEM_PROMPT]");
    chat.system.end = mark_of(tags, "[/SYSTEM_PROMPT]");
  }
  return chat;
}

ChatTemplate template_of_kind(const JinjaTags& tags, const std::string& bos, const std::string& eos) {
  if (has(tags, "<|im_start|>"))
    return chat_ml(tags);
  if (has(tags, "<|start_header_id|>"))
    return llama3(tags, bos);
  if (has(tags, "[INST]"))
    return mistral(tags, bos, eos);
  refuse_template("uses neither <|im_start|>, <|start_header_id|> nor [INST]");
}

}  // namespace

ChatTemplate chat_template_of(std::string_view jinja, const std::string& bos, const std::string& eos) {
  const JinjaTags tags = jinja_tags(jinja);
  ChatTemplate chat = template_of_kind(tags, bos, eos);
  require_known_tags(tags);
  for (const auto& [name, token] : {std::pair("bos_token", &bos), std::pair("eos_token", &eos)})
    if (has(tags, name) && token->empty())
      throw std::runtime_error(fmt::format("the template writes {0}, and {1} has no {0}", name, TokenizerFile::config));
  return chat;
}

}  // namespace espalier

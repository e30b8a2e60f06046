// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/chat_template_tags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "core/printable_text.hpp"
#include "io/strings.hpp"

namespace espalier {
namespace {

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// A string from its first quote on; moves behind its last one.
std::string string_at(std::string_view text, std::size_t& at) {
  const char quote = text[at++];
  std::string value;
  for (; at < text.size(); ++at) {
    if (text[at] == quote) {
      ++at;
      return value;
    }
    const bool is_escape = text[at] == '\\' && at + 1 < text.size();
    at += is_escape ? 1 : 0;
    const char c = text[at];
    value += !is_escape ? c : c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
  }
  throw std::runtime_error("a string of the template has no end");
}

// What a tag has from `at` to its end ("%}", "}}"); moves to the end.
std::string content_at(std::string_view text, std::size_t& at, std::string_view end,
                       std::vector<std::string>& literals) {
  std::string content;
  while (at < text.size() && !text.substr(at).starts_with(end)) {
    const char c = text[at];
    if (c == '\'' || c == '"') {
      literals.push_back(string_at(text, at));
      content += fmt::format("'{}'", literals.back());
      continue;
    }
    const auto is_name = [&](std::string_view name) {
      return text.substr(at + 1).starts_with(name) && at + 1 + name.size() < text.size() &&
             !is_word(text[at + 1 + name.size()]);
    };
    if (c == '.' && (is_name("role") || is_name("content"))) {
      const std::string_view name = is_name("role") ? "role" : "content";
      content += fmt::format("['{}']", name);
      at += 1 + name.size();
      continue;
    }
    if (ascii_white_space.find(c) == std::string_view::npos)
      content += c;
    ++at;
  }
  if (at >= text.size())
    throw std::runtime_error("a tag of the template has no end");
  if (content.ends_with('-') || content.ends_with('+'))
    content.pop_back();
  return content;
}

// What is written of the text between two tags.
std::string_view written(std::string_view text, std::string_view tag_before, std::string_view tag_behind) {
  const bool is_last = tag_behind.empty();
  const bool is_block_before = tag_before.ends_with("%}") || tag_before.ends_with("#}");
  if (is_last && text.ends_with('\n'))
    text.remove_suffix(1);
  bool begins_line = tag_before.empty();
  if (tag_before.size() > 2 && tag_before[tag_before.size() - 3] == '-') {
    text.remove_prefix(std::min(text.size(), text.find_first_not_of(ascii_white_space)));
  } else if (is_block_before && text.starts_with('\n')) {
    text.remove_prefix(1);
    begins_line = true;
  }
  if (tag_behind.size() > 2 && tag_behind[2] == '-') {
    text = text.substr(0, text.find_last_not_of(ascii_white_space) + 1);
  } else if (tag_behind.starts_with("{%") || tag_behind.starts_with("{#")) {
    const std::size_t line = text.find_last_not_of(" \t") + 1;
    if (line == 0 ? begins_line : text[line - 1] == '\n')
      text = text.substr(0, line);
  }
  return text;
}

// NOLINTBEGIN(bugprone-suspicious-missing-comma): the formatter cuts long ones

// Conditions that do not hold: conversations have no tools, no thoughts beside their contents and no date.
constexpr std::string_view false_conditions[] = {"tools",
                                                 "message.tool_calls",
                                                 "(message.tool_calls)",
                                                 "message['role']=='tool'",
                                                 "custom_toolsisdefined",
                                                 "builtin_toolsisdefined",
                                                 "builtin_toolsisdefinedortoolsisnotnone",
                                                 "toolsisnotnone",
                                                 "toolsisnotnoneandnottools_in_user_message",
                                                 "tools_in_user_messageandnottoolsisnone",
                                                 "toolsisnotnoneand(message==user_messages[-1])",
                                                 "'tool_calls'inmessage",
                                                 "message.tool_callsisdefinedandmessage.tool_callsisnotnone",
                                                 "message['role']=='tool'ormessage['role']=='ipython'",
                                                 "message['role']=='tool_results'ormessage['role']=='tool'",
                                                 "message.reasoning_contentisstring",
                                                 "enable_thinkingisdefinedandenable_thinkingisfalse",
                                                 "strftime_nowisdefined"};

// What the templates of ChatML, SmolLM2, Qwen, Llama 3 and Mistral have where those do not hold, but for
// mistral_answers and mistral_systems.
constexpr std::string_view known_tags[] = {
    "{%elifmessage['role']=='assistant'%}",
    "{%elifmessage['role']=='system'%}",
    "{%else%}",
    "{%endfor%}",
    "{%endgeneration%}",
    "{%endif%}",
    "{%formessageinloop_messages%}",
    "{%formessageinmessages%}",
    "{%formessageinmessages[::-1]%}",
    "{%fortool_callinmessage.tool_calls%}",
    "{%generation%}",
    "{%if'</think>'incontent%}",
    "{%if(message['role']=='user')!=(loop.index0%2==0)%}",
    "{%if(message['role']=='user')!=(ns.index%2==0)%}",
    "{%if(message['role']=='user')or(message['role']=='system'andnotloop.first)%}",
    "{%if(message['role']=='user')or(message['role']=='system'andnotloop.first)or(message['role']=='assistant'"
    "andnotmessage.tool_calls)%}",
    "{%ifadd_generation_prompt%}",
    "{%ifloop.firstandmessages[0]['role']!='system'%}",
    "{%ifloop.index0==0%}",
    "{%ifloop.index0>ns.last_query_index%}",
    "{%ifloop.lastor(notloop.lastandreasoning_content)%}",
    "{%ifmessage['content']%}",
    "{%ifmessage['content']isstring%}",
    "{%ifmessage['role']=='assistant'%}",
    "{%ifmessage['role']=='user'%}",
    "{%ifmessages[0]['role']=='system'%}",
    "{%ifnot(message['role']=='ipython'ormessage['role']=='tool'or'tool_calls'inmessage)%}",
    "{%ifnot(message['role']=='tool'ormessage['role']=='tool_results'or(message.tool_callsisdefinedandmessage.tool_"
    "callsisnotnone))%}",
    "{%ifnotadd_generation_promptisdefined%}",
    "{%ifnotdate_stringisdefined%}",
    "{%ifnotmessage.tool_calls%}",
    "{%ifnottools_in_user_messageisdefined%}",
    "{%ifnottoolsisdefined%}",
    "{%ifns.multi_step_toolandmessage['role']=='user'andmessage['content']isstringandnot(message['content'].startswith("
    "'<tool_response>')andmessage['content'].endswith('</tool_response>'))%}",
    "{%ifns.openandmessage['role']=='user'andnot(message['content'].startswith('<tool_response>')andmessage['content']."
    "endswith('</tool_response>'))%}",
    "{%iftool_call.functionisdefined%}",
    "{%setadd_generation_prompt=false%}",
    "{%setcontent=''%}",
    "{%setcontent='<|start_header_id|>'+message['role']+'<|end_header_id|>\n\n'+message['content']|trim+'<|eot_id|>'%}",
    "{%setcontent=bos_token+content%}",
    "{%setcontent=content.split('</think>')[-1].lstrip('\n')%}",
    "{%setcontent=message['content']%}",
    "{%setdate_string='26 Jul 2024'%}",
    "{%setindex=(messages|length-1)-loop.index0%}",
    "{%setloop_messages=messages%}",
    "{%setloop_messages=messages[1:]%}",
    "{%setmessages=messages[1:]%}",
    "{%setns.index=0%}",
    "{%setns.index=ns.index+1%}",
    "{%setns.last_query_index=index%}",
    "{%setns.multi_step_tool=false%}",
    "{%setns.open=false%}",
    "{%setns=namespace()%}",
    "{%setns=namespace(last_query_index=messages|length-1,open=true)%}",
    "{%setns=namespace(multi_step_tool=true,last_query_index=messages|length-1)%}",
    "{%setreasoning_content=''%}",
    "{%setreasoning_content=content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n')%}",
    "{%setsystem_message=''%}",
    "{%setsystem_message=messages[0]['content']%}",
    "{%setsystem_message=messages[0]['content']|trim%}",
    "{%settool_call=tool_call.function%}",
    "{%settools=none%}",
    "{%settools_in_user_message=true%}",
    "{%setuser_messages=loop_messages|selectattr('role','equalto','user')|list%}",
    "{{'\n'+message['content']+'<|im_end|>\n'}}",
    "{{'\n'+message['content']}}",
    "{{'\n<tool_call>\n{\"name\": \"'}}",
    "{{' [INST] '+message['content']+' [/INST]'}}",
    "{{' [INST] '+system_message+'\n\n'+message['content']+' [/INST]'}}",
    "{{'\", \"arguments\": '}}",
    "{{'<|eot_id|>'}}",
    "{{'<|im_end|>\n'}}",
    "{{'<|im_start|>'+message['role']+'\n'+content+'<|im_end|>'+'\n'}}",
    "{{'<|im_start|>'+message['role']+'\n'+content}}",
    "{{'<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>\n'}}",
    "{{'<|im_start|>'+message['role']+'\n'+message['content']+'<|im_end|>'+'\n'}}",
    "{{'<|im_start|>'+message['role']+'\n'}}",
    "{{'<|im_start|>'+message['role']+'\n<think>\n'+reasoning_content.strip('\n')+'\n</"
    "think>\n\n'+content.lstrip('\n')}}",
    "{{'<|im_start|>'+message['role']}}",
    "{{'<|im_start|>assistant\n'}}",
    "{{'<|im_start|>assistant'}}",
    "{{'<|im_start|>system\n'+messages[0]['content']+'<|im_end|>\n'}}",
    "{{'<|start_header_id|>'+message['role']+'<|end_header_id|>\n\n'+message['content']|trim+'<|eot_id|>'}}",
    "{{'<|start_header_id|>assistant<|end_header_id|>\n\n'}}",
    "{{'<|start_header_id|>system<|end_header_id|>\n\n'}}",
    "{{'Cutting Knowledge Date: December 2023\n'}}",
    "{{'Today Date: '+date_string+'\n\n'}}",
    "{{'[INST] '+message['content']+' [/INST]'}}",
    "{{'[INST] '+message['content']+'[/INST]'}}",
    "{{'[INST] '+system_message+'\n\n'+message['content']+'[/INST]'}}",
    "{{'[INST]'+message['content']+'[/INST]'}}",
    "{{'[INST]'+system_message+'\n\n'+message['content']+'[/INST]'}}",
    "{{'[SYSTEM_PROMPT]'+message['content']+'[/SYSTEM_PROMPT]'}}",
    "{{'}\n</tool_call>'}}",
    "{{bos_token}}",
    "{{content}}",
    "{{message['content']|trim+'<|eot_id|>'}}",
    "{{system_message}}",
    "{{tool_call.arguments|tojson}}",
    "{{tool_call.name}}"};

// NOLINTEND(bugprone-suspicious-missing-comma)

bool is_one_of(std::string_view text, auto& list) { return std::ranges::find(list, text) != std::end(list); }

// The system message that ChatML writes by itself, whatever it is.
bool is_own_system(std::string_view tag) {
  constexpr std::string_view begin = "{{'<|im_start|>system\n";
  constexpr std::string_view end = "<|im_end|>\n'}}";
  return tag.starts_with(begin) && tag.ends_with(end) && tag.find("'+") == std::string_view::npos;
}

bool is_known(std::string_view tag) {
  return is_one_of(tag, known_tags) || std::ranges::count(mistral_answers, tag, &AnswerTag::tag) > 0 ||
         std::ranges::count(mistral_systems, tag, &SystemTag::tag) > 0 || tag.starts_with("{{raise_exception('") ||
         is_own_system(tag);
}

// The condition of {%if...%} or {%elif...%}; empty for another tag.
std::string_view condition_of(std::string_view tag) {
  for (const std::string_view begin : {std::string_view("{%if"), std::string_view("{%elif")})
    if (tag.starts_with(begin))
      return tag.substr(begin.size(), tag.size() - begin.size() - 2);
  return "";
}

}  // namespace

JinjaTags jinja_tags(std::string_view jinja) {
  JinjaTags tags{""};
  std::string_view before;
  for (std::size_t at = 0;;) {
    std::size_t begin = at;
    while (begin < jinja.size() && !(jinja[begin] == '{' && begin + 1 < jinja.size() &&
                                     std::string_view("%{#").find(jinja[begin + 1]) != std::string_view::npos))
      ++begin;
    const std::string_view outside = written(jinja.substr(at, begin - at), before, jinja.substr(begin, 3));
    if (!outside.empty())
      throw std::runtime_error(
          fmt::format("the template has text outside of its tags: \"{}\"", printable_line(outside.substr(0, 60))));
    if (begin == jinja.size())
      return tags;
    const std::string_view end = jinja[begin + 1] == '%' ? "%}" : jinja[begin + 1] == '{' ? "}}" : "#}";
    at = begin + 2;
    if (end == "#}") {
      at = jinja.find(end, at);
      if (at == std::string_view::npos)
        throw std::runtime_error("a comment of the template has no end");
    } else {
      at += at < jinja.size() && (jinja[at] == '-' || jinja[at] == '+') ? 1 : 0;
      const std::string content = content_at(jinja, at, end, tags.literals);
      tags.text += tags.list.emplace_back(fmt::format("{{{}{}{}}}", jinja[begin + 1], content, end.front()));
    }
    at += end.size();
    before = jinja.substr(at - std::min<std::size_t>(at, 3), std::min<std::size_t>(at, 3));
  }
}

void require_known_tags(const JinjaTags& tags) {
  std::vector<bool> is_dead;  // of each open {%if%}: is this branch never taken?
  for (const std::string_view tag : tags.list) {
    const std::string_view condition = condition_of(tag);
    const bool begins_branch = tag.starts_with("{%elif") || tag == "{%else%}";
    if (tag.starts_with("{%if"))
      is_dead.push_back(false);
    if ((begins_branch || tag == "{%endif%}") && is_dead.empty())
      throw std::runtime_error(fmt::format("the template has {} without an if", tag));
    if (begins_branch)
      is_dead.back() = false;
    if (!condition.empty() && is_one_of(condition, false_conditions))
      is_dead.back() = true;
    if (tag == "{%endif%}")
      is_dead.pop_back();
    if (std::ranges::find(is_dead, true) == is_dead.end() && !is_known(tag))
      throw std::runtime_error(fmt::format("the template has {:.200}, which is not known", printable_line(tag)));
  }
}

}  // namespace espalier

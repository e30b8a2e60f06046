// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/text/chat_template.hpp"

namespace espalier {

/// The tags of a Jinja template in one way of writing, so that templates that differ in layout alone are equal: no
/// white space outside of strings, strings in single quotes with their escapes decoded, `x['role']` for `x.role`, no
/// comments and no marks of white space. What a template writes is {{...}}; all else is {%...%}.
struct JinjaTags {
  std::string text;                        ///< all of them
  std::vector<std::string> list = {};      ///< one by one
  std::vector<std::string> literals = {};  ///< their strings, in order
};

/// @throws std::runtime_error where a tag has no end, and where the template writes text that stands outside of tags,
/// as Hugging Face reads it (trim_blocks, lstrip_blocks)
JinjaTags jinja_tags(std::string_view jinja);

/// How templates of Mistral write an answer.
struct AnswerTag {
  std::string_view tag;
  const char* before;  ///< what stands before the content
  bool trims;
  const char* after;  ///< what follows the end of the answer
};
inline constexpr AnswerTag mistral_answers[] = {{"{{message['content']+eos_token}}", "", false, ""},
                                                {"{{message['content']+eos_token+' '}}", "", false, " "},
                                                {"{{' '+message['content']+eos_token}}", " ", false, ""},
                                                {"{{' '+message['content']|trim+eos_token}}", " ", true, ""}};

/// Where they write the system message into what a user says.
struct SystemTag {
  std::string_view tag;
  ChatTemplate::System position;
};
inline constexpr SystemTag mistral_systems[] = {
    {"{%ifloop.firstandsystem_messageisdefined%}", ChatTemplate::System::first_user},
    {"{%ifloop.lastandsystem_messageisdefined%}", ChatTemplate::System::ending_user},
    {"{%if(message==user_messages[-1])andsystem_messageisdefined%}", ChatTemplate::System::last_user}};

/// Is every tag of a template one that is known, but for what it writes of tools? An unknown one could write more text,
/// or leave a message out.
/// @throws std::runtime_error: names the first that is not
void require_known_tags(const JinjaTags& tags);

}  // namespace espalier

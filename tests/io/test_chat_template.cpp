// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "io/pack/conversations.hpp"
#include "io/text/chat_template.hpp"
#include "io/text/chat_template_tags.hpp"
#include "tests/io/text/chat_fixture.hpp"

namespace espalier::test {
namespace {

using nlohmann::json;

json rendered_by_transformers() {
  const char* const other = std::getenv("ESPALIER_CHAT_TEMPLATES");
  return other != nullptr ? json::parse(read_bytes(other)) : chat_fixture();
}

std::vector<ChatMessage> messages_of(const json& list) {
  std::vector<ChatMessage> messages;
  for (const json& message : list)
    messages.push_back({message["role"], message["content"]});
  return messages;
}

std::string text_of(const ChatTemplate& chat, const std::vector<ChatMessage>& messages) {
  std::string text;
  for (const ChatPart& part : chat.render(messages))
    text += part.text;
  return text;
}

// What the template refuses, or that it does not refuse.
std::string refusal(const std::string& jinja) {
  try {
    chat_template_of(jinja, "<s>", "</s>");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string fixture_template(const std::string& name) { return chat_fixture()["templates"][name]["template"]; }

}  // namespace

TEST(ChatTemplate, renders_what_transformers_renders) {
  const json fixture = rendered_by_transformers();
  for (const auto& [name, known] : fixture["templates"].items()) {
    SCOPED_TRACE(name);
    const ChatTemplate chat = chat_template_of(known["template"].get<std::string>(), "<s>", "</s>");
    for (std::size_t i = 0; i < fixture["conversations"].size(); ++i) {
      SCOPED_TRACE(fmt::format("conversation {}", i));
      std::vector<ChatMessage> messages = messages_of(fixture["conversations"][i]);
      const json& whole = known["texts"][2 * i];
      if (whole.is_null())
        EXPECT_THROW(chat.render(messages), ChatError);
      else
        EXPECT_EQ(text_of(chat, messages), whole.get<std::string>());
      messages.pop_back();
      const json& prompt = known["texts"][2 * i + 1];
      if (prompt.is_null())
        EXPECT_THROW(chat.prompt(messages), ChatError);
      else
        EXPECT_EQ(chat.prompt(messages), prompt.get<std::string>());
    }
  }
}

TEST(ChatTemplate, answers_end_with_their_end) {
  const json fixture = rendered_by_transformers();
  for (const auto& [name, known] : fixture["templates"].items()) {
    const ChatTemplate chat = chat_template_of(known["template"].get<std::string>(), "<s>", "</s>");
    std::vector<std::string> answers;
    for (const ChatPart& part : chat.render(
             std::vector<ChatMessage>{{"user", "one"}, {"assistant", "two"}, {"user", "three"}, {"assistant", "four"}}))
      if (part.is_answer)
        answers.push_back(part.text);
    const std::string space = chat.before_answer;
    const std::string reasoning = chat.has_reasoning ? "<think>\n\n</think>\n\n" : "";
    EXPECT_EQ(answers, (std::vector<std::string>{space + "two" + chat.assistant.end,
                                                 space + reasoning + "four" + chat.assistant.end}))
        << name;
  }
}

// The ids of transformers; and what counts are the answers.
TEST(ChatTemplate, tokens_are_those_of_transformers) {
  const json fixture = chat_fixture();
  const TemporaryDirectory directory;
  for (const json& known : fixture["ids"]) {
    SCOPED_TRACE(known["tokenizer"].get<std::string>());
    write_tokenizer(directory.path(), known["tokenizer"], known["added"]);
    const auto tokenizer = load_tokenizer(directory.path().string());
    const std::string jinja = fixture["templates"][known["template"].get<std::string>()]["template"];
    const ChatTemplate chat = chat_template_of(jinja, "<s>", "</s>");
    const TokenId end = answer_end_token(chat, *tokenizer);
    for (const auto& [number, ids] : known["ids"].items()) {
      SCOPED_TRACE(number);
      const std::vector<ChatMessage> messages = messages_of(fixture["conversations"][std::stoul(number)]);
      const ConversationTokens conversation = encode_conversation(messages, chat, *tokenizer);
      EXPECT_EQ(conversation.tokens, ids.get<std::vector<TokenId>>());
      ASSERT_EQ(conversation.loss_mask.size(), conversation.tokens.size());
      std::vector<TokenId> counted;
      for (std::size_t i = 0; i < conversation.tokens.size(); ++i)
        if (conversation.loss_mask[i] == 1)
          counted.push_back(conversation.tokens[i]);
      std::string answers;
      for (const ChatMessage& message : messages)
        if (message.role == "assistant")
          for (const ChatPart& part : chat.render(std::vector<ChatMessage>{{"user", ""}, message}))
            answers += part.is_answer ? part.text : "";
      const std::string decoded = tokenizer->decode(counted);
      if (number != "4") {  // which normalization changes
        EXPECT_EQ(decoded.substr(decoded.find_first_not_of(' ')), answers.substr(answers.find_first_not_of(' ')));
      }
      EXPECT_EQ(counted.back(), end);
    }
  }
}

TEST(ChatTemplate, refuses_what_it_does_not_know) {
  const std::string chatml = fixture_template("chatml");
  const std::string llama = fixture_template("llama3.1");
  const std::string mistral = fixture_template("mistral_v3");
  EXPECT_EQ(refusal(chatml), "");
  const auto expect = [](const std::string& jinja, const std::string& part) {
    EXPECT_NE(refusal(jinja).find(part), std::string::npos) << refusal(jinja) << "\n" << part;
  };
  expect("{{ messages }}", "neither <|im_start|>");
  expect("", "neither <|im_start|>");
  expect("Be nice. " + chatml, "text outside of its tags: \"Be nice. \"");
  expect("{{ bos_token }}" + chatml, "bos_token");
  expect(replaced(chatml, "message['content']", "message['content'] | trim"), "a message");
  expect(replaced(chatml, "assistant\\n", "assistant\\n<think>\\n"), "add_generation_prompt");
  expect(replaced(chatml, "{{ '<|im_start|>assistant\\n' }}", "{{ '<|im_start|>assistant\\n' }}{{ '<think>\\n' }}"),
         "think");
  expect(replaced(chatml, "'<|im_start|>' +", "'<|tool|>' + '<|im_start|>' +"), "<|tool|>");
  expect("{{ strftime_now('%d') }}" + chatml, "strftime_now");
  expect("{{ '<|im_start|>system\\n' }}{{ x }}" + chatml, "system message");
  expect(replaced(llama, "December 2023", "March 2025"), "December 2023");
  expect(replaced(llama, "26 Jul 2024", "27 Jul 2024"), "26 Jul 2024");
  expect(replaced(llama, "| trim", ""), "message['content']|trim");
  expect(replaced(mistral, "|trim + eos_token", "|trim + '</s>'"), "an answer");
  expect(replaced(mistral, "loop.last", "loop.index0 == 2"), "a system message");
  expect(replaced(mistral, "[INST] ", "[INST]  "), "[INST] in a way");
  // What is written more, a message that is left out, another condition
  for (const std::string& known : {chatml, llama, mistral, fixture_template("qwen3")})
    for (const std::string more : {"{{ 'EXTRA ' }}", "{{ x }}", "{% if x %}{% endif %}"})
      expect(known + more, "which is not known");
  expect(replaced(chatml, "{% for message in messages %}",
                  "{% for message in messages %}{% if message['role'] != 'system' %}") +
             "{% endif %}",
         "message['role']!='system'");
  EXPECT_EQ(refusal(chatml + "{% if tools %}{{ 'EXTRA ' }}{% endif %}"), "") << "there are no tools";
  expect(chatml + "{% if tools %}{% else %}{{ 'EXTRA ' }}{% endif %}", "EXTRA");
  expect(chatml + "{% endif %}", "without an if");
  EXPECT_THROW(chat_template_of(llama, "", "</s>"), std::runtime_error) << "bos_token";
  EXPECT_THROW(chat_template_of(mistral, "<s>", ""), std::runtime_error) << "eos_token";
  expect("{{ '", "no end");
  expect("{% if", "no end");
  expect("{# ", "no end");
}

// Templates that differ in layout alone have the same tags; white space that is written is no layout.
TEST(ChatTemplate, jinja_tags_leave_layout_out) {
  EXPECT_EQ(jinja_tags("{%- if a  ==  \"x 'y\" -%}\n  {{- m.role + '\\n' -}}\n{% endif %}{# no {{ tag }} #}\n").text,
            jinja_tags("{% if a=='x \\'y' %}{{m['role']+\"\\n\"}}{%endif%}").text);
  EXPECT_EQ(jinja_tags("{{ a.roles }}{{ a.content|trim }}").text, "{{a.roles}}{{a['content']|trim}}");
  EXPECT_EQ(jinja_tags("  {% if a %}\n  {% endif %}\n").text, "{%ifa%}{%endif%}");
  EXPECT_THROW(jinja_tags("{{ a }}\n{% if b %}"), std::runtime_error);
  EXPECT_THROW(jinja_tags("{% if a %}\n\n{% endif %}"), std::runtime_error);
  EXPECT_THROW(jinja_tags("{{ a }} {{ b }}"), std::runtime_error);
}

TEST(ChatTemplate, is_found_beside_a_tokenizer) {
  const TemporaryDirectory directory;
  const auto load = [&] { return load_chat_template((directory / "tokenizer.json").string()); };
  const auto exit_code = [&] {
    try {
      load();
    } catch (const Error& error) {
      return error.code();
    }
    return ExitCode::ok;
  };
  EXPECT_EQ(exit_code(), ExitCode::usage);
  const std::string config = (directory / "tokenizer_config.json").string();
  json values = {
      {"bos_token", {{"content", "<b>"}}}, {"eos_token", "<e>"}, {"chat_template", fixture_template("mistral_v7")}};
  write_bytes(config, values.dump());
  EXPECT_EQ(load().prompt(std::vector<ChatMessage>{{"user", "Hi"}}), "<b>[INST]Hi[/INST]");
  EXPECT_EQ(load().assistant.end, "<e>");
  values["chat_template"] = {{{"name", "tool_use"}, {"template", "no"}},
                             {{"name", "default"}, {"template", fixture_template("llama3")}}};
  write_bytes(config, values.dump());
  EXPECT_EQ(load_chat_template(directory.path().string()).kind, "Llama 3");
  write_bytes(directory / "chat_template.jinja", fixture_template("chatml"));
  EXPECT_EQ(load().kind, "ChatML");
  write_bytes(directory / "chat_template.jinja", "{{ messages }}");
  EXPECT_EQ(exit_code(), ExitCode::data);
  std::filesystem::remove(directory / "chat_template.jinja");
  for (const char* const bad :
       {"{", "[]", R"({"chat_template": 3})", R"({"chat_template": [1, {"name": "default"}]})"}) {
    write_bytes(config, bad);
    EXPECT_EQ(exit_code(), ExitCode::data) << bad;
  }
  write_bytes(config, "{}");
  EXPECT_EQ(exit_code(), ExitCode::usage);
}

}  // namespace espalier::test

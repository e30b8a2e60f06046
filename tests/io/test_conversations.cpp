// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "io/pack/conversation_file.hpp"
#include "io/pack/conversations.hpp"
#include "io/pack/input_files.hpp"
#include "io/pack/pack_conversations.hpp"
#include "io/tokens/token_file.hpp"
#include "io/tokens/token_loader.hpp"
#include "tests/io/compressed.hpp"
#include "tests/io/text/chat_fixture.hpp"

namespace espalier::test {
namespace {

std::string problem_of(const std::string& line) {
  try {
    read_conversation(line);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

std::string line_of(const std::string& question, const std::string& answer) {
  return nlohmann::json{{"prompt", question}, {"completion", answer}}.dump() + "\n";
}

struct TokensAndMask {
  std::vector<TokenId> tokens;
  std::vector<std::uint8_t> loss_mask;
};

TokensAndMask content_of(const TokenFile& file) {
  TokensAndMask content;
  content.tokens.resize(static_cast<std::size_t>(file.num_tokens()));
  content.loss_mask.resize(content.tokens.size());
  file.read(0, content.tokens);
  file.read_loss_mask(0, content.loss_mask);
  return content;
}

// A directory with the tokenizer, and conversations of many lengths.
class Conversations : public ::testing::Test {
 protected:
  Conversations() {
    write_chat_tokenizer(directory.path());
    tokenizer = load_tokenizer(directory.path().string());
    chat = load_chat_template(directory.path().string());
    std::string text;
    for (int i = 0; i < 60; ++i)
      text += line_of(fmt::format("What is {}?", i), std::string(static_cast<std::size_t>(i * i % 41), 'x') + "!");
    write_bytes(directory / "chats.jsonl", text);
  }

  ConversationSummary pack(const ConversationOptions& options, const Path& validation = "") {
    return pack_conversations({directory / "chats.jsonl"}, *tokenizer, chat, directory / "train.bin", validation,
                              options);
  }

  ConversationTokens tokens_of(const std::string& line) {
    return encode_conversation(read_conversation(line), chat, *tokenizer);
  }

  TemporaryDirectory directory;
  std::unique_ptr<Tokenizer> tokenizer;
  ChatTemplate chat;
};

}  // namespace

TEST(Conversation, is_messages_or_a_prompt_with_its_completion) {
  const auto messages = read_conversation(
      R"({"id": 7, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "\u00e9", "tool_calls": null}]})");
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[1].role, "assistant");
  EXPECT_EQ(messages[1].content, "\u00e9");
  const auto pair = read_conversation(
      R"({"completion": "b", "prompt": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]})");
  ASSERT_EQ(pair.size(), 3U);
  EXPECT_EQ(pair[0].role + pair[1].role + pair[2].role, "systemuserassistant");
  EXPECT_EQ(pair[2].content, "b");
}

TEST(Conversation, says_what_is_wrong_with_a_line) {
  const auto expect = [](const std::string& line, const std::string& part) {
    EXPECT_NE(problem_of(line).find(part), std::string::npos) << line << ": " << problem_of(line);
  };
  expect("{", "not JSON");
  expect("\"\xff\"", "not UTF-8");
  expect("[]", "wanted an object");
  expect(R"({"text": "a"})", R"(no "messages")");
  expect(R"({"prompt": "a"})", R"(no "completion")");
  expect(R"({"completion": "a"})", R"(no "prompt")");
  expect(R"({"prompt": "a", "completion": 3})", R"("completion" is 3)");
  expect(R"({"messages": "a"})", "wanted a list");
  expect(R"({"messages": []})", "no answer");
  expect(R"({"messages": [{"role": "user", "content": "a"}]})", "no answer");
  expect(R"({"messages": [7]})", "message 1 of \"messages\" is 7");
  expect(R"({"messages": [{"role": "user"}]})", R"(message 1 of "messages" has no "content")");
  expect(R"({"messages": [{"content": "a"}]})", R"(has no "role")");
  expect(R"({"messages": [{"role": "user", "content": ["a"]}]})", "wanted a text");
  const std::string answer = R"({"role": "assistant", "content": "a")";
  for (const std::string key : {"tool_calls", "function_call", "reasoning_content", "images"})
    expect(fmt::format(R"({{"messages": [{}, "{}": ["x"]}}]}})", answer, key), key);
  for (const std::string key : {"tools", "functions", "images"}) {
    expect(fmt::format(R"({{"messages": [{}}}], "{}": ["x"]}})", answer, key), key);
    EXPECT_EQ(problem_of(fmt::format(R"({{"messages": [{}}}], "{}": []}})", answer, key)), "");
  }
  expect(R"({"prompt": "a", "completion": ""})", "an empty answer");
  expect(R"({"messages": [{"role": "assistant", "content": ""}, {"role": "assistant", "content": "a"}]})", "empty");
}

// The whole text's tokens, whose ends of answers count: with every kind of tokenizer and template that finds them.
TEST(Conversation, has_the_tokens_of_its_text_by_every_kind_of_tokenizer) {
  const TemporaryDirectory directory;
  const nlohmann::json templates = chat_fixture()["templates"];
  const auto chat_of = [&](const std::string& name) {
    return chat_template_of(templates[name]["template"].get<std::string>(), "<s>", "</s>");
  };
  const std::vector<ChatMessage> messages = {
      {"user", " one\n"}, {"assistant", "two "}, {"user", "three"}, {"assistant", "four"}};
  const auto check = [&](const std::string& path, const std::string& kind) {
    const auto tokenizer = load_tokenizer(path);
    const ChatTemplate chat = chat_of(kind);
    const TokenId end = answer_end_token(chat, *tokenizer);
    const auto [tokens, loss_mask] = encode_conversation(messages, chat, *tokenizer);
    std::string text;
    for (const ChatPart& part : chat.render(messages))
      text += part.text;
    std::vector<TokenId> whole;
    tokenizer->encode(text, whole);
    EXPECT_EQ(tokens, whole) << path << ", " << kind;
    int num_ends = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      num_ends += tokens[i] == end && loss_mask[i] == 1 ? 1 : 0;
    EXPECT_EQ(num_ends, 2) << path << ", " << kind;
    EXPECT_EQ(loss_mask.front(), 0);
  };
  for (const nlohmann::json& known : chat_fixture()["ids"]) {
    write_tokenizer(directory.path(), known["tokenizer"], known["added"]);
    check(directory.path().string(), known["template"]);
  }
  check(text_fixture("llama2_like.json").string(), "mistral_v3");
  nlohmann::json rules = nlohmann::json::parse(read_bytes(text_fixture("small.tiktoken.json")));
  rules["special_tokens"]["<|im_start|>"] = 1200;
  rules["special_tokens"]["<|im_end|>"] = 1201;
  write_bytes(directory / "a.tiktoken.json", rules.dump());
  write_bytes(directory / "a.tiktoken", read_bytes(text_fixture("small.tiktoken")));
  check((directory / "a.tiktoken").string(), "chatml");
#ifdef ESPALIER_HAVE_SENTENCEPIECE
  const std::string model = read_bytes(text_fixture("bpe.model"));
  for (const char type : {'\3', '\4'}) {  // its parts begin with a space of their own
    write_bytes(directory / "m", model + sentencepiece_piece("<|im_end|>", type));
    expect_error(ExitCode::data, {"does not find the end of an answer", "tokenizer.json"},
                 [&] { check((directory / "m").string(), "chatml"); });
  }
  expect_error(ExitCode::data, {"does not find the end of an answer", "</s>"},
               [&] { check(text_fixture("bpe.model").string(), "mistral_v1"); });
#endif
}

TEST_F(Conversations, stand_one_behind_the_other) {
  for (const Index threads : {1, 3}) {
    const ConversationSummary summary = pack({.num_threads = threads});
    const TokenFile file(directory / "train.bin");
    EXPECT_EQ(file.num_documents(), 60);
    EXPECT_EQ(summary.train.num_conversations, 60);
    EXPECT_EQ(summary.train.num_tokens, file.num_tokens());
    EXPECT_EQ(file.info().row_length, 0);
    std::vector<TokenId> tokens;
    std::vector<std::uint8_t> loss_mask;
    std::istringstream lines(read_bytes(directory / "chats.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const ConversationTokens expected = tokens_of(line);
      tokens.insert(tokens.end(), expected.tokens.begin(), expected.tokens.end());
      loss_mask.insert(loss_mask.end(), expected.loss_mask.begin(), expected.loss_mask.end());
    }
    const TokensAndMask content = content_of(file);
    EXPECT_EQ(content.tokens, tokens);
    EXPECT_EQ(content.loss_mask, loss_mask);
    EXPECT_EQ(summary.train.num_targets, std::accumulate(loss_mask.begin(), loss_mask.end(), Index{0}));
  }
}

// Every conversation stands whole in one row, or is cut at its end; the loader's samples are the rows.
TEST_F(Conversations, stand_in_rows) {
  constexpr Index length = 48;
  const ConversationSummary summary = pack({.sequence_length = length});
  const TokenFile file(directory / "train.bin");
  EXPECT_EQ(file.info().row_length, length);
  EXPECT_EQ(file.num_tokens(), summary.train.num_rows * length + 1);
  EXPECT_EQ(file.num_documents(), summary.train.num_conversations);
  EXPECT_GT(summary.train.num_cut, 0);
  EXPECT_EQ(summary.train.num_conversations + summary.train.num_left_out, 60);
  std::vector<std::vector<TokenId>> expected;
  Index num_targets = 0;
  std::istringstream lines(read_bytes(directory / "chats.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    ConversationTokens conversation = tokens_of(line);
    conversation.tokens.resize(std::min<std::size_t>(conversation.tokens.size(), length));
    conversation.loss_mask.resize(conversation.tokens.size());
    if (std::ranges::count(conversation.loss_mask, 1) == 0)
      continue;
    num_targets += std::ranges::count(conversation.loss_mask, 1);
    expected.push_back(conversation.tokens);
  }
  const TokensAndMask content = content_of(file);
  EXPECT_EQ(std::accumulate(content.loss_mask.begin(), content.loss_mask.end(), Index{0}), num_targets);
  std::vector<std::vector<TokenId>> found;
  const TokenId padding = tokenizer->special_token("<|im_end|>");
  for (Index row = 0; row < summary.train.num_rows; ++row) {
    std::vector<Index> ends = file.document_starts(row * length, length);
    ends.push_back((row + 1) * length);
    Index begin = row * length;
    for (const Index end : ends) {
      std::vector<TokenId> document(content.tokens.begin() + begin, content.tokens.begin() + end);
      const auto last_counted = [&] {
        return content.loss_mask[static_cast<std::size_t>(begin) + document.size() - 1] == 1;
      };
      while (!document.empty() && end == ends.back() && document.back() == padding && !last_counted())
        document.pop_back();
      found.push_back(document);
      begin = end;
    }
  }
  std::ranges::sort(expected);
  std::ranges::sort(found);
  EXPECT_EQ(found, expected);

  const auto loader = [&](Index sequence_length) {
    std::vector<TokenFile> files;
    files.emplace_back(directory / "train.bin");
    return SequentialLoader(std::move(files), {.sequence_length = sequence_length, .separate_documents = true}, 0);
  };
  EXPECT_THROW(loader(length - 1), Error);
  const SequentialLoader rows = loader(length);
  ASSERT_EQ(rows.num_samples(), summary.train.num_rows);
  Index num_loaded_targets = 0;
  for (Index row = 0; row < rows.num_samples(); ++row) {
    const Batch batch = rows.batch(row);
    const auto first = content.tokens.begin() + row * length;
    EXPECT_EQ(batch.inputs, std::vector<TokenId>(first, first + length));
    num_loaded_targets += std::ranges::count_if(batch.targets, [](TokenId target) { return target >= 0; });
  }
  EXPECT_EQ(num_loaded_targets, num_targets);
}

TEST_F(Conversations, come_compressed_or_in_a_directory) {
  pack({.sequence_length = 48});
  const std::string wanted = read_bytes(directory / "train.bin");
  const std::string lines = read_bytes(directory / "chats.jsonl");
  const std::size_t half = lines.find('\n', lines.size() / 2) + 1;
  std::filesystem::create_directories(directory / "chats");
  write_bytes(directory / "chats/a", gzipped(lines.substr(0, half)));
  write_bytes(directory / "chats/b", zstd_of(lines.substr(half)));
  const auto files = expand_inputs({(directory / "chats").string()});
  pack_conversations(files, *tokenizer, chat, directory / "train.bin", "", {.sequence_length = 48, .num_threads = 3});
  EXPECT_TRUE(read_bytes(directory / "train.bin") == wanted);
  write_bytes(directory / "chats/b", zstd_of("{}\n"));
  expect_error(ExitCode::data, {"chats/b:1"},
               [&] { pack_conversations(files, *tokenizer, chat, directory / "train.bin", "", {}); });
  expect_error(ExitCode::usage, {"standard input cannot be packed together with files"}, [&] {
    pack_conversations({"-", files[0]}, *tokenizer, chat, directory / "train.bin", "", {});
  });
}

// With rows and without.
TEST_F(Conversations, replace_what_a_killed_process_left) {
  for (const Index length : {48, 0}) {
    {
      const WaitingProcess killed([&] {
        auto file = std::make_unique<ConversationFile>(directory / "train.bin", *tokenizer, length, 0);
        for (int i = 0; i < 100; ++i)
          file->add({std::vector<TokenId>(40, 1), std::vector<std::uint8_t>(40, 1)});
        return file;
      });
    }
    EXPECT_TRUE(std::filesystem::exists(directory / "train.bin.partial"));
    EXPECT_EQ(pack({.sequence_length = 48 - length}).train.num_conversations, 60);
    for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
      EXPECT_FALSE(entry.path().filename().string().starts_with("train.bin.")) << entry.path();
  }
}

// Training has a tenth of the conversations: its file is complete when the other one reaches the limit.
TEST_F(Conversations, leave_nothing_where_the_second_file_cannot_be_written) {
  const ConversationOptions options{.validation_fraction = 0.9};
  pack(options, directory / "val.bin");
  const auto train_bytes = std::filesystem::file_size(directory / "train.bin");
  ASSERT_GT(std::filesystem::file_size(directory / "val.bin"), 2 * train_bytes);
  for (const char* const name : {"train.bin", "val.bin"})
    std::filesystem::remove(directory / name);
  {
    const FileSizeLimit limit(2 * train_bytes);
    expect_error(ExitCode::write, {"val.bin"}, [&] { pack(options, directory / "val.bin"); });
  }
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    const std::string name = entry.path().filename().string();
    EXPECT_FALSE(name.starts_with("train.bin") || name.starts_with("val.bin")) << name;
  }
}

TEST_F(Conversations, validate_by_their_text) {
  const ConversationSummary summary = pack({.validation_fraction = 0.3, .seed = 3}, directory / "val.bin");
  EXPECT_GT(summary.validation.num_conversations, 5);
  EXPECT_GT(summary.train.num_conversations, 30);
  EXPECT_EQ(summary.validation.num_conversations + summary.train.num_conversations, 60);
  EXPECT_EQ(TokenFile(directory / "val.bin").num_documents(), summary.validation.num_conversations);
}

TEST_F(Conversations, bad_lines_are_named_or_counted) {
  const std::string good = line_of("a", "b");
  write_bytes(directory / "chats.jsonl",
              good + "  \r\n" + R"({"prompt": "a"})" + "\n" + good +
                  R"({"messages": [{"role": "tool", "content": "a"}, {"role": "assistant", "content": "b"}]})" + "\n" +
                  R"({"prompt": ")" + std::string(std::size_t{17} << 20, 'a') + "\"}\n" + good);
  try {
    pack({});
    FAIL() << "a bad line is taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_EQ(error.report().where, (directory / "chats.jsonl:3").string());
    EXPECT_NE(error.report().got.find("completion"), std::string::npos);
  }
  EXPECT_FALSE(std::filesystem::exists(directory / "train.bin"));
  EXPECT_FALSE(std::filesystem::exists(directory / "train.bin.partial"));
  const ConversationSummary summary = pack({.skip_bad = true});
  EXPECT_EQ(summary.num_bad, 3);
  ASSERT_EQ(summary.bad_lines.size(), 3U);
  EXPECT_NE(summary.bad_lines[1].find("chats.jsonl:5: message 1 has the role \"tool\""), std::string::npos)
      << summary.bad_lines[1];
  EXPECT_NE(summary.bad_lines[2].find("more than"), std::string::npos);
  EXPECT_EQ(summary.train.num_conversations, 3);
}

// Damaged lines and templates: an error or another conversation, and no more.
TEST_F(Conversations, damage_is_an_error) {
  std::mt19937_64 random(1);
  const std::string line =
      R"({"messages": [{"role": "user", "content": "a\u00e9\ud83d\ude00"}, {"role": "assistant", "content": "<think>b</think>c"}]})";
  std::vector<std::string> templates;
  const nlohmann::json fixture = chat_fixture();
  for (const auto& [name, known] : fixture["templates"].items())
    templates.push_back(known["template"]);
  const std::string bytes = "{}[]\"'\\%#-|<>\n\x01\xff a";
  const auto damaged = [&](std::string text) {
    for (std::uint64_t i = random() % 3; i < 4; ++i) {
      const std::size_t at = random() % (text.size() + 1);
      switch (random() % 3) {
        case 0: text.insert(at, 1, bytes[random() % bytes.size()]); break;
        case 1: text.erase(at, random() % 20); break;
        default: text.insert(at, text.substr(random() % (text.size() + 1), random() % 40));
      }
    }
    return text;
  };
  int num_taken = 0;
  int num_refused = 0;
  for (int i = 0; i < 5000; ++i) {
    try {
      const ChatTemplate known = chat_template_of(damaged(templates[random() % templates.size()]), "<s>", "<|im_end|>");
      known.render(
          std::vector<ChatMessage>{{"user", damaged("a question")}, {"assistant", damaged("<think>\n</think> b")}});
      ++num_taken;
    } catch (const std::runtime_error&) {
      ++num_refused;
    }
    try {
      tokens_of(damaged(line));
      ++num_taken;
    } catch (const std::runtime_error&) {
      ++num_refused;
    }
  }
  EXPECT_GT(num_taken, 20);
  EXPECT_GT(num_refused, 1000);
}

TEST_F(Conversations, nothing_is_written_without_a_conversation) {
  EXPECT_THROW(pack({.sequence_length = 4}), Error);  // shorter than any question
  EXPECT_THROW(pack({.validation_fraction = 1e-9}, directory / "val.bin"), Error);
  chat.assistant.end = "<|eot_id|>";
  EXPECT_THROW(pack({}), Error);
  for (const auto& entry : std::filesystem::directory_iterator(directory.path()))
    EXPECT_TRUE(entry.path().extension() == ".json" || entry.path().extension() == ".jsonl") << entry.path();
}

}  // namespace espalier::test

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/printable_text.hpp"
#include "io/text/stream_decoder.hpp"
#include "io/text/tokenizer.hpp"
#include "tests/io/text/text_fixtures.hpp"

namespace espalier::test {
namespace {

std::string fnv1a(const std::string& text) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  return fmt::format("{:016x}", hash);
}

std::vector<TokenId> encoded(const Tokenizer& tokenizer, const std::string& text, bool special = false) {
  std::vector<TokenId> tokens;
  tokenizer.encode(text, tokens, {.add_special_tokens = special});
  return tokens;
}

std::unique_ptr<Tokenizer> fixture(const std::string& name) { return load_tokenizer(text_fixture(name).string()); }

// gpt2_like.json with one part changed.
std::unique_ptr<Tokenizer> changed(const TemporaryDirectory& directory, const std::string& pointer,
                                   const nlohmann::json& value) {
  nlohmann::json json = nlohmann::json::parse(read_bytes(text_fixture("gpt2_like.json")));
  json[nlohmann::json::json_pointer(pointer)] = value;
  write_bytes(directory / "tokenizer.json", json.dump());
  return load_tokenizer((directory / "tokenizer.json").string());
}

}  // namespace

// expected.txt has what the packages of Python make of the same texts.
TEST(TokenizerFiles, have_the_tokens_and_texts_of_the_packages_of_python) {
  std::istringstream expected(read_bytes(text_fixture("expected.txt")));
  std::size_t num_checked = 0;
  for (std::string line; std::getline(expected, line);) {
    std::istringstream words(line);
    std::string name, num_tokens, ids_hash, texts_hash;
    words >> name >> num_tokens >> ids_hash >> texts_hash;
    if (std::ranges::find(tokenizer_fixtures(), name) == tokenizer_fixtures().end())
      continue;
    const auto tokenizer = fixture(name);
    std::size_t count = 0;
    std::string ids;
    std::string texts;
    for (const std::string& text : fixture_texts()) {
      const std::vector<TokenId> tokens = encoded(*tokenizer, text, true);
      count += tokens.size();
      ids += fmt::format("{}\n", fmt::join(tokens, " "));
      texts += tokenizer->decode(tokens) + "\n";
    }
    EXPECT_EQ(std::to_string(count), num_tokens) << name;
    EXPECT_EQ(fnv1a(ids), ids_hash) << name;
    EXPECT_EQ(fnv1a(texts), texts_hash) << name;
    ++num_checked;
  }
  EXPECT_EQ(num_checked, tokenizer_fixtures().size());
}

TEST(TokenizerFiles, texts_go_round) {
  for (const std::string name : {"gpt2_like.json", "small.tiktoken"})
    for (const std::string& text : fixture_texts())
      EXPECT_EQ(fixture(name)->decode(encoded(*fixture(name), text)), text) << name;
}

TEST(TokenizerFiles, tokens_that_come_one_by_one_give_whole_characters_and_the_same_text) {
  std::vector<std::string> names = tokenizer_fixtures();
  for (std::string& name : names)
    name = text_fixture(name).string();
  names.emplace_back("byte");
  for (const std::string& name : names) {
    const auto tokenizer = load_tokenizer(name);
    for (const std::string& text : fixture_texts()) {
      const std::vector<TokenId> tokens = encoded(*tokenizer, text, true);
      StreamDecoder decoder(*tokenizer);
      std::string streamed;
      for (const TokenId token : tokens) {
        const std::string piece = decoder.write(token);
        EXPECT_TRUE(is_utf8(piece)) << name << ": " << printable_line(piece);
        streamed += piece;
      }
      streamed += decoder.finish();
      EXPECT_EQ(streamed, tokenizer->decode(tokens)) << name;
    }
  }
}

// A model may make bytes that are no text, without an end.
TEST(TokenizerFiles, bytes_that_are_no_characters_are_not_held_back_for_ever) {
  const auto tokenizer = load_tokenizer("byte");
  StreamDecoder decoder(*tokenizer);
  std::string streamed;
  for (int i = 0; i < 100; ++i)
    streamed += decoder.write(0xE2);
  EXPECT_GE(streamed.size(), 90U);
  EXPECT_EQ(streamed + decoder.finish(), std::string(100, '\xE2'));
}

TEST(TokenizerFiles, bytes_that_are_no_utf8_become_replacement_characters) {
  const auto tokenizer = fixture("gpt2_like.json");
  EXPECT_EQ(tokenizer->decode(encoded(*tokenizer, std::string("a\0b\xFF\xE2\x82z", 7))),
            std::string("a\0b\uFFFD\uFFFDz", 10));
}

TEST(TokenizerFiles, special_tokens_are_found_added_and_left_out) {
  const auto tokenizer = fixture("llama3_like.json");
  const TokenId begin = tokenizer->special_token("<|begin_of_text|>");
  const TokenId end = tokenizer->special_token("<|end_of_text|>");
  EXPECT_GE(begin, 0);
  EXPECT_EQ(tokenizer->special_token("<|nobody|>"), -1);
  EXPECT_EQ(encoded(*tokenizer, "", true), std::vector<TokenId>{begin});
  const std::vector<TokenId> tokens = encoded(*tokenizer, "a<|end_of_text|>b", true);
  EXPECT_EQ(tokens.front(), begin);
  EXPECT_EQ(std::ranges::count(tokens, end), 1);
  EXPECT_EQ(tokenizer->decode(tokens), "<|begin_of_text|>a<|end_of_text|>b");
  EXPECT_EQ(tokenizer->decode(tokens, true), "ab");
  // "lonely" is a token as a word of its own; "[MASK]" takes the spaces beside it
  const TokenId lonely = tokenizer->special_token("lonely");
  EXPECT_EQ(std::ranges::count(encoded(*tokenizer, "lonely a_lonely (lonely) lonelyx"), lonely), 2);
  EXPECT_EQ(encoded(*tokenizer, "a  [MASK] \n b").size(), encoded(*tokenizer, "a[MASK]b").size());
}

// Not one that is made of characters: "2" would be the digit.
TEST(TokenizerFiles, special_tokens_are_those_that_are_added) {
  for (const std::string& name : tokenizer_fixtures()) {
    EXPECT_EQ(fixture(name)->special_token("2"), -1) << name;
    EXPECT_EQ(fixture(name)->special_token("a"), -1) << name;
    EXPECT_EQ(fixture(name)->special_token(""), -1) << name;
  }
  EXPECT_EQ(fixture("gpt2_like.json")->special_token("<|endoftext|>"), 0);
  EXPECT_EQ(fixture("llama2_like.json")->special_token("</s>"), 2);
#ifdef ESPALIER_HAVE_SENTENCEPIECE
  EXPECT_EQ(fixture("bpe.model")->special_token("</s>"), 2);
  const TemporaryDirectory directory;
  write_bytes(directory / "m", read_bytes(text_fixture("bpe.model")) + sentencepiece_piece("<|im_end|>", 4) +
                                   sentencepiece_piece("more", 1));
  const auto tokenizer = load_tokenizer((directory / "m").string());
  EXPECT_EQ(tokenizer->special_token("<|im_end|>"), fixture("bpe.model")->vocab_size());
  EXPECT_EQ(tokenizer->special_token("more"), -1);
#endif
}

TEST(TokenizerFiles, names_tell_contents_apart_and_fit_into_token_files) {
  std::map<std::string, std::string> names;
  for (const std::string& name : tokenizer_fixtures()) {
    const auto tokenizer = fixture(name);
    EXPECT_LT(tokenizer->name().size(), 64U);
    EXPECT_EQ(tokenizer->name(), fixture(name)->name());
    EXPECT_TRUE(names.emplace(tokenizer->name(), name).second) << tokenizer->name();
  }
  const TemporaryDirectory directory;
  EXPECT_EQ(changed(directory, "/version", "1.0")->name(), fixture("gpt2_like.json")->name());
  EXPECT_NE(changed(directory, "/normalizer", {{"type", "NFC"}})->name(), fixture("gpt2_like.json")->name());
}

TEST(TokenizerFiles, a_directory_stands_for_the_file_in_it) {
  const TemporaryDirectory directory;
  expect_error(ExitCode::usage, {"tokenizer"}, [&] { load_tokenizer(directory.path().string()); });
  write_bytes(directory / "tokenizer.json", read_bytes(text_fixture("gpt2_like.json")));
  EXPECT_EQ(load_tokenizer(directory.path().string())->name(), fixture("gpt2_like.json")->name());
  for (const std::string begin : {"\n\n \t", "\xef\xbb\xbf", "\xef\xbb\xbf\r\n"}) {
    write_bytes(directory / "tokenizer.json", begin + read_bytes(text_fixture("gpt2_like.json")));
    EXPECT_EQ(load_tokenizer(directory.path().string())->name(), fixture("gpt2_like.json")->name());
  }
  std::filesystem::create_directory(directory / "other");
  for (const char* const file : {"small.tiktoken", "small.tiktoken.json"})
    std::filesystem::copy(text_fixture(file), directory / "other" / file);
  EXPECT_EQ(load_tokenizer((directory / "other").string())->name(), fixture("small.tiktoken")->name());
  write_bytes(directory / "other/a.model", "");
  expect_error(ExitCode::usage, {"several tokenizers", "a.model and small.tiktoken"},
               [&] { load_tokenizer((directory / "other").string()); });
  expect_error(ExitCode::usage, {"nowhere"}, [] { load_tokenizer("nowhere"); });
  write_bytes(directory / "text", "some text\n");
  expect_error(ExitCode::data, {"is not a tokenizer", "text"}, [&] { load_tokenizer((directory / "text").string()); });
}

TEST(TokenizerFiles, parts_that_are_not_supported_are_named) {
  const TemporaryDirectory directory;
  const nlohmann::json split = {{"type", "Split"}, {"behavior", "Isolated"}, {"invert", false}};
  const auto with_pattern = [&](const std::string& pattern) {
    nlohmann::json step = split;
    step["pattern"] = {{"Regex", pattern}};
    return step;
  };
  const std::vector<std::tuple<std::string, nlohmann::json, std::vector<std::string>>> cases = {
      {"/model/type", "WordPiece", {"model", "WordPiece", "BPE"}},
      {"/model/type", "Unigram", {"Unigram"}},
      {"/model/dropout", 0.1, {"model.dropout", "0.1"}},
      {"/model/continuing_subword_prefix", "##", {"continuing_subword_prefix", "##"}},
      {"/model/end_of_word_suffix", "</w>", {"end_of_word_suffix"}},
      {"/model/new_key", 1, {"new_key"}},
      {"/truncation", {{"max_length", 5}}, {"truncation", "\"max_length\":5"}},
      {"/padding", {{"strategy", "x"}}, {"padding"}},
      {"/new_part", nullptr, {"new_part"}},
      {"/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", ""}}, {"normalizer", "Precompiled", "NFKC"}},
      {"/normalizer", {{"type", "NFC"}, {"mode", 1}}, {"normalizer NFC", "mode"}},
      {"/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "BertNormalizer"}}}}}, {"BertNormalizer"}},
      {"/pre_tokenizer", {{"type", "BertPreTokenizer"}}, {"pre_tokenizer", "BertPreTokenizer", "Metaspace"}},
      {"/pre_tokenizer", {{"type", "UnicodeScripts"}}, {"UnicodeScripts"}},
      {"/pre_tokenizer", with_pattern("[a[b]]"), {"class in a class"}},
      {"/pre_tokenizer", with_pattern("[a-z&&[^b]]"), {"a part of a tokenizer.json is not supported", "&&"}},
      {"/pre_tokenizer", with_pattern(R"(\h)"), {R"(\h)"}},
      {"/pre_tokenizer", with_pattern("(?m:a.b)"), {"option m"}},
      {"/pre_tokenizer", with_pattern("(a"), {"parenthesis"}},
      {"/decoder", {{"type", "WordPiece"}}, {"decoder", "WordPiece", "ByteFallback"}},
      {"/decoder", {{"type", "CTC"}}, {"CTC"}},
      {"/post_processor", {{"type", "Odd"}}, {"post_processor", "Odd", "TemplateProcessing"}},
      {"/added_tokens/0/id", 17, {"added_tokens", "17"}},
      {"/added_tokens/0/score", 1, {"added_tokens", "score"}}};
  for (const auto& [pointer, value, parts] : cases)
    expect_error(ExitCode::data, parts, [&] { changed(directory, pointer, value); });
}

TEST(TokenizerFiles, damaged_parts_are_named) {
  const TemporaryDirectory directory;
  const std::vector<std::tuple<std::string, nlohmann::json, std::vector<std::string>>> cases = {
      {"/model/merges/3", {"a", "zzz"}, {"zzz", "not in the vocabulary"}},
      {"/model/merges/3", "a b c", {"merges"}},
      {"/model/merges/3", {"z", "["}, {"not a token"}},
      {"/model/vocab/a", -1, {"vocab"}},
      {"/model/vocab/a", 4000000000, {"vocab"}},
      {"/model/vocab/a", 5, {"two tokens have the id 5"}},
      {"/model/unk_token", "<unk>", {"unk_token"}},
      {"/added_tokens/0/content", "", {"added_tokens"}}};
  for (const auto& [pointer, value, parts] : cases)
    expect_error(ExitCode::data, parts, [&] { changed(directory, pointer, value); });
  write_bytes(directory / "tokenizer.json", "{\"model\": ");
  expect_error(ExitCode::data, {"tokenizer.json:1:"}, [&] { load_tokenizer(directory.path().string()); });
}

TEST(TokenizerFiles, a_tiktoken_file_of_unknown_origin_wants_its_pattern) {
  const TemporaryDirectory directory;
  write_bytes(directory / "a.tiktoken", read_bytes(text_fixture("small.tiktoken")));
  expect_error(ExitCode::data, {"a.tiktoken.json", "pattern", "cl100k_base"},
               [&] { load_tokenizer((directory / "a.tiktoken").string()); });
  const auto with_rules = [&](const std::string& rules) {
    write_bytes(directory / "a.tiktoken.json", rules);
    load_tokenizer((directory / "a.tiktoken").string());
  };
  expect_error(ExitCode::data, {"<b>", "the id 5000"},
               [&] { with_rules(R"({"pattern": "a", "special_tokens": {"<a>": 5000, "<b>": 5000}})"); });
  expect_error(ExitCode::data, {"not supported", "&&", "a.tiktoken.json"},
               [&] { with_rules(R"({"pattern": "[a&&b]"})"); });
  std::filesystem::remove(directory / "a.tiktoken.json");
  write_bytes(directory / "a.tiktoken", "IQ== 0\nIg== one\n");
  expect_error(ExitCode::data, {"line 2"}, [&] { load_tokenizer((directory / "a.tiktoken").string()); });
}

TEST(TokenizerFiles, ids_beyond_the_vocabulary_are_refused) {
  for (const std::string& name : tokenizer_fixtures()) {
    const auto tokenizer = fixture(name);
    for (const TokenId bad : {TokenId{-1}, static_cast<TokenId>(tokenizer->vocab_size())})
      expect_error(ExitCode::data, {"token 2", std::to_string(bad)}, [&] {
        static_cast<void>(tokenizer->decode(std::vector<TokenId>{0, bad}));
      });
  }
}

}  // namespace espalier::test

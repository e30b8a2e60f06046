// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "io/text/tokenizer.hpp"
#include "tests/app/mutations.hpp"
#include "tests/io/text/text_fixtures.hpp"

// Files that were damaged or forged in many ways: they are read or refused, and what was read can be used. More of them
// by ESPALIER_TOKENIZER_MUTATIONS=10000.

namespace espalier::test {
namespace {

int num_mutations() {
  const char* const number = std::getenv("ESPALIER_TOKENIZER_MUTATIONS");
  return number == nullptr ? 300 : std::atoi(number);
}

void use(const Path& path) {
  const auto tokenizer = load_tokenizer(path.string());
  std::vector<TokenId> tokens;
  for (const std::string text : {"Hello,  w\u00F6rld! \u4F60\u597D 123\n\n\t\U0001F600 <|endoftext|>", ""})
    tokenizer->encode(text, tokens, {.add_special_tokens = true});
  for (const TokenId token : tokens)
    ASSERT_LT(token, tokenizer->vocab_size());
  static_cast<void>(tokenizer->decode(tokens));
}

// All kinds of a file's damage; whole seconds for one would be a hang.
void survive_mutations(const std::string& name, FileKind kind) {
  const TemporaryDirectory directory;
  const TemporaryDirectory others;
  write_bytes(others / "text", "some text\n");
  write_bytes(others / "model", read_bytes(text_fixture("bpe.model")));
  int num_read = 0;
  int num_refused = 0;
  for (int i = 0; i < num_mutations(); ++i) {
    const Path file = directory / "tokenizer";
    std::filesystem::remove_all(file);
    write_bytes(file, read_bytes(text_fixture(name)));
    Random random(static_cast<std::uint64_t>(i));
    const std::string done = mutate(file, kind, others.path(), random).text;
    const auto begin = std::chrono::steady_clock::now();
    try {
      use(file);
      ++num_read;
    } catch (const Error& error) {
      EXPECT_NE(error.code(), ExitCode::defect) << name << " " << i << ", " << done << ": " << error.what();
      ++num_refused;
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(seconds.count(), 20) << name << " " << i << ", " << done;
  }
  EXPECT_GT(num_read, 0) << name;
  EXPECT_GT(num_refused, 0) << name;
}

}  // namespace

TEST(TokenizerHostile, forged_tokenizer_json) {
  for (const char* const name : {"gpt2_like.json", "llama3_like.json", "lower_like.json", "llama2_like.json"})
    survive_mutations(name, FileKind::json);
}

TEST(TokenizerHostile, damaged_tiktoken_files) { survive_mutations("small.tiktoken", FileKind::binary); }

#ifdef ESPALIER_HAVE_SENTENCEPIECE
TEST(TokenizerHostile, damaged_sentencepiece_models) {
  for (const char* const name : {"bpe.model", "unigram.model"})
    survive_mutations(name, FileKind::binary);
}
#endif

}  // namespace espalier::test

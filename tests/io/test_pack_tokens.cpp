// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "io/pack/pack.hpp"
#include "io/tokens/token_file.hpp"
#include "tests/io/text/text_fixtures.hpp"

namespace espalier::test {

// Documents are encoded whole, one by one, whatever the number of threads; long ones are cut behind lines.
TEST(Pack, tokens_are_those_of_the_documents) {
  const TemporaryDirectory directory;
  const auto tokenizer = load_tokenizer(text_fixture("llama3_like.json").string());
  const std::string text = read_bytes(text_fixture("languages.txt"));
  std::string many;
  for (int i = 0; i < 40; ++i)
    many += text + std::to_string(i) + "\n%\n";
  std::string long_one;
  while (long_one.size() < (std::size_t{9} << 20))
    long_one += text;
  for (const auto& [contents, is_whole] : {std::pair{many, false}, std::pair{long_one, true}}) {
    const std::string separator = is_whole ? "" : "\n%\n";
    write_bytes(directory / "text", contents);
    for (const bool special : {false, true}) {
      std::vector<TokenId> expected;
      for (std::size_t at = 0; at < contents.size();) {
        const std::size_t found = is_whole ? contents.size() : contents.find(separator, at) + 3;
        tokenizer->encode(contents.substr(at, found - at), expected, {.add_special_tokens = special});
        at = found;
      }
      for (const Index threads : {1, 3}) {
        pack_text({directory / "text"}, *tokenizer, directory / "tokens", "",
                  {.document_separator = separator, .add_special_tokens = special, .num_threads = threads});
        const TokenFile file(directory / "tokens");
        std::vector<TokenId> tokens(static_cast<std::size_t>(file.num_tokens()));
        file.read(0, tokens);
        EXPECT_EQ(file.info().tokenizer, tokenizer->name());
        EXPECT_TRUE(tokens == expected) << threads << " threads, separator " << separator;
      }
    }
  }
}

}  // namespace espalier::test

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include "io/file.hpp"
#include "io/hash.hpp"
#include "io/text/tokenizer.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

TEST(File, atomic_write_replaces_and_leaves_nothing_else) {
  const TemporaryDirectory directory;
  write_file_atomically(directory / "a", "one");
  write_file_atomically(directory / "a", "two");
  EXPECT_EQ(read_file(directory / "a", ExitCode::data), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(File, output_never_follows_a_symbolic_link) {
  const TemporaryDirectory directory;
  write_bytes(directory / "victim", "precious");
  std::filesystem::create_symlink(directory / "victim", directory / "link");
  expect_error(ExitCode::write, {"link"}, [&] { OutputFile file(directory / "link"); });
  EXPECT_EQ(read_bytes(directory / "victim"), "precious");
}

TEST(File, errors_name_the_reason) {
  const TemporaryDirectory directory;
  expect_error(ExitCode::data, {"file not found", "absent", "errno 2"},
               [&] { read_file(directory / "absent", ExitCode::data); });
  expect_error(ExitCode::data, {"cannot read"}, [&] { read_file(directory.path(), ExitCode::data); });
  ASSERT_EQ(::mkfifo((directory / "fifo").c_str(), 0600), 0);
  expect_error(ExitCode::data, {"cannot read", "fifo", "regular file"},
               [&] { read_file(directory / "fifo", ExitCode::data); });
  expect_error(ExitCode::write, {"/proc/none"}, [&] { make_directories("/proc/none/of/this"); });
  const Error error = caught([&] { write_file_atomically(directory / "none/a.md", ""); });
  EXPECT_EQ(error.report().where, (directory / "none/a.md").string());  // not what would have been renamed to that
  EXPECT_EQ(error.report().todo,
            "create the directory " + (directory / "none").string() + " first, or choose another path");
}

TEST(File, that_became_shorter_is_an_error) {
  const TemporaryDirectory directory;
  write_bytes(directory / "a", "0123456789");
  const InputFile file(directory / "a", ExitCode::checkpoint);
  std::string text(4, ' ');
  file.read_at(6, text.data(), 4);
  EXPECT_EQ(text, "6789");
  std::filesystem::resize_file(directory / "a", 8);
  expect_error(ExitCode::checkpoint, {"became shorter while it was read", "/a", "8 bytes", "10 bytes"},
               [&] { file.read_at(6, text.data(), 4); });
}

TEST(File, hashes_in_pieces_equal_hashes_of_the_whole) {
  for (const std::size_t size : {0, 1, 16, 200, 240, 241, 5000, 100001}) {
    std::string text(size, 'x');
    for (std::size_t i = 0; i < size; ++i)
      text[i] = static_cast<char>(i * 31 + i / 7);
    Hasher hasher;
    for (std::size_t i = 0; i < size; i += 77)
      hasher.update(text.data() + i, std::min<std::size_t>(77, size - i));
    EXPECT_EQ(hasher.xxh3_64(), xxh3_64(text.data(), size));
    EXPECT_EQ(hasher.xxh3_128(), xxh3_128(text.data(), size));
  }
  EXPECT_EQ(xxh3_128("", 0), "99aa06d3014798d86001c324468d497f");  // the published value
}

TEST(Tokenizer, bytes_go_round) {
  const auto tokenizer = load_tokenizer("byte");
  std::string text;
  for (int i = 0; i < 256; ++i)
    text += static_cast<char>(i);
  std::vector<TokenId> tokens;
  tokenizer->encode(text, tokens);
  EXPECT_EQ(tokens.size(), 256u);
  EXPECT_EQ(tokens[255], 255);
  EXPECT_EQ(tokenizer->decode(tokens), text);
  const std::vector<TokenId> bad{65, 256};
  expect_error(ExitCode::data, {"token 2", "id 256"}, [&] { tokenizer->decode(bad); });
  expect_error(ExitCode::usage, {"bpe"}, [] { load_tokenizer("bpe"); });
}

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "io/pack/pack.hpp"
#include "io/text/byte_tokenizer.hpp"
#include "io/tokens/token_documents.hpp"
#include "tests/io/text/text_fixtures.hpp"

namespace espalier::test {
namespace {

const ByteTokenizer byte_tokenizer;

std::string json_lines(std::size_t count, const std::string& name) {
  std::string lines;
  for (std::size_t i = 0; i < count; ++i)
    lines += nlohmann::json({{"text", fmt::format("{} {} {}", name, i, std::string(i * 37 % 400, 'x'))}}).dump() + "\n";
  return lines;
}

std::string decoded(const Path& path, const Tokenizer& tokenizer = byte_tokenizer) {
  const TokenFile file(path);
  file.verify_checksum();
  std::vector<TokenId> tokens(static_cast<std::size_t>(file.num_tokens()));
  file.read(0, tokens);
  return tokenizer.decode(tokens);
}

// Three files of JSON lines, of which the second one has a bad line at its end.
class FailedPack : public ::testing::Test {
 protected:
  FailedPack() {
    options.journal_interval = std::chrono::milliseconds(0);
    for (const char* const name : {"a", "b", "c"})
      write_bytes(directory / name, json_lines(9000, name));
    pack_text(files(), ByteTokenizer(), directory / "whole", "", options);
    write_bytes(directory / "b", json_lines(9000, "b") + "{\n");
    const Error error = caught([&] { pack("t"); });
    EXPECT_EQ(error.report().where, (directory / "b:9001").string());
    EXPECT_NE(error.report().todo.find("the same command continues where it was"), std::string::npos) << error.what();
    EXPECT_TRUE(std::filesystem::exists(directory / "t.journal"));
    EXPECT_FALSE(std::filesystem::exists(directory / "t"));
  }

  std::vector<Path> files() const { return {directory / "a", directory / "b", directory / "c"}; }
  PackSummary pack(const std::string& name) {
    return pack_text(files(), ByteTokenizer(), directory / name, "", options);
  }
  void expect_whole() {
    EXPECT_TRUE(read_bytes(directory / "t") == read_bytes(directory / "whole"));
    for (const char* const left : {"t.journal", "t.partial", "t.documents.partial"})
      EXPECT_FALSE(std::filesystem::exists(directory / left)) << left;
  }

  TemporaryDirectory directory;
  PackOptions options{.key = "text", .num_threads = 1};
};

}  // namespace

TEST_F(FailedPack, goes_on_with_the_file_that_was_mended) {
  const auto text_of_a = decoded(directory / "whole").find("b 0 ");
  write_bytes(directory / "b", json_lines(9000, "b"));
  EXPECT_EQ(pack("t").resumed_bytes, static_cast<Index>(text_of_a));
  expect_whole();
}

TEST_F(FailedPack, goes_on_where_it_was_and_leaves_bad_lines_out) {
  const auto text_of_a = decoded(directory / "whole").find("b 0 ");
  options.skip_bad = true;
  const PackSummary summary = pack("t");
  EXPECT_GT(summary.resumed_bytes, static_cast<Index>(text_of_a));
  EXPECT_EQ(summary.num_bad_lines, 1);
  expect_whole();
}

TEST_F(FailedPack, fails_again_and_goes_on) {
  EXPECT_NE(caught([&] { pack("t"); }).report().todo.find("continues"), std::string::npos);
  write_bytes(directory / "b", json_lines(9000, "b"));
  write_bytes(directory / "c", "{\n");
  options.num_threads = 3;
  EXPECT_EQ(caught([&] { pack("t"); }).report().where, (directory / "c:1").string());
  write_bytes(directory / "c", json_lines(9000, "c"));
  EXPECT_GT(pack("t").resumed_bytes, 0);
  expect_whole();
}

TEST_F(FailedPack, is_not_continued_with_other_text_before) {
  write_bytes(directory / "a", json_lines(9000, "other"));
  expect_error(ExitCode::usage, {"unfinished pack with other inputs or options", "inputs"}, [&] { pack("t"); });
  std::filesystem::remove(directory / "t.journal");
  write_bytes(directory / "a", json_lines(9000, "a"));
  write_bytes(directory / "b", json_lines(9000, "b"));
  EXPECT_EQ(pack("t").resumed_bytes, 0);
  expect_whole();
}

TEST_F(FailedPack, goes_on_when_a_disk_is_no_longer_full) {
  write_bytes(directory / "b", json_lines(9000, "b"));
  std::filesystem::remove(directory / "t.journal");
  {
    const FileSizeLimit full(rlim_t{4} << 20);
    const Error error = caught([&] { pack("t"); });
    EXPECT_EQ(error.code(), ExitCode::write) << error.what();
    EXPECT_NE(error.report().todo.find("continues"), std::string::npos) << error.what();
  }
  EXPECT_GT(pack("t").resumed_bytes, 1 << 20);
  expect_whole();
}

// With validation every document decides which ones validate: a changed input is another pack.
TEST(PackFailure, with_validation_nothing_may_change) {
  const TemporaryDirectory directory;
  PackOptions options{.validation_fraction = 0.1, .num_threads = 1};
  options.document_separator = "\n";
  options.journal_interval = std::chrono::milliseconds(0);
  const auto pack = [&](const std::string& name) {
    return pack_text({directory / "a", directory / "b"}, ByteTokenizer(), directory / name, directory / (name + ".v"),
                     options);
  };
  write_bytes(directory / "a", json_lines(20000, "a"));
  write_bytes(directory / "b", json_lines(20000, "b"));
  pack("whole");
  write_bytes(directory / "b", json_lines(20000, "b") + "caf\xe9\n");
  EXPECT_EQ(caught([&] { pack("t"); }).report().where, (directory / "b:20001").string());
  EXPECT_TRUE(std::filesystem::exists(directory / "t.journal"));
  options.skip_bad = true;
  EXPECT_GT(pack("t").resumed_bytes, 1 << 20);
  options.skip_bad = false;
  EXPECT_EQ(caught([&] { pack("t"); }).report().where, (directory / "b:20001").string());
  write_bytes(directory / "b", json_lines(20000, "b"));
  expect_error(ExitCode::usage, {"inputs"}, [&] { pack("t"); });
}

// Lines of plain text, in short documents and in one that is not kept in memory.
TEST(PackFailure, lines_that_are_not_utf8) {
  const TemporaryDirectory directory;
  const auto llama = load_tokenizer(text_fixture("llama3_like.json").string());
  std::string filler;
  while (filler.size() < (std::size_t{6} << 20))
    filler += "caf\u00e9 \u6811 \U0001F600 of a long document\n";
  for (const bool is_long : {false, true})
    for (const Tokenizer* const tokenizer : std::initializer_list<const Tokenizer*>{&byte_tokenizer, llama.get()}) {
      const std::string begin = "one\n" + (is_long ? filler : "");
      const std::string bad = begin + "caf\xe9 au lait\ntwo\n%\n\xff\n%\nthree\xe6\xa0\n%\nlast\xc3";
      const Index line = std::ranges::count(begin, '\n') + 1;
      write_bytes(directory / "text", bad);
      PackOptions options{.document_separator = "\n%\n", .num_threads = 2};
      expect_error(ExitCode::data, {fmt::format("text:{}", line), "not UTF-8 at byte 4 of the line", "--skip-bad"},
                   [&] { pack_text({directory / "text"}, *tokenizer, directory / "t", "", options); });
      EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
      options.skip_bad = true;
      const PackSummary summary = pack_text({directory / "text"}, *tokenizer, directory / "t", "", options);
      EXPECT_EQ(summary.num_bad_lines, 4);
      EXPECT_EQ(summary.first_bad_line,
                fmt::format("{}:{}: not UTF-8 at byte 4 of the line", (directory / "text").string(), line));
      EXPECT_TRUE(decoded(directory / "t", *tokenizer) == begin + "two\n%\n%\n%\n");
      options.skip_bad = false;
      options.allow_binary = true;
      const PackSummary taken = pack_text({directory / "text"}, byte_tokenizer, directory / "u", "", options);
      EXPECT_EQ(taken.num_bad_lines, 0);
      EXPECT_TRUE(decoded(directory / "u") == bad);
      std::filesystem::remove(directory / "t");
      std::filesystem::remove(directory / "u");
    }
  write_bytes(directory / "text", "\xff\n");
  expect_error(ExitCode::data, {"no text is left for training", "1 line left out"},
               [&] { pack_text({directory / "text"}, byte_tokenizer, directory / "t", "", {.skip_bad = true}); });
}

}  // namespace espalier::test

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
// What is packed of files and directories as they stand, and which options go together.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>

#include "io/pack/input_files.hpp"
#include "io/pack/ordered_work.hpp"
#include "io/pack/pack.hpp"
#include "io/text/byte_tokenizer.hpp"
#include "io/tokens/token_file.hpp"
#include "tests/io/support.hpp"

namespace espalier::test {
namespace {

std::string packed(const TemporaryDirectory& directory, const std::string& text, const PackOptions& options = {}) {
  write_bytes(directory / "text", text);
  pack_text({directory / "text"}, ByteTokenizer(), directory / "t", "", options);
  const TokenFile file(directory / "t");
  std::vector<TokenId> tokens(static_cast<std::size_t>(file.num_tokens()));
  file.read(0, tokens);
  return ByteTokenizer().decode(tokens);
}

// Somebody whom permissions bind, for as long as this lives.
class OrdinaryUser {
 public:
  OrdinaryUser() { EXPECT_EQ(::seteuid(::getuid() == 0 ? 65534 : ::getuid()), 0); }
  OrdinaryUser(const OrdinaryUser&) = delete;
  OrdinaryUser& operator=(const OrdinaryUser&) = delete;
  ~OrdinaryUser() { EXPECT_EQ(::seteuid(::getuid()), 0); }
};

}  // namespace

TEST(PackInputs, directories_that_cannot_be_read_are_named) {
  const TemporaryDirectory directory;
  std::filesystem::permissions(directory.path(), std::filesystem::perms(0755));
  for (const char* const name : {"a", "closed", "z"}) {
    std::filesystem::create_directory(directory / name);
    write_bytes(directory / name / "text", "text\n");
  }
  std::filesystem::permissions(directory / "closed", std::filesystem::perms(0));
  const std::string top = directory.path().string();
  for (const std::string pattern : {"", "/**/text", "/*/*"}) {
    const OrdinaryUser user;
    expect_error(ExitCode::data, {"cannot be read", top}, [&] { expand_inputs({top + pattern}); });
  }
  std::filesystem::permissions(directory / "closed", std::filesystem::perms(0755));
  EXPECT_EQ(expand_inputs({top}).size(), 3U);
}

TEST(PackInputs, directories_behind_links_are_read_once) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "in/below");
  std::filesystem::create_directory(directory / "elsewhere");
  for (const char* const name : {"in/one", "in/below/two", "elsewhere/three"})
    write_bytes(directory / name, name);
  std::filesystem::create_directory_symlink(directory / "elsewhere", directory / "in/link");
  std::filesystem::create_directory_symlink(directory / "in", directory / "in/below/up");
  EXPECT_EQ(expand_inputs({(directory / "in").string()}).size(), 3U);
}

TEST(PackInputs, zero_bytes_are_refused_wherever_they_stand) {
  const TemporaryDirectory directory;
  const std::string lines(1 << 20, '\n');
  const std::string long_line(9 << 20, 'x');  // is read in parts
  for (const std::string& before : {lines, long_line}) {
    const std::string text = before + std::string("a\0b\n", 4);
    expect_error(ExitCode::data, {"not text", fmt::format("a zero byte at offset {}", before.size() + 1)},
                 [&] { packed(directory, text, {.document_separator = "\n"}); });
    EXPECT_FALSE(std::filesystem::exists(directory / "t"));
    EXPECT_TRUE(packed(directory, text, {.allow_binary = true}) == text);
    std::filesystem::remove(directory / "t");
  }
}

TEST(PackInputs, a_byte_order_mark_is_no_text) {
  const TemporaryDirectory directory;
  const std::string mark = "\xef\xbb\xbf";
  EXPECT_EQ(packed(directory, mark + "one\ntwo\n", {.document_separator = "\n"}), "one\ntwo\n");
  EXPECT_EQ(packed(directory, mark + R"({"text": "one"})", {.key = "text"}), "one");
  EXPECT_EQ(packed(directory, "a" + mark + "\n"), "a" + mark + "\n");
  const std::string text(9 << 20, 'x');
  EXPECT_TRUE(packed(directory, mark + text) == text);
  expect_error(ExitCode::data, {"no text is left"}, [&] { packed(directory, mark); });
}

TEST(PackInputs, options_that_do_not_go_together_are_refused) {
  const TemporaryDirectory directory;
  expect_error(ExitCode::usage, {"--document-separator with --key"},
               [&] { packed(directory, "{}", {.document_separator = "x", .key = "text"}); });
  expect_error(ExitCode::usage, {"--allow-binary with --key"},
               [&] { packed(directory, "{}", {.key = "text", .allow_binary = true}); });
  write_bytes(directory / "text", "one\n");
  for (const char* const name : {"t.documents", "t.journal", "t.documents.partial"})
    expect_error(ExitCode::usage, {"one name"}, [&] {
      pack_text({directory / "text"}, ByteTokenizer(), directory / "t", directory / name, {.validation_fraction = 0.5});
    });
}

TEST(PackInputs, what_there_is_to_change_was_given) {
  const TemporaryDirectory directory;
  const auto todo = [&](const std::string& text, const PackOptions& options) {
    return caught([&] { packed(directory, text, options); }).report().todo;
  };
  EXPECT_EQ(todo("", {}), "give more text");
  EXPECT_EQ(todo("", {.document_separator = "%"}), "give more text, or another --document-separator");
  EXPECT_EQ(todo(R"({"text": ""})", {.key = "text"}),
            "give more text: no line has a text that is not empty under \"text\"");
}

TEST(PackInputs, names_need_not_be_utf8) {
  const TemporaryDirectory directory;
  const Path input = directory / "caf\xe9";
  write_bytes(input, "{}\n{\"text\": \"one\"}\n");
  PackOptions options{.key = "text", .skip_bad = true};
  options.journal_interval = std::chrono::milliseconds(0);
  EXPECT_EQ(pack_text({input}, ByteTokenizer(), directory / "t\xe9", "", options).num_documents, 1);
}

// Whatever the number of threads.
TEST(PackInputs, work_under_way_is_bounded_by_its_bytes) {
  std::atomic<int> most = 0;
  int given = 0;
  int finished = 0;
  OrderedWork work(64);
  for (int i = 0; i < 200; ++i) {
    ++given;
    work.add([] {}, [&] { ++finished; }, OrderedWork::max_bytes / 4);
    most = std::max(most.load(), given - finished);
  }
  work.drain();
  EXPECT_EQ(finished, 200);
  EXPECT_LE(most, 4);
  work.add([] {}, [&] { ++finished; }, 2 * OrderedWork::max_bytes);  // a larger one goes alone
  work.drain();
  EXPECT_EQ(finished, 201);
}

}  // namespace espalier::test

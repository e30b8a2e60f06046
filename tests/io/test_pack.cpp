// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <set>

#include "io/pack.hpp"
#include "io/token_file.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

std::string text_of(const Path& path) {
  const TokenFile file(path);
  std::vector<TokenId> tokens(static_cast<std::size_t>(file.num_tokens()));
  file.read(0, tokens);
  return ByteTokenizer().decode(tokens);
}

std::multiset<std::string> documents_of(std::string text) {
  std::multiset<std::string> documents;
  for (std::size_t end = text.find("\n%\n"); end != std::string::npos; end = text.find("\n%\n")) {
    documents.insert(text.substr(0, end + 3));
    text.erase(0, end + 3);
  }
  if (!text.empty())
    documents.insert(text);
  return documents;
}

}  // namespace

TEST(Pack, inputs_are_sorted_and_come_once) {
  const TemporaryDirectory directory;
  for (const char* const name : {"b", "a", "c.dat"})
    write_bytes(directory / name, name);
  std::filesystem::create_directory(directory / "d");
  std::filesystem::create_symlink(directory / "a", directory / "a.u8");
  std::filesystem::create_hard_link(directory / "b", directory / "b2");
  const auto files = expand_inputs({(directory / "*").string(), (directory / "b").string()}, {"*.dat"});
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].filename(), "a");
  EXPECT_EQ(files[1].filename(), "b");
  expect_error(ExitCode::data, {"no file matches", "*.txt, nowhere"}, [&] {
    expand_inputs({(directory / "*.txt").string(), "nowhere"});
  });
  expect_error(ExitCode::data, {"directory"}, [&] { expand_inputs({(directory / "d").string()}); });
  expect_error(ExitCode::data, {"no files"}, [&] { expand_inputs({(directory / "c.dat").string()}, {"*.dat"}); });
}

TEST(Pack, whole_documents_go_to_either_side) {
  const TemporaryDirectory directory;
  std::string all;
  for (const std::string name : {"one", "two"}) {
    std::string text;
    for (int i = 0; i < 500; ++i)
      text += "saying " + std::to_string(i % 400) + " of " + (i % 3 == 0 ? "both" : name) + "\n%\n";
    write_bytes(directory / name, text);
    all += text;
  }
  const auto files = expand_inputs({(directory / "*").string()});
  const PackOptions options{.document_separator = "\n%\n", .validation_fraction = 0.1};
  const PackSummary summary =
      pack_text(files, ByteTokenizer(), directory / "out/train", directory / "out/val", options);
  EXPECT_EQ(summary.num_files, 2);
  EXPECT_EQ(summary.num_documents, 1000);
  EXPECT_EQ(summary.text_bytes, static_cast<Index>(all.size()));
  EXPECT_EQ(summary.train_tokens + summary.validation_tokens, summary.text_bytes);
  EXPECT_GT(summary.num_validation_documents, 50);
  EXPECT_LT(summary.num_validation_documents, 180);
  auto train = documents_of(text_of(directory / "out/train"));
  const auto validation = documents_of(text_of(directory / "out/val"));
  for (const std::string& document : validation)
    EXPECT_EQ(train.count(document), 0u) << document;  // copies stay on one side
  train.insert(validation.begin(), validation.end());
  EXPECT_EQ(train, documents_of(all));

  pack_text(files, ByteTokenizer(), directory / "again", directory / "again.val", options);
  EXPECT_EQ(read_bytes(directory / "again"), read_bytes(directory / "out/train"));
  EXPECT_EQ(read_bytes(directory / "again.val"), read_bytes(directory / "out/val"));
  PackOptions other = options;
  other.seed = 1;
  pack_text(files, ByteTokenizer(), directory / "other", directory / "other.val", other);
  EXPECT_NE(text_of(directory / "other.val"), text_of(directory / "out/val"));
}

TEST(Pack, few_documents_give_their_tails) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 1000; ++i)
    text += "line " + std::to_string(i) + "\n";
  write_bytes(directory / "book", text);
  const PackSummary summary = pack_text({directory / "book"}, ByteTokenizer(), directory / "train", directory / "val",
                                        {.validation_fraction = 0.1});
  EXPECT_TRUE(summary.split_inside_documents);
  const std::string validation = text_of(directory / "val");
  EXPECT_EQ(text_of(directory / "train") + validation, text);
  EXPECT_TRUE(validation.starts_with("line "));
  EXPECT_NEAR(static_cast<double>(validation.size()), 0.1 * static_cast<double>(text.size()), 20);
}

TEST(Pack, a_share_that_would_take_none_or_all_takes_one_or_leaves_one) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 60; ++i)
    text += "document number " + std::to_string(i) + "\n%\n";
  write_bytes(directory / "all", text);
  for (const double fraction : {1e-9, 0.999999999}) {
    const PackSummary summary = pack_text({directory / "all"}, ByteTokenizer(), directory / "train", directory / "val",
                                          {.document_separator = "\n%\n", .validation_fraction = fraction});
    EXPECT_FALSE(summary.split_inside_documents);
    EXPECT_EQ(summary.num_validation_documents, fraction < 0.5 ? 1 : 59);
    EXPECT_EQ(summary.train_tokens + summary.validation_tokens, summary.text_bytes);
  }
}

TEST(Pack, one_document_gives_its_last_line_or_words) {
  const TemporaryDirectory directory;
  const auto tail_of = [&](const std::string& text) {
    write_bytes(directory / "one", text);
    pack_text({directory / "one"}, ByteTokenizer(), directory / "train", directory / "val",
              {.validation_fraction = 0.1});
    EXPECT_EQ(text_of(directory / "train") + text_of(directory / "val"), text);
    return text_of(directory / "val");
  };
  EXPECT_EQ(tail_of("a first line\na second line that is long\n"), "a second line that is long\n");
  EXPECT_EQ(tail_of("words of a single line, and no end of it"), "it");
  EXPECT_EQ(tail_of("two words"), "words");
}

TEST(Pack, what_is_written_is_neither_read_nor_written_twice) {
  const TemporaryDirectory directory;
  const std::string text = "one line\nand another\n";
  const std::vector<Path> files = {directory / "text"};
  const auto pack = [&](const Path& output, const Path& validation) {
    pack_text(files, ByteTokenizer(), output, validation, {.validation_fraction = validation.empty() ? 0.0 : 0.5});
  };
  write_bytes(directory / "text", text);
  std::filesystem::create_symlink(directory / "text", directory / "link");
  std::filesystem::create_hard_link(directory / "text", directory / "hard");
  std::filesystem::create_directory(directory / "folder");
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  for (const char* const name : {"text", "link", "hard", "folder/../text"}) {
    expect_error(ExitCode::usage, {"replaced by its own tokens"}, [&] { pack(directory / name, ""); });
    expect_error(ExitCode::usage, {"replaced by its own tokens"}, [&] { pack(directory / "t", directory / name); });
  }
  expect_error(ExitCode::usage, {"one name"}, [&] { pack(directory / "t", directory / "folder/../t"); });
  expect_error(ExitCode::usage, {"one name"}, [&] { pack(directory / "t", directory / "t.partial"); });
  expect_error(ExitCode::usage, {"directory"}, [&] { pack(directory / "folder", ""); });
  expect_error(ExitCode::usage, {"directory"}, [&] { pack("", ""); });
  expect_error(ExitCode::write, {"no file", "pipe"}, [&] { pack(directory / "pipe", ""); });
  expect_error(ExitCode::write, {"no file", "/dev/null"}, [&] { pack(directory / "t", "/dev/null"); });
  EXPECT_EQ(read_bytes(directory / "text"), text);
  EXPECT_FALSE(std::filesystem::exists(directory / "t"));
}

TEST(Pack, what_the_message_says_to_exclude_can_be_excluded) {
  const TemporaryDirectory directory;
  write_bytes(directory / "good.txt", "text\n");
  write_bytes(directory / "bad[1].txt", std::string("ab\0c", 4));
  std::filesystem::create_symlink(directory / "bad[1].txt", directory / "alias.txt");
  const std::vector<std::string> inputs = {(directory / "*.txt").string()};
  const std::string todo =
      caught([&] { pack_text(expand_inputs(inputs), ByteTokenizer(), directory / "t", "", {}); }).report().todo;
  const std::size_t begin = todo.find('\'') + 1;
  const std::string pattern = todo.substr(begin, todo.find('\'', begin) - begin);
  EXPECT_EQ(expand_inputs(inputs, {pattern}), std::vector<Path>{directory / "good.txt"}) << todo;
}

TEST(Pack, bad_input_leaves_no_output) {
  const TemporaryDirectory directory;
  write_bytes(directory / "x.dat", std::string("ab\0c", 4));
  expect_error(ExitCode::data, {"x.dat", "not text", "offset 2", "--exclude 'x.dat'"},
               [&] { pack_text({directory / "x.dat"}, ByteTokenizer(), directory / "train", "", {}); });
  write_bytes(directory / "short", "oneword");
  expect_error(ExitCode::data, {"no text is left for validation"}, [&] {
    pack_text({directory / "short"}, ByteTokenizer(), directory / "train", directory / "val",
              {.validation_fraction = 0.1});
  });
  write_bytes(directory / "empty", "");
  expect_error(ExitCode::data, {"no text is left for training"},
               [&] { pack_text({directory / "empty"}, ByteTokenizer(), directory / "train", "", {}); });
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 3);
  const PackSummary summary =
      pack_text({directory / "empty", directory / "short"}, ByteTokenizer(), directory / "train", "", {});
  EXPECT_EQ(summary.empty_files, std::vector<Path>{directory / "empty"});
  expect_error(ExitCode::usage, {"fraction"},
               [&] { pack_text({}, ByteTokenizer(), directory / "t", directory / "v", {.validation_fraction = 1}); });
  expect_error(ExitCode::usage, {"go together", "0.1 and no file"},
               [&] { pack_text({}, ByteTokenizer(), directory / "t", "", {.validation_fraction = 0.1}); });
  expect_error(ExitCode::usage, {"go together", "v and no fraction"},
               [&] { pack_text({}, ByteTokenizer(), directory / "t", directory / "v", {}); });
}

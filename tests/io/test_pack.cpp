// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>

#include <set>

#include "io/hash.hpp"
#include "io/pack/documents.hpp"
#include "io/pack/input_files.hpp"
#include "io/pack/pack.hpp"
#include "io/text/byte_tokenizer.hpp"
#include "io/tokens/token_file.hpp"
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
  expect_error(ExitCode::data, {"no file matches", "/d"}, [&] { expand_inputs({(directory / "d").string()}); });
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

// The share is one of the text, whatever its shape: the numbers of documents and lines, and how long they are.
TEST(Pack, validation_has_its_share_of_any_text) {
  const TemporaryDirectory directory;
  const auto repeated = [](int count, const auto& part) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += part(i);
    return text;
  };
  const auto words = [](int count, int first) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += "word" + std::to_string(first + i) + (i % 9 == 8 ? "\n" : " ");
    return text;
  };
  const std::vector<std::string> texts = {
      repeated(40, [](int i) { return "one line of document " + std::to_string(i) + "\n%\n"; }),
      repeated(300, [&](int i) { return words(i == 7 ? 20000 : 30 + i % 50, i) + "%\n"; }),  // one is most of the text
      repeated(3, [&](int i) { return words(2000 + i, 0) + "\n%\n"; }),
      words(5000, 0),  // one document
      repeated(30000,
               [](int i) { return std::string(1, static_cast<char>('a' + i % 23)); }),  // neither lines nor words
      repeated(10000, [](int) { return std::string("\xe6\xa0\x91"); }),                 // characters of three bytes
      repeated(500, [&](int i) { return (i % 10 ? std::string() : words(20, i)) + "\n%\n"; }),  // most are empty
      repeated(64, [&](int i) { return words(25, i % 8) + "\n%\n"; }),                          // copies
  };
  for (std::size_t i = 0; i < texts.size(); ++i)
    for (const double fraction : {0.01, 0.05, 0.3, 0.9, 0.97})
      for (const std::uint64_t seed : {0, 1, 2}) {
        write_bytes(directory / "text", texts[i]);
        const PackSummary summary =
            pack_text({directory / "text"}, ByteTokenizer(), directory / "train", directory / "val",
                      {.document_separator = "%\n", .validation_fraction = fraction, .seed = seed});
        SCOPED_TRACE(std::to_string(i) + ": " + std::to_string(fraction) + ", seed " + std::to_string(seed));
        EXPECT_EQ(summary.train_tokens + summary.validation_tokens, static_cast<Index>(texts[i].size()));
        EXPECT_NEAR(summary.validation_share(), fraction, 0.1 * fraction);
        EXPECT_LE(summary.num_cut_documents, i == 7 ? 8 : 1);
        for (const char* const side : {"train", "val"})
          EXPECT_NE(text_of(directory / side).find_first_not_of("% \n"), std::string::npos) << side;
      }
}

TEST(Pack, copies_of_a_document_are_on_one_side_even_where_it_is_cut) {
  const TemporaryDirectory directory;
  std::string book;
  for (int i = 0; i < 300; ++i)
    book += "line " + std::to_string(i) + " of the book\n";
  write_bytes(directory / "a", book + "\n%\n" + book + "\n%\n" + book);  // the last without a separator
  write_bytes(directory / "b", book);
  const PackSummary summary = pack_text({directory / "a", directory / "b"}, ByteTokenizer(), directory / "train",
                                        directory / "val", {.document_separator = "\n%\n", .validation_fraction = 0.1});
  EXPECT_EQ(summary.num_cut_documents, 4);
  const std::string train = text_of(directory / "train");
  std::string validation = text_of(directory / "val");
  for (int i = 0; i < 300; ++i) {
    const std::string line = "line " + std::to_string(i) + " of the book\n";
    EXPECT_NE(train.find(line) == std::string::npos, validation.find(line) == std::string::npos) << line;
  }
  ASSERT_FALSE(summary.warnings.empty());
  EXPECT_NE(summary.warnings.front().find("3 of 4 documents are copies"), std::string::npos);
}

// Most documents are copies of a short one: others are enough for validation.
TEST(Pack, copies_that_are_most_of_the_text_are_not_cut) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 3000; ++i)
    text += i % 10 == 0 ? "document " + std::to_string(i) + "\n%%\n" : "same text here\n%%\n";
  write_bytes(directory / "text", text);
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    const PackSummary summary = pack_text({directory / "text"}, ByteTokenizer(), directory / "train", directory / "val",
                                          {.document_separator = "\n%%\n", .validation_fraction = 0.05, .seed = seed});
    EXPECT_EQ(summary.num_cut_documents, 0) << seed;
    EXPECT_NEAR(summary.validation_share(), 0.05, 0.005) << seed;
    EXPECT_EQ(text_of(directory / "val").find("same text here"), std::string::npos) << seed;
  }
}

// A separator may lie across two pieces of a file that is read piece by piece.
TEST(Pack, documents_do_not_depend_on_how_a_file_is_read) {
  const TemporaryDirectory directory;
  const std::string separator = "<|endoftext|>";
  for (int shift = -1; shift < static_cast<int>(separator.size()) + 1; ++shift) {
    const std::string first((1 << 20) - shift, 'x');
    write_bytes(directory / "text", first + separator + "the second" + separator + "\n");
    std::vector<Document> documents;
    const std::size_t file_bytes = std::filesystem::file_size(directory / "text");
    EXPECT_EQ(for_each_document(*open_bytes(directory / "text"), separator,
                                [&](const Document& document) { documents.push_back(document); }),
              2);
    ASSERT_EQ(documents.size(), 2u) << shift;
    EXPECT_EQ(documents[0].text_end, static_cast<Index>(first.size()));
    EXPECT_EQ(documents[1].begin, static_cast<Index>(first.size() + separator.size()));
    EXPECT_EQ(documents[1].end, static_cast<Index>(file_bytes)) << "the last line end belongs to it";
    EXPECT_EQ(documents[1].hash, xxh3_64("the second", 10));
  }
}

TEST(Pack, text_that_contradicts_the_options_is_told) {
  const TemporaryDirectory directory;
  const auto warnings = [&](const std::string& text, const std::string& separator, double fraction = 0) {
    write_bytes(directory / "text", text);
    std::string all;
    for (const std::string& warning : pack_text({directory / "text"}, ByteTokenizer(), directory / "train",
                                                fraction > 0 ? directory / "val" : Path(),
                                                {.document_separator = separator, .validation_fraction = fraction})
                                          .warnings)
      all += warning + "\n";
    return all;
  };
  const auto expect_part = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  EXPECT_EQ(warnings("one\n%\ntwo\n%\n", "\n%\n"), "");
  expect_part(warnings("one\n%\ntwo\n%\n", "\\n%\\n"), R"("\n%\n" occurs 2 times: in bash it is written)");
  expect_part(warnings("one\n%\ntwo\n%\n", "\\n%\\n"), R"(--document-separator $'\n%\n')");
  expect_part(warnings("one\r\n%\r\ntwo\r\n%\r\n", "\n%\n"), R"(\r\n%\r\n)");
  expect_part(warnings("one\n%\ntwo\n%\n", "<|endoftext|>"), "does not occur: every file is one document");
  expect_part(warnings("one<|endoftext|>two<|endoftext|>", ""), "--document-separator '<|endoftext|>'");
  expect_part(warnings("{\"text\": \"a\"}\n{\"text\": \"b\"}\n", ""), "JSON lines is packed as plain text");
  expect_part(warnings("# exported\n{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n", ""),
              "JSON lines is packed");
  expect_part(warnings("{\\rtf1\\ansi Text}\n", ""), "RTF is packed");
  expect_part(warnings("%!PS-Adobe-3.0\nshow\n", ""), "PostScript is packed");
  expect_part(warnings("[\n {\"text\": \"a\"}\n]\n", ""), "JSON is packed");
  const std::string list = "{\"text\": \"" + std::string(70000, 'a') + "\"}\n]\n";
  for (const char* const begin : {"[", "\n[", "[\n  ", "\xef\xbb\xbf["})
    expect_part(warnings(begin + list, ""), "JSON is packed");
  expect_part(warnings("<!DOCTYPE html>\n<p>a\n", ""), "HTML is packed");
  EXPECT_EQ(warnings("a{b}\n[a] note\n{not json}\n", ""), "");
  EXPECT_EQ(warnings("caf\u00e9\n", ""), "");
  expect_part(warnings(std::string(5000, 'a') + "\n", "", 0.05), "validation has only 250 tokens");
  expect_part(warnings("abc", "", 0.05), "of the tokens instead of 5 %");
}

TEST(Pack, one_document_gives_its_end) {
  const TemporaryDirectory directory;
  const auto tail_of = [&](const std::string& text, double fraction = 0.1) {
    write_bytes(directory / "one", text);
    pack_text({directory / "one"}, ByteTokenizer(), directory / "train", directory / "val",
              {.validation_fraction = fraction});
    EXPECT_EQ(text_of(directory / "train") + text_of(directory / "val"), text);
    return text_of(directory / "val");
  };
  std::string lines;
  for (int i = 0; i < 1000; ++i)
    lines += "line " + std::to_string(i) + "\n";
  EXPECT_TRUE(tail_of(lines).starts_with("line "));
  std::string words;
  for (int i = 0; i < 1000; ++i)
    words += "word" + std::to_string(i) + " ";
  EXPECT_TRUE(tail_of(words).starts_with("word"));
  EXPECT_EQ(tail_of("a first line\na second line that is long\n"), "ong\n");  // its last line is far too much
  EXPECT_EQ(tail_of("two \xe6\xa0\x91\xe6\xa0\x91", 0.2), "\xe6\xa0\x91");    // never a part of a character
  EXPECT_EQ(tail_of("ab"), "b");
}

// What is held out must not be trained on: by its name or its path, through links, and never silently.
TEST(Pack, excluded_files_are_left_out_under_any_name) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory / "dir");
  for (const char* const name : {"dir/a1.txt", "dir/a2.txt", "dir/a3.txt", "dir/7"})
    write_bytes(directory / name, name);
  std::filesystem::create_hard_link(directory / "dir/a1.txt", directory / "dir/copy.txt");
  std::filesystem::create_symlink(directory / "dir/a2.txt", directory / "dir/alias.txt");
  const std::string at = directory.path().string() + "/";
  const auto names = [&](const std::vector<std::string>& exclude) {
    std::string text;
    for (const Path& path : expand_inputs({at + "dir/*"}, exclude))
      text += path.filename().string() + " ";
    return text;
  };
  EXPECT_EQ(names({}), "7 a1.txt a2.txt a3.txt ");
  EXPECT_EQ(names({"[0-9]"}), "a1.txt a2.txt a3.txt ");
  EXPECT_EQ(names({"a1.txt"}), "7 a2.txt a3.txt ") << "copy.txt is the same file";
  EXPECT_EQ(names({at + "dir/a1.txt"}), "7 a2.txt a3.txt ");
  EXPECT_EQ(names({at + "dir/../dir/a[12].txt"}), "7 a3.txt ");
  EXPECT_EQ(names({at + "dir/{a1,a3}.txt"}), "7 a2.txt ");
  std::filesystem::create_symlink("loop", directory / "dir/loop");  // leads to itself
  EXPECT_EQ(names({at + "dir/[al]*"}), "7 ");
  std::filesystem::remove(directory / "dir/loop");
  EXPECT_EQ(names({at + "dir/alias.txt"}), "7 a1.txt a3.txt ") << "what the link leads to";
  EXPECT_EQ(names({"alias.txt"}), "7 a1.txt a2.txt a3.txt ") << "the link alone";
  expect_error(ExitCode::data, {"no files to pack"}, [&] { names({at + "dir"}); });
  expect_error(ExitCode::data, {"matches no input", "b*, dir/none.txt"}, [&] {
    names({"a1.txt", "b*", "dir/none.txt"});
  });
  std::filesystem::current_path(directory.path());
  EXPECT_EQ(names({"dir/a1.txt"}), "7 a2.txt a3.txt ");
  EXPECT_EQ(names({"./dir/a1.txt", "dir/7"}), "a2.txt a3.txt ");
  std::filesystem::current_path("/");
}

TEST(Pack, braces_are_those_of_bash) {
  const auto text = [](const std::string& pattern) {
    return fmt::format("{}", fmt::join(expand_braces(pattern), " "));
  };
  EXPECT_EQ(text("a{b,c}d"), "abd acd");
  EXPECT_EQ(text("{a,b{1,2}}x{,y}"), "ax axy b1x b1xy b2x b2xy");
  EXPECT_EQ(text("{08..11}"), "08 09 10 11");
  EXPECT_EQ(text("p{3..-1}"), "p3 p2 p1 p0 p-1");
  EXPECT_EQ(text("{c..a}"), "c b a");
  for (const char* const same : {"plain", "{a}", "{}", "a{b", "a}b", "\\{a,b\\}", "{1..b}", "a..b"})
    EXPECT_EQ(text(same), same);
  EXPECT_EQ(text("{a,b"), "{a,b");
  EXPECT_EQ(text("{{a,b}"), "{a {b");
  expect_error(ExitCode::data, {"too many names"}, [] { expand_braces("{1..1000}{1..1000}"); });
  expect_error(ExitCode::data, {"too many names"}, [] { expand_braces("{1..9000000000}"); });
}

// Of a pattern with alternatives each must match; ** reaches into directories.
TEST(Pack, every_alternative_of_a_pattern_is_told_where_it_matches_nothing) {
  const TemporaryDirectory directory;
  for (const char* const name : {"a1", "a2", "b1"})
    write_bytes(directory / name, name);
  std::filesystem::create_directories(directory / "deep/er/est");
  for (const char* const name : {"deep/x.txt", "deep/er/y.txt", "deep/er/est/z.txt", "deep/er/est/other"})
    write_bytes(directory / name, name);
  const std::string at = directory.path().string() + "/";
  const auto names = [&](const std::vector<std::string>& patterns, const std::vector<std::string>& exclude = {}) {
    std::string text;
    for (const Path& path : expand_inputs(patterns, exclude))
      text += path.filename().string() + " ";
    return text;
  };
  EXPECT_EQ(names({at + "{a,b}*"}), "a1 a2 b1 ");
  EXPECT_EQ(names({at + "a{1..2}"}), "a1 a2 ");
  expect_error(ExitCode::data, {"no file matches", at + "c*, " + at + "a3"}, [&] {
    names({at + "{a,c}*", at + "a{1..3}"});
  });
  expect_error(ExitCode::data, {"matches no input", "d?"}, [&] { names({at + "*"}, {"{a,d}?"}); });
  EXPECT_EQ(names({at + "[ab]*"}, {"{a1,b1}"}), "a2 ");
  EXPECT_EQ(names({at + "deep/**/*.txt"}), "z.txt y.txt x.txt ");
  EXPECT_EQ(names({at + "**/er/*.txt"}), "y.txt ");
  EXPECT_EQ(names({at + "deep/er/**"}), "other z.txt y.txt ");
  expect_error(ExitCode::data, {"no file matches", "*.csv"}, [&] { names({at + "deep/**/*.csv"}); });
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
    expect_error(ExitCode::usage, {"would replace a text to pack"}, [&] { pack(directory / name, ""); });
    expect_error(ExitCode::usage, {"would replace a text to pack"}, [&] { pack(directory / "t", directory / name); });
  }
  expect_error(ExitCode::usage, {"one name"}, [&] { pack(directory / "t", directory / "folder/../t"); });
  expect_error(ExitCode::usage, {"one name"}, [&] { pack(directory / "t", directory / "t.partial"); });
  expect_error(ExitCode::write, {"directory"}, [&] { pack(directory / "folder", ""); });
  expect_error(ExitCode::usage, {"no name"}, [&] { pack("", ""); });
  expect_error(ExitCode::write, {"a device, a pipe or a socket", "pipe"}, [&] { pack(directory / "pipe", ""); });
  expect_error(ExitCode::write, {"a device, a pipe or a socket", "/dev/null"},
               [&] { pack(directory / "t", "/dev/null"); });
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
  write_bytes(directory / "short", "x");
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
  ASSERT_EQ(summary.warnings.size(), 1u);
  EXPECT_EQ(summary.warnings[0], "without text: " + (directory / "empty").string());
  expect_error(ExitCode::usage, {"fraction"},
               [&] { pack_text({}, ByteTokenizer(), directory / "t", directory / "v", {.validation_fraction = 1}); });
  expect_error(ExitCode::usage, {"go together", "0.1 and no file"},
               [&] { pack_text({}, ByteTokenizer(), directory / "t", "", {.validation_fraction = 0.1}); });
  expect_error(ExitCode::usage, {"go together", "v and no fraction"},
               [&] { pack_text({}, ByteTokenizer(), directory / "t", directory / "v", {}); });
}

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "io/pack/input_files.hpp"
#include "io/pack/json_text_scanner.hpp"
#include "io/pack/pack.hpp"
#include "io/text/byte_tokenizer.hpp"
#include "io/tokens/token_documents.hpp"
#include "tests/io/compressed.hpp"
#include "tests/io/text/text_fixtures.hpp"
#include "tests/support/memory_limit.hpp"

namespace espalier::test {
namespace {

std::vector<std::string> packed_texts(const Path& path) {
  const TokenFile file(path);
  file.verify_checksum();
  file.verify_index();
  std::vector<std::string> texts(1);
  read_documents(file, std::nullopt, [&](std::span<const TokenId> piece, bool ends) {
    texts.back() += ByteTokenizer().decode(piece);
    if (ends)
      texts.emplace_back();
  });
  texts.pop_back();
  return texts;
}

std::vector<std::string> some_texts(std::size_t count) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < count; ++i)
    texts.push_back("Document " + std::to_string(i) + ": \"caf\u00e9\" \u6811 \U0001F600\n\ttab \\ and " +
                    std::string(i * 37 % 400, 'x'));
  return texts;
}

std::string lines_of(const std::vector<std::string>& texts) {
  std::string lines;
  for (std::size_t i = 0; i < texts.size(); ++i)
    lines += nlohmann::json({{"id", i}, {"text", texts[i]}, {"meta", {{"text", "another"}, {"n", {1, 2.5, nullptr}}}}})
                 .dump(-1, ' ', i % 2 == 0) +
             (i % 3 == 0 ? "\r\n" : "\n");
  return lines;
}

}  // namespace

TEST(Pack, a_directory_stands_for_its_files) {
  const TemporaryDirectory directory;
  std::filesystem::create_directories(directory / "d/e");
  for (const char* const name : {"d/e/y", "d/x", "d/.hidden", "d/e/.hidden"})
    write_bytes(directory / name, name);
  const auto below = expand_inputs({(directory / "d").string()});
  ASSERT_EQ(below.size(), 2u) << "all that is not hidden";
  EXPECT_EQ(below[0].filename(), "y");
  EXPECT_EQ(below[1].filename(), "x");
}

TEST(Pack, json_lines_are_documents_in_any_wrapping) {
  const TemporaryDirectory directory;
  const std::vector<std::string> texts = some_texts(9000);
  const std::string lines = lines_of(texts) + "\n";
  write_bytes(directory / "plain", lines);
  write_bytes(directory / "gzip", gzipped(lines.substr(0, 70001)) + gzipped(lines.substr(70001)));
  write_bytes(directory / "zstd", zstd_of(lines.substr(0, 70001)) + zstd_of(lines.substr(70001)));
  write_bytes(directory / "mark", "\xef\xbb\xbf" + lines.substr(0, lines.size() - 2));
  for (const char* const name : {"plain", "gzip", "zstd", "mark"})
    for (const Index threads : {1, 3}) {
      const PackSummary summary =
          pack_text({directory / name}, ByteTokenizer(), directory / "t", "", {.key = "text", .num_threads = threads});
      EXPECT_EQ(summary.num_documents, 9000) << name;
      EXPECT_TRUE(packed_texts(directory / "t") == texts) << name << ", " << threads << " threads";
    }
  const PackSummary split = pack_text({directory / "gzip"}, ByteTokenizer(), directory / "t", directory / "v",
                                      {.validation_fraction = 0.1, .key = "text", .document_end = 7, .num_threads = 2});
  EXPECT_NEAR(split.validation_share(), 0.1, 0.01);
  auto all = packed_texts(directory / "t");
  for (const std::string& text : packed_texts(directory / "v"))
    all.push_back(text);
  std::ranges::sort(all);
  auto wanted = texts;
  for (std::string& text : wanted)
    text += '\7';
  std::ranges::sort(wanted);
  EXPECT_TRUE(all == wanted);
}

TEST(Pack, a_line_without_a_text_is_named_or_counted) {
  const TemporaryDirectory directory;
  const std::string good = "{\"text\": \"good\"}\n";
  const std::vector<std::pair<std::string, std::string>> bad = {{"{\"text\": \"a\"", "ends too early"},
                                                                {"{\"text\": \"a\"} x", "more than one value"},
                                                                {"{\"text\": \"a\", }", "no key"},
                                                                {"{\"text\": 5}", "no text"},
                                                                {"{\"content\": \"a\"}", "\"content\""},
                                                                {"[\"text\"]", "no object"},
                                                                {"{\"text\": \"\\ud800\"}", "half a"},
                                                                {"{\"text\": \"\\udc00\"}", "half a"},
                                                                {"{\"text\": \"\\ud800\\u0041\"}", "half a"},
                                                                {"{\"text\": \"a\xff\"}", "not UTF-8 at byte 12"},
                                                                {"{\"text\": \"a\tb\"}", "control"},
                                                                {"{\"text\": \"a\", \"text\": \"b\"}", "a second"},
                                                                {"{\"text\": \"a\", \"n\": 01}", "no comma"},
                                                                {"{\"text\": null}", "no text"},
                                                                {"{\"text\": \"a\", \"n\": tru}", "no value"},
                                                                {"plain text", "no object"}};
  for (const auto& [line, reason] : bad) {
    write_bytes(directory / "lines", good + "\n" + line + "\n" + good);
    const PackOptions options{.key = "text", .num_threads = 2};
    expect_error(ExitCode::data, {"lines:3", reason},
                 [&] { pack_text({directory / "lines"}, ByteTokenizer(), directory / "t", "", options); });
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
    PackOptions skips = options;
    skips.skip_bad = true;
    const PackSummary summary = pack_text({directory / "lines"}, ByteTokenizer(), directory / "t", "", skips);
    EXPECT_EQ(summary.num_bad_lines, 1) << line;
    EXPECT_EQ(packed_texts(directory / "t"), (std::vector<std::string>{"good", "good"})) << line;
    ASSERT_FALSE(summary.warnings.empty());
    EXPECT_NE(summary.warnings.front().find("lines:3"), std::string::npos) << summary.warnings.front();
    std::filesystem::remove(directory / "t");
  }
  write_bytes(directory / "lines", "{\"content\": \"a\"}\n{\"content\": \"b\"}\n");
  expect_error(ExitCode::data, {"no line has the key", "2 lines", "\"content\""}, [&] {
    pack_text({directory / "lines"}, ByteTokenizer(), directory / "t", "", {.key = "text", .skip_bad = true});
  });
  write_bytes(directory / "lines", "{\"text\": \"a\", \"n\": 123456789012345678901234567890, \"x\": 1e999}\n");
  pack_text({directory / "lines"}, ByteTokenizer(), directory / "t", "", {.key = "text"});
  EXPECT_EQ(packed_texts(directory / "t"), (std::vector<std::string>{"a"})) << "JSON, whatever simdjson says";
}

// Four times as long as what the process may take.
TEST(Pack, a_line_may_be_longer_than_the_memory) {
  const TemporaryDirectory directory;
  constexpr std::size_t repeats = std::size_t{64} << 16;
  {
    std::ofstream file(directory / "lines", std::ios::binary);
    file << "{\"text\": \"short\"}\n{\"meta\": [\"" << std::string(100, 'm') << "\"], \"text\": \"";
    for (std::size_t i = 0; i < repeats; ++i)
      file << "caf\\u00e9 \xe6\xa0\x91\\n";  // 16 bytes
    file << "\"}\n{\"text\": \"last\"}";
  }
  {
    const MemoryLimit limit(std::size_t{16} << 20);
    pack_text({directory / "lines"}, ByteTokenizer(), directory / "t", "", {.key = "text", .num_threads = 1});
  }
  const TokenFile file(directory / "t");
  file.verify_checksum();
  EXPECT_EQ(file.num_documents(), 3);
  EXPECT_EQ(file.num_tokens(), static_cast<Index>(5 + 10 * repeats + 4));
  std::vector<TokenId> end(14);
  file.read(file.num_tokens() - 14, end);
  EXPECT_EQ(ByteTokenizer().decode(end), "caf\u00e9 \u6811\nlast");
}

// Long documents of plain text that cannot be read again, and of JSON lines, give the tokens of those that can.
TEST(Pack, long_documents_are_the_same_from_any_source) {
  const TemporaryDirectory directory;
  const auto tokenizer = load_tokenizer(text_fixture("llama3_like.json").string());
  std::string text;
  for (int i = 0; text.size() < (std::size_t{5} << 20); ++i)
    text += "line " + std::to_string(i) + " of a long document, caf\u00e9\n";
  const std::string all = "first\n%\n" + text + "\n%\nlast\n";
  write_bytes(directory / "plain", all);
  write_bytes(directory / "zstd", zstd_of(all));
  std::string lines;
  for (const std::string& part : {std::string("first\n%\n"), text + "\n%\n", std::string("last\n")})
    lines += nlohmann::json({{"text", part}}).dump() + "\n";
  write_bytes(directory / "lines", lines);
  const auto bytes_of = [&](const char* name, const std::string& key, double fraction) {
    pack_text({directory / name}, *tokenizer, directory / "t", fraction > 0 ? directory / "v" : Path(),
              {.document_separator = key.empty() ? "\n%\n" : "",
               .validation_fraction = fraction,
               .key = key,
               .document_end = 5,
               .num_threads = 2});
    return read_bytes(directory / "t") + (fraction > 0 ? read_bytes(directory / "v") : "");
  };
  for (const double fraction : {0.0, 0.2}) {
    const std::string wanted = bytes_of("plain", "", fraction);
    EXPECT_TRUE(bytes_of("zstd", "", fraction) == wanted) << fraction;
    EXPECT_TRUE(bytes_of("lines", "text", fraction) == wanted) << fraction;
  }
}

// Killed at any time: the end is the same, and what was done is not read again.
TEST(Pack, a_killed_pack_goes_on) {
  const TemporaryDirectory directory;
  const std::vector<std::string> texts = some_texts(30000);
  const std::string lines = lines_of(texts);
  write_bytes(directory / "a.jsonl", lines);
  write_bytes(directory / "b.jsonl.gz", gzipped(lines));
  const std::vector<Path> files = {directory / "a.jsonl", directory / "b.jsonl.gz"};
  PackOptions options{.validation_fraction = 0.1, .key = "text", .num_threads = 1};
  options.journal_interval = std::chrono::milliseconds(0);
  const auto pack = [&](const Path& name, const PackOptions& with) {
    return pack_text(files, ByteTokenizer(), directory / name, directory / (name.string() + ".v"), with);
  };
  pack("whole", options);
  EXPECT_FALSE(std::filesystem::exists(directory / "whole.journal"));
  std::filesystem::create_symlink("cut", directory / "link");
  std::filesystem::create_symlink("cut.v", directory / "link.v");
  for (const auto& [blocks, output] : {std::pair(2, "cut"), std::pair(9, "link"), std::pair(15, "cut")}) {
    const WaitingProcess killed([&] {
      PackOptions stops = options;
      stops.progress = [&, ready = std::make_shared<int>(blocks)](const PackProgress& now) {
        if (!now.is_survey && --*ready == 0) {
          std::filesystem::copy(directory / "cut.journal", directory / "saved.journal",
                                std::filesystem::copy_options::overwrite_existing);
          for (const char* const name :
               {"cut.partial", "cut.documents.partial", "cut.v.partial", "cut.v.documents.partial"})
            std::filesystem::copy(directory / name, directory / (std::string("saved.") + name),
                                  std::filesystem::copy_options::overwrite_existing);
        }
      };
      pack(output, stops);
      return std::make_unique<int>();
    });
    std::filesystem::rename(directory / "saved.journal", directory / "cut.journal");
    for (const char* const name : {"cut.partial", "cut.documents.partial", "cut.v.partial", "cut.v.documents.partial"})
      std::filesystem::rename(directory / (std::string("saved.") + name), directory / name);
    PackOptions other = options;
    other.document_end = 3;
    expect_error(ExitCode::usage, {"unfinished pack with other inputs or options", "--document-end"},
                 [&] { pack(output, other); });
    Index first_bytes = -1;
    PackOptions watched = options;
    watched.num_threads = 2;
    watched.progress = [&](const PackProgress& now) {
      EXPECT_FALSE(now.is_survey);
      if (first_bytes < 0)
        first_bytes = now.bytes;
    };
    EXPECT_GT(pack(output, watched).resumed_bytes, (blocks - 2) * (1 << 19));
    EXPECT_GT(first_bytes, blocks < 9 ? 0 : 1 << 22) << "files that are done are not opened";
    EXPECT_TRUE(read_bytes(directory / "cut") == read_bytes(directory / "whole")) << blocks;
    EXPECT_TRUE(read_bytes(directory / "cut.v") == read_bytes(directory / "whole.v")) << blocks;
    EXPECT_FALSE(std::filesystem::exists(directory / "cut.journal"));
    EXPECT_FALSE(std::filesystem::exists(directory / "cut.documents.partial"));
  }
}

// Within a document that is written in parts, too.
TEST(Pack, a_killed_pack_goes_on_within_a_document) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; text.size() < (std::size_t{9} << 20); ++i)
    text += "line " + std::to_string(i) + "\n";
  write_bytes(directory / "text", zstd_of(text));
  PackOptions options;
  options.journal_interval = std::chrono::milliseconds(0);
  {
    const WaitingProcess killed([&] {
      PackOptions stops = options;
      stops.progress = [&, left = std::make_shared<int>(5)](const PackProgress&) {
        if (--*left == 0)
          for (const char* const name : {"t.journal", "t.partial"})
            std::filesystem::copy(directory / name, directory / (std::string("saved.") + name));
      };
      pack_text({directory / "text"}, ByteTokenizer(), directory / "t", "", stops);
      return std::make_unique<int>();
    });
  }
  for (const char* const name : {"t.journal", "t.partial"})
    std::filesystem::rename(directory / (std::string("saved.") + name), directory / name);
  const PackSummary summary = pack_text({directory / "text"}, ByteTokenizer(), directory / "t", "", options);
  EXPECT_EQ(summary.resumed_bytes, 4 << 20);
  EXPECT_EQ(summary.text_bytes, static_cast<Index>(text.size()));
  EXPECT_TRUE(packed_texts(directory / "t") == std::vector<std::string>{text});
}

// As `gzip -t` accepts it.
TEST(Pack, zeros_may_follow_a_gzip_file) {
  const TemporaryDirectory directory;
  write_bytes(directory / "a.gz",
              gzipped("one\n") + std::string(300000, '\0') + gzipped("two\n") + std::string(7, '\0'));
  pack_text({directory / "a.gz"}, ByteTokenizer(), directory / "t", "", {});
  EXPECT_EQ(packed_texts(directory / "t"), std::vector<std::string>{"one\ntwo\n"});
  write_bytes(directory / "a.gz", gzipped("one\n") + std::string(7, '\0') + "x");
  expect_error(ExitCode::data, {"gzip"},
               [&] { pack_text({directory / "a.gz"}, ByteTokenizer(), directory / "t", "", {}); });
}

TEST(PackHostile, mutated_lines_and_archives) {
  const TemporaryDirectory directory;
  const char* const number = std::getenv("ESPALIER_PACK_MUTATIONS");
  const int cases = number == nullptr ? 400 : std::atoi(number);
  const std::string lines = lines_of(some_texts(12)) + "{\"text\":\"\\u00e9\\ud83d\\ude00\\n\",\"n\":-1.5e+3}\n";
  const std::string bases[] = {lines, gzipped(lines), zstd_of(lines)};
  std::uint32_t state = 7;
  const auto next = [&] { return (state = state * 1664525 + 1013904223) >> 8; };
  const MemoryLimit limit(std::size_t{256} << 20);
  int refused = 0;
  for (int i = 0; i < cases; ++i) {
    std::string bytes = bases[i % 3];
    for (std::uint32_t j = 1 + next() % 3; j > 0; --j) {
      const std::size_t at = next() % bytes.size();
      switch (next() % 5) {
        case 0: bytes[at] = static_cast<char>(next()); break;
        case 1: bytes.erase(at, 1 + next() % 9); break;
        case 2: bytes.insert(at, 1 + next() % 9, "\"\\{}[],:u0\xff"[next() % 11]); break;
        case 3: bytes[at] = static_cast<char>(bytes[at] ^ (1 << next() % 8)); break;
        default: bytes.resize(std::max<std::size_t>(1, at)); break;
      }
      if (bytes.empty())
        bytes = "{";
    }
    write_bytes(directory / "case", bytes);
    try {
      pack_text({directory / "case"}, ByteTokenizer(), directory / "t", "",
                {.key = "text", .skip_bad = i % 2 == 0, .num_threads = 1});
      TokenFile(directory / "t").verify_checksum();
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.code(), ExitCode::data) << error.what();
      EXPECT_FALSE(error.report().got.empty() || error.report().todo.empty()) << error.what();
      EXPECT_NE(std::string(error.what()).find("case"), std::string::npos) << error.what();
    }
    // The two readers agree about each line: simdjson may refuse more.
    if (i % 3 == 0) {
      JsonLineReader reader("text");
      for (std::size_t at = 0; at < bytes.size();) {
        const std::size_t end = std::min(bytes.find('\n', at), bytes.size());
        const std::string line = bytes.substr(at, end - at);
        std::string scanned;
        JsonTextScanner scanner("text", [&](std::string_view piece) { scanned += piece; });
        for (std::size_t from = 0; from < line.size(); from += 3)
          scanner.add(std::string_view(line).substr(from, 3));
        const JsonFault fault = scanner.finish();
        const std::string padded = line + std::string(JsonLineReader::readable_bytes, '\n');
        const auto text = reader.text(std::string_view(padded).substr(0, line.size()));
        EXPECT_EQ(text.has_value(), !fault) << line << ": " << fault.reason;
        if (text && !fault) {
          EXPECT_EQ(*text, scanned) << line;
        }
        at = end + 1;
      }
    }
  }
  EXPECT_GT(refused, cases / 3);
}

}  // namespace espalier::test

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "io/tokens/megatron_writer.hpp"
#include "io/tokens/token_convert.hpp"
#include "io/tokens/token_documents.hpp"
#include "io/tokens/token_statistics.hpp"
#include "tests/io/megatron_support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

using Documents = std::vector<std::vector<TokenId>>;

const Documents fixture_documents = {{5, 17, 42}, {7}, {}, {255, 0, 3, 3}};
const std::vector<TokenId> fixture_tokens = {5, 17, 42, 7, 255, 0, 3, 3};

Documents documents_of(const TokenFile& file, std::optional<TokenId> document_end = std::nullopt) {
  Documents documents(1);
  read_documents(file, document_end, [&](std::span<const TokenId> piece, bool ends) {
    documents.back().insert(documents.back().end(), piece.begin(), piece.end());
    if (ends)
      documents.emplace_back();
  });
  EXPECT_TRUE(documents.back().empty()) << "tokens behind the last document";
  documents.pop_back();
  return documents;
}

void write_documents(const Path& prefix, const Documents& documents, Index bytes_per_token,
                     Index longest_sequence = std::numeric_limits<std::int32_t>::max()) {
  MegatronWriter writer(megatron_output(prefix), bytes_per_token, longest_sequence);
  for (const std::vector<TokenId>& document : documents) {
    writer.append(document);
    writer.end_document();
  }
  writer.finish();
}

// Some of them longer than what is read at once, many of them short, some empty.
Documents many_documents() {
  Documents documents;
  std::uint32_t state = 1;
  const auto next = [&] { return state = state * 1664525 + 1013904223; };
  for (std::size_t i = 0; i < 20000; ++i) {
    std::vector<TokenId>& document = documents.emplace_back(i % 7000 == 6999 ? 400000 : next() % 29);
    for (TokenId& token : document)
      token = static_cast<TokenId>(next() % 50257);
  }
  return documents;
}

std::size_t files_in(const TemporaryDirectory& directory) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(directory.path()), {}));
}

}  // namespace

TEST(Megatron, reads_what_python_has_written) {
  const TemporaryDirectory directory;
  const std::map<std::string, std::pair<const char*, const char*>> pairs = {
      {"uint8", {megatron_uint8_bin, megatron_uint8_idx}},
      {"uint16", {megatron_uint16_bin, megatron_uint16_idx}},
      {"int32", {megatron_int32_bin, megatron_int32_idx}},
      {"int64", {megatron_int64_bin, megatron_int64_idx}}};
  for (const auto& [type, pair] : pairs) {
    const Path prefix = write_pair(directory / type, pair.first, pair.second);
    for (const char* const end : {"", ".bin", ".idx"}) {
      const TokenFile file(prefix.string() + end);
      EXPECT_EQ(file.info().format, TokenFormat::megatron);
      EXPECT_EQ(file.info().path, prefix.string() + ".bin");
      EXPECT_EQ(type_text(file.info()), type);
      EXPECT_EQ(tokens_of(file), fixture_tokens);
      EXPECT_EQ(documents_of(file), fixture_documents);
      file.check_vocabulary(256);
      expect_error(ExitCode::data, {"token 4 of 8", "id 255", "below 200"}, [&] { file.check_vocabulary(200); });
    }
  }
  const Path modes = write_pair(directory / "modes", megatron_int32_bin, megatron_int32_idx);
  write_bytes(modes.string() + ".idx", from_hex(megatron_int32_idx) + std::string(6, '\1'));
  EXPECT_EQ(documents_of(TokenFile(modes)), fixture_documents) << "a mode for each sequence";
}

TEST(Megatron, writes_what_python_writes) {
  const TemporaryDirectory directory;
  write_documents(directory / "narrow", fixture_documents, 2, 2);
  EXPECT_EQ(read_bytes(directory / "narrow.bin"), from_hex(megatron_uint16_bin));
  EXPECT_EQ(read_bytes(directory / "narrow.idx"), from_hex(megatron_uint16_idx));
  write_documents(directory / "wide.idx", fixture_documents, 4, 2);
  EXPECT_EQ(read_bytes(directory / "wide.bin"), from_hex(megatron_int32_bin));
  EXPECT_EQ(read_bytes(directory / "wide.idx"), from_hex(megatron_int32_idx));
}

TEST(Megatron, a_pair_is_found_only_where_nothing_else_is_meant) {
  const TemporaryDirectory directory;
  const Path prefix = write_pair(directory / "corpus", megatron_uint16_bin, megatron_uint16_idx);
  TokenFileWriter writer(directory / "mine.bin", "byte", 256);
  writer.append(std::vector<TokenId>{1, 2});
  writer.finish();
  for (const char* const name : {"corpus", "corpus.idx"}) {  // a file of the very name; a marked one
    std::filesystem::copy_file(directory / "mine.bin", directory / "other.bin");
    std::filesystem::rename(directory / "other.bin", directory / name);
    EXPECT_EQ(tokens_of(TokenFile(directory / name)), (std::vector<TokenId>{1, 2})) << name;
  }
  write_bytes(directory / "mine.idx", from_hex(megatron_uint16_idx));
  EXPECT_EQ(TokenFile(directory / "mine.bin").info().format, TokenFormat::espalier) << "its mark is believed";
  write_bytes(directory / "nano.bin", from_hex(megatron_uint16_bin));
  EXPECT_EQ(TokenFile(directory / "nano.bin").info().format, TokenFormat::nanogpt);
  for (const std::string& damaged : {std::string(), std::string("TNTIDX\0\0\1", 9), std::string(100, '\0')}) {
    write_bytes(directory / "nano.idx", damaged);
    expect_error(ExitCode::data, {"nano.idx", "another beginning", "nano.bin"},
                 [&] { TokenFile(directory / "nano.bin"); });
  }
  write_bytes(directory / "alone.idx", from_hex(megatron_uint16_idx));
  for (const char* const name : {"alone", "alone.idx"})
    expect_error(ExitCode::data, {"file not found", "alone.bin"}, [&] { TokenFile(directory / name); });
  expect_error(ExitCode::data, {"file not found", "absent"}, [&] { TokenFile(directory / "absent"); });
}

TEST(Megatron, what_does_not_fit_is_named) {
  const TemporaryDirectory directory;
  const Path prefix = write_pair(directory / "t", megatron_uint16_bin, megatron_uint16_idx);
  const std::string good = read_bytes(directory / "t.idx");
  const auto refused = [&](std::size_t at, auto value, const std::vector<std::string>& parts) {
    std::string bad = good;
    put(bad, at, value);
    write_bytes(directory / "t.idx", bad);
    std::vector<std::string> all = {"t.idx", "does not fit its .bin"};
    all.insert(all.end(), parts.begin(), parts.end());
    expect_error(ExitCode::data, all, [&] { TokenFile(prefix).verify_index(); });
  };
  constexpr std::size_t pointers = 34 + 6 * 4, boundaries = pointers + 6 * 8;
  ASSERT_EQ(good.size(), boundaries + 5 * 8);
  refused(9, std::uint64_t{2}, {"version 2", "version 1"});
  for (const auto& [code, name] : std::map<int, std::string>{{0, "no type"},
                                                             {2, "int8"},
                                                             {3, "int16"},
                                                             {6, "floating-point"},
                                                             {7, "floating-point"},
                                                             {9, "no type"},
                                                             {255, "no type"}})
    refused(17, static_cast<unsigned char>(code), {"type " + std::to_string(code), name, "uint16 (8)"});
  refused(17, char{4}, {"of 4", "ends with", "byte 16"});  // int32
  for (const std::uint64_t count : {std::uint64_t{5}, std::uint64_t{1} << 61, ~std::uint64_t{0}}) {
    refused(18, count, {std::to_string(count) + " sequences"});
    refused(26, count - 1, {std::to_string(count - 1) + " boundaries"});
  }
  refused(26, std::uint64_t{0}, {"at least one boundary"});
  refused(34, -1, {"sequence 0: -1 tokens"});
  refused(34, 3, {"sequence 1: 1 tokens at byte 4", "byte 6"});
  refused(pointers - 4, 3, {"a last sequence of 3 tokens", "byte 16"});
  refused(pointers + 8, std::int64_t{2}, {"sequence 1", "at byte 2", "byte 4"});
  refused(pointers + 40, std::int64_t{1} << 62, {"at byte 4611686018427387904"});
  refused(boundaries, std::int64_t{1}, {"from sequence 1 to 6", "0 to 6"});
  refused(boundaries + 8, std::int64_t{5}, {"begins with sequence 3", "5 to 6"});
  refused(boundaries + 8, std::int64_t{7}, {"begins with sequence 7", "0 to 6"});
  refused(boundaries + 32, std::int64_t{5}, {"to 5", "0 to 6"});
  write_bytes(directory / "t.idx", good.substr(0, 20));
  expect_error(ExitCode::data, {"20 bytes", "34 bytes"}, [&] { TokenFile{prefix}; });
  write_bytes(directory / "t.idx", good);
  write_bytes(directory / "t.bin", from_hex(megatron_uint16_bin) + std::string(2, '\0'));
  expect_error(ExitCode::data, {"2 tokens of 2 at byte 12", "byte 18"}, [&] { TokenFile{prefix}; });
  write_bytes(directory / "t.bin", "");
  expect_error(ExitCode::data, {"t.idx", "byte 0"}, [&] { TokenFile{prefix}; });
  MegatronWriter(megatron_output(directory / "none"), 2).finish();
  expect_error(ExitCode::data, {"empty token file", "none.bin"}, [&] { TokenFile(directory / "none"); });
}

TEST(Megatron, ids_of_wide_and_negative_tokens_are_told) {
  const TemporaryDirectory directory;
  const auto refused = [&](const char* index, std::size_t width, std::int64_t id) {
    std::string tokens(8 * width, '\1');
    std::memset(tokens.data(), 0, tokens.size());
    std::memcpy(tokens.data() + 5 * width, &id, width);
    write_bytes(directory / "t.bin", tokens);
    write_bytes(directory / "t.idx", from_hex(index));
    const TokenFile file(directory / "t");
    EXPECT_EQ(tokens_of(file)[5], std::numeric_limits<TokenId>::max()) << "never a negative (ignored) one";
    expect_error(ExitCode::data, {"token 5 of 8", "id " + std::to_string(id)}, [&] { file.check_vocabulary(1000); });
  };
  refused(megatron_int32_idx, 4, -1);
  refused(megatron_int64_idx, 8, -100);
  refused(megatron_int64_idx, 8, std::int64_t{1} << 40);
  refused(megatron_int64_idx, 8, std::numeric_limits<std::int64_t>::min());
}

// Beside plain loops.
TEST(Megatron, many_documents_come_back) {
  const TemporaryDirectory directory;
  const Documents documents = many_documents();
  write_documents(directory / "t", documents, 4, 1000);
  const TokenFile file(directory / "t");
  std::vector<TokenId> tokens;
  std::vector<Index> begins;
  LengthHistogram lengths;
  TokenId smallest = 1 << 30, largest = 0;
  for (const std::vector<TokenId>& document : documents) {
    begins.push_back(static_cast<Index>(tokens.size()));
    tokens.insert(tokens.end(), document.begin(), document.end());
    std::size_t bin = 0;
    while (LengthHistogram::last_of(bin) < static_cast<Index>(document.size()))
      ++bin;
    ++lengths.bins[bin];
    for (const TokenId token : document) {
      smallest = std::min(smallest, token);
      largest = std::max(largest, token);
    }
  }
  EXPECT_EQ(tokens_of(file), tokens);
  EXPECT_EQ(documents_of(file), documents);
  const TokenStatistics statistics = count_tokens(file, std::nullopt);
  EXPECT_EQ(statistics.lengths.bins, lengths.bins);
  EXPECT_EQ(statistics.lengths.num_documents, 20000);
  EXPECT_EQ(statistics.lengths.shortest, 0);
  EXPECT_EQ(statistics.lengths.longest, 400000);
  EXPECT_EQ(statistics.smallest_id, smallest);
  EXPECT_EQ(statistics.largest_id, largest);
  ASSERT_EQ(file.num_documents(), 20000);
  const Index num_tokens = file.num_tokens();
  for (const auto& [first, count] : std::vector<std::pair<Index, Index>>{
           {0, 1}, {0, 100}, {50000, 2048}, {90000, 400000}, {num_tokens - 30, 30}, {0, num_tokens}}) {
    std::vector<Index> wanted;
    for (const Index begin : begins)
      if (begin > first && begin < first + count && (wanted.empty() || wanted.back() != begin))
        wanted.push_back(begin);
    EXPECT_EQ(file.document_starts(first, count), wanted) << first << ", " << count;
  }
}

TEST(Megatron, documents_end_with_a_token_where_no_index_is) {
  const TemporaryDirectory directory;
  std::vector<std::uint16_t> tokens(600000, 7);
  Documents wanted(1);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<std::uint16_t>(i % 1000 == 999 || i < 3 ? 50256 : 8 + i % 91);
    wanted.back().push_back(tokens[i]);
    if (tokens[i] == 50256 && i + 1 < tokens.size())
      wanted.emplace_back();
  }
  write_values(directory / "nano.bin", tokens);
  EXPECT_EQ(documents_of(TokenFile(directory / "nano.bin"), 50256), wanted);
  EXPECT_EQ(documents_of(TokenFile(directory / "nano.bin")).size(), 1U);
  tokens.push_back(5);
  wanted.push_back({5});
  write_values(directory / "nano.bin", tokens);
  EXPECT_EQ(documents_of(TokenFile(directory / "nano.bin"), 50256), wanted);
}

TEST(Megatron, round_trips_keep_every_bit) {
  const TemporaryDirectory directory;
  for (const Index bytes : {2, 4}) {
    const std::string name = std::to_string(bytes);
    write_documents(directory / name, many_documents(), bytes);
    const std::string tokens = read_bytes(directory / (name + ".bin")), index = read_bytes(directory / (name + ".idx"));
    convert_tokens({directory / name}, directory / (name + "-copy"), {.format = TokenFormat::megatron});
    EXPECT_TRUE(read_bytes(directory / (name + "-copy.bin")) == tokens);
    EXPECT_TRUE(read_bytes(directory / (name + "-copy.idx")) == index) << "documents are kept";
    const ConvertSummary ours = convert_tokens({directory / name}, directory / (name + ".tokens"), {});
    EXPECT_EQ(ours.vocab_size, 50257);
    EXPECT_EQ(ours.num_documents, 20000);
    const TokenFile file(directory / (name + ".tokens"));
    file.verify_checksum();
    EXPECT_EQ(documents_of(file), many_documents());
    EXPECT_EQ(file.info().vocab_size, 50257);
    convert_tokens({directory / (name + ".tokens")}, directory / (name + "-back"), {.format = TokenFormat::megatron});
    EXPECT_TRUE(read_bytes(directory / (name + "-back.bin")) == tokens);
    EXPECT_TRUE(read_bytes(directory / (name + "-back.idx")) == index);
    convert_tokens({directory / (name + "-back")}, directory / (name + "-again.tokens"), {});
    EXPECT_TRUE(read_bytes(directory / (name + "-again.tokens")) == read_bytes(directory / (name + ".tokens")));
  }
  TokenFileWriter writer(directory / "byte.tokens", "byte", 256);
  writer.append(std::vector<TokenId>{1, 2, 3});
  writer.end_document();
  writer.finish();
  convert_tokens({directory / "byte.tokens"}, directory / "byte", {.format = TokenFormat::megatron});
  convert_tokens({directory / "byte"}, directory / "again", {.vocab_size = 256, .tokenizer = "byte"});
  EXPECT_EQ(read_bytes(directory / "again"), read_bytes(directory / "byte.tokens"));
  convert_tokens({directory / "byte", directory / "byte.tokens", directory / "byte"}, directory / "joined",
                 {.format = TokenFormat::megatron});
  EXPECT_EQ(documents_of(TokenFile(directory / "joined")), (Documents{{1, 2, 3}, {1, 2, 3}, {1, 2, 3}}));
}

TEST(Megatron, nothing_is_left_of_what_fails) {
  const TemporaryDirectory directory;
  const Path prefix = write_pair(directory / "t", megatron_uint16_bin, megatron_uint16_idx);
  TokenFileWriter writer(directory / "gpt2.tokens", "gpt2", 50257);
  writer.append(std::vector<TokenId>{1, 2, 3});
  writer.finish();
  std::filesystem::copy_file(directory / "gpt2.tokens", directory / "other.tokens");
  TokenFileWriter other(directory / "other.tokens", "llama", 50257);
  other.append(std::vector<TokenId>{1, 2, 3});
  other.finish();
  const std::size_t before = files_in(directory);
  const ConvertOptions to_megatron = {.format = TokenFormat::megatron};
  const auto convert = [&](const std::vector<Path>& inputs, const char* output, const ConvertOptions& options) {
    return [&directory, inputs, output, options] { convert_tokens(inputs, directory / output, options); };
  };
  expect_error(ExitCode::data, {"id 255", "below 100"}, convert({prefix}, "u", {.vocab_size = 100}));
  expect_error(ExitCode::data, {"different tokenizers", "llama", "gpt2"},
               convert({directory / "gpt2.tokens", directory / "other.tokens"}, "u", to_megatron));
  expect_error(ExitCode::write, {"the output exists already", "t.bin"},
               convert({directory / "gpt2.tokens"}, "t", to_megatron));
  expect_error(ExitCode::usage, {"--output is an input"}, convert({directory / "gpt2.tokens"}, "gpt2.tokens", {}));
  expect_error(ExitCode::write, {"did not write", "t.idx"}, convert({directory / "gpt2.tokens"}, "t.idx", {}));
  for (const rlim_t bytes : {0, 10, 40}) {
    const FileSizeLimit limit(bytes);
    expect_error(ExitCode::write, {"u."}, convert({prefix}, "u", to_megatron));
    EXPECT_EQ(files_in(directory), before) << bytes;
  }
  {
    MegatronWriter unfinished(megatron_output(directory / "u"), 2);
    unfinished.append(std::vector<TokenId>(2000000, 7));
    unfinished.end_document();
  }
  EXPECT_EQ(files_in(directory), before);
  EXPECT_EQ(read_bytes(directory / "t.idx"), from_hex(megatron_uint16_idx));
}

TEST(Megatron, what_a_killed_writer_leaves_is_replaced) {
  const TemporaryDirectory directory;
  const auto write_long = [&] {
    auto writer = std::make_unique<MegatronWriter>(megatron_output(directory / "t"), 2);
    writer->append(std::vector<TokenId>(2000000, 7));
    return writer;
  };
  {
    const WaitingProcess killed(write_long);
    expect_error(ExitCode::write, {"another process is writing"}, [&] { write_documents(directory / "t", {{1}}, 2); });
  }
  EXPECT_EQ(files_in(directory), 2U);
  write_documents(directory / "t", {{1}}, 2);
  EXPECT_EQ(files_in(directory), 2U);
  EXPECT_EQ(tokens_of(TokenFile(directory / "t")), (std::vector<TokenId>{1}));
  write_bytes(directory / "u.bin.partial", "somebody's");
  expect_error(ExitCode::write, {"u.bin.partial"}, [&] { write_documents(directory / "u", {{1}}, 2); });
  EXPECT_EQ(read_bytes(directory / "u.bin.partial"), "somebody's");
}

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "io/tokens/token_convert.hpp"
#include "io/tokens/token_documents.hpp"
#include "io/tokens/token_file.hpp"
#include "io/tokens/token_statistics.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

// Tokens, document ends and mask, as a plain program has them.
struct Contents {
  std::vector<TokenId> tokens;
  std::vector<Index> ends;
  std::vector<std::uint8_t> loss_mask;  // empty: no mask
};

// Short documents, empty ones, and one that is longer than what is read at once.
Contents many_documents(bool has_mask) {
  Contents contents;
  std::uint32_t state = 1;
  const auto next = [&] { return (state = state * 1664525 + 1013904223) >> 8; };
  for (std::size_t i = 0; i < 9000; ++i) {
    const std::size_t size = i == 5000 ? 300000 : next() % 23;
    for (std::size_t j = 0; j < size; ++j) {
      contents.tokens.push_back(static_cast<TokenId>(next() % 50257));
      if (has_mask)
        contents.loss_mask.push_back(next() % 3 == 0 ? 1 : 0);
    }
    contents.ends.push_back(static_cast<Index>(contents.tokens.size()));
  }
  return contents;
}

Path write(const Path& path, const Contents& contents) {
  TokenFileWriter writer(path, "gpt2", 50257);
  std::size_t begin = 0;
  for (const Index end : contents.ends) {
    const std::size_t size = static_cast<std::size_t>(end) - begin;
    const auto tokens = std::span(contents.tokens).subspan(begin, size);
    if (contents.loss_mask.empty())
      writer.append(tokens);
    else
      writer.append(tokens, std::span(contents.loss_mask).subspan(begin, size));
    writer.end_document();
    begin = static_cast<std::size_t>(end);
  }
  writer.finish();
  return path;
}

std::vector<Index> ends_of(const TokenFile& file) {
  std::vector<Index> ends;
  file.for_each_document([&](Index size) { ends.push_back(size + (ends.empty() ? 0 : ends.back())); });
  return ends;
}

std::vector<std::uint8_t> mask_of(const TokenFile& file) {
  std::vector<std::uint8_t> loss_mask(static_cast<std::size_t>(file.num_tokens()));
  file.read_loss_mask(0, loss_mask);
  return loss_mask;
}

// Changes a header and makes its hash right again.
template <class Change>
void with_header(const Path& path, const std::string& sound, const Change& change) {
  TokenFileHeader header;
  std::memcpy(&header, sound.data(), sizeof(header));
  change(header);
  header.header_hash = xxh3_64(&header, offsetof(TokenFileHeader, header_hash));
  write_bytes(path, std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + sound.substr(256));
}

const Contents few = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {3, 3, 9}, {1, 0, 0, 1, 1, 1, 0, 1, 1}};

}  // namespace

// Beside plain loops.
TEST(TokenFile, documents_and_loss_mask_come_back) {
  const TemporaryDirectory directory;
  for (const bool has_mask : {false, true}) {
    const Contents contents = many_documents(has_mask);
    const TokenFile file(write(directory / "t", contents));
    file.verify_checksum();
    file.verify_index();
    std::vector<TokenId> tokens(contents.tokens.size());
    file.read(0, tokens);
    EXPECT_EQ(tokens, contents.tokens);
    EXPECT_TRUE(file.states_documents());
    EXPECT_EQ(file.num_documents(), 9000);
    EXPECT_EQ(ends_of(file), contents.ends);
    EXPECT_EQ(file.has_loss_mask(), has_mask);
    EXPECT_EQ(mask_of(file), has_mask ? contents.loss_mask : std::vector<std::uint8_t>(tokens.size(), 1));
    EXPECT_EQ(count_targets(file), std::ranges::count(mask_of(file), 1));
    const Index num_tokens = file.num_tokens();
    for (const auto& [first, count] : std::vector<std::pair<Index, Index>>{{0, 1},
                                                                           {0, 2},
                                                                           {0, 100},
                                                                           {7, 64},
                                                                           {50000, 2049},
                                                                           {54900, 300100},
                                                                           {num_tokens - 30, 30},
                                                                           {0, num_tokens}}) {
      std::vector<Index> wanted;
      for (const Index end : contents.ends)
        if (end > first && end < first + count && end < num_tokens && (wanted.empty() || wanted.back() != end))
          wanted.push_back(end);
      EXPECT_EQ(file.document_starts(first, count), wanted) << first << ", " << count;
      std::vector<std::uint8_t> loss_mask(static_cast<std::size_t>(std::min(count, num_tokens - first)));
      file.read_loss_mask(first, loss_mask);
      const std::vector<std::uint8_t> mask = mask_of(file);
      EXPECT_TRUE(
          std::ranges::equal(loss_mask, std::span(mask).subspan(static_cast<std::size_t>(first), loss_mask.size())));
    }
  }
}

TEST(TokenFile, without_documents_and_mask_the_first_version_is_written) {
  const TemporaryDirectory directory;
  TokenFileWriter writer(directory / "t", "byte", 256);
  writer.append(std::vector<TokenId>{1, 2, 3});
  writer.finish();
  const std::string bytes = read_bytes(directory / "t");
  EXPECT_EQ(bytes.size(), 262U);
  EXPECT_EQ(bytes[8], 1);
  EXPECT_EQ(bytes.substr(104, 144), std::string(144, '\0'));
  const TokenFile file(directory / "t");
  EXPECT_FALSE(file.states_documents());
  EXPECT_EQ(file.num_documents(), 0);
  EXPECT_TRUE(file.document_starts(0, 3).empty());
  EXPECT_EQ(mask_of(file), (std::vector<std::uint8_t>{1, 1, 1}));
}

TEST(TokenFile, what_comes_without_a_mask_counts) {
  const TemporaryDirectory directory;
  TokenFileWriter writer(directory / "t", "byte", 256);
  writer.append(std::vector<TokenId>{1, 2});
  writer.append(std::vector<TokenId>{3, 4}, std::vector<std::uint8_t>{0, 1});
  writer.append(std::vector<TokenId>{5});
  writer.append(std::vector<TokenId>{6}, std::vector<std::uint8_t>{0});
  writer.finish();
  const TokenFile file(directory / "t");
  file.verify_checksum();
  EXPECT_FALSE(file.states_documents());
  EXPECT_EQ(mask_of(file), (std::vector<std::uint8_t>{1, 1, 0, 1, 1, 0}));
}

TEST(TokenFile, damage_of_documents_and_mask_is_seen) {
  const TemporaryDirectory directory;
  const std::string good = read_bytes(write(directory / "good", few));
  EXPECT_EQ(good.size(), 256U + 9 * 2 + 3 * 8 + 2);
  const auto code_of = [&](const std::string& bytes) {
    write_bytes(directory / "bad", bytes);
    return caught([&] { TokenFile(directory / "bad").verify_checksum(); }).code();
  };
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_EQ(code_of(bad), ExitCode::data) << bit;
  }
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_EQ(code_of(good.substr(0, size)), ExitCode::data) << size;
  write_bytes(directory / "bad", good.substr(0, 290));
  expect_error(ExitCode::data, {"truncated", "9 tokens of 2, 3 ends of documents, a loss mask"},
               [&] { TokenFile(directory / "bad"); });
}

// A header that is right by its hash, but not by what it says.
TEST(TokenFile, documents_that_do_not_fit_are_refused) {
  const TemporaryDirectory directory;
  const std::string good = read_bytes(write(directory / "good", few));
  const auto refused = [&](const std::vector<std::string>& parts, const std::string& bytes, auto change) {
    with_header(directory / "bad", bytes, change);
    expect_error(ExitCode::data, parts, [&] {
      const TokenFile file(directory / "bad");
      for (const Index start : file.document_starts(2, 5))
        EXPECT_TRUE(start > 2 && start < 7);
      file.verify_index();
    });
  };
  const auto nothing = [](TokenFileHeader&) {};
  const auto with_end = [&](std::size_t document, std::uint64_t end) {
    std::string bytes = good;
    std::memcpy(bytes.data() + 256 + 18 + 8 * document, &end, sizeof(end));
    return bytes;
  };
  refused({"documents do not fit", "ends with token 8", "token 9"}, with_end(2, 8), nothing);
  refused({"document 1 that ends with token 2", "3 to 9"}, with_end(1, 2), nothing);
  refused({"document 0 that ends with token 10", "0 to 9"}, with_end(0, 10), nothing);
  refused({"document 1 that ends with token -1"}, with_end(1, ~std::uint64_t{0}), nothing);
  refused({"truncated"}, good, [](TokenFileHeader& header) { header.num_documents = 4; });
  refused({"bytes after"}, good, [](TokenFileHeader& header) { header.num_documents = 2; });
  refused({"truncated"}, good, [](TokenFileHeader& header) { header.num_documents = std::uint64_t{1} << 61; });
  refused({"truncated"}, good, [](TokenFileHeader& header) { header.num_documents = ~std::uint64_t{0}; });
  refused({"bytes after"}, good, [](TokenFileHeader& header) { header.has_loss_mask = 0; });
  refused({"another format version", "version 3", "1 or 2"}, good, [](TokenFileHeader& header) { header.version = 3; });
}

TEST(TokenFile, fingerprints_tell_documents_and_masks_apart) {
  const TemporaryDirectory directory;
  const auto fingerprint = [&](const Contents& contents) {
    return TokenFile(write(directory / "t", contents)).fingerprint(false).whole;
  };
  Contents other_ends = few, other_mask = few;
  other_ends.ends[0] = 2;
  other_mask.loss_mask[8] = 0;
  EXPECT_EQ(fingerprint(few), fingerprint(few));
  EXPECT_NE(fingerprint(few), fingerprint(other_ends));
  EXPECT_NE(fingerprint(few), fingerprint(other_mask));
}

TEST(TokenFile, conversion_keeps_documents_and_masks) {
  const TemporaryDirectory directory;
  const Path masked = write(directory / "masked", few);
  const Path plain = write(directory / "plain", {few.tokens, few.ends, {}});
  convert_tokens({masked}, directory / "copy", {});
  EXPECT_EQ(read_bytes(directory / "copy"), read_bytes(masked));
  convert_tokens({plain, masked}, directory / "both", {});
  const TokenFile both(directory / "both");
  both.verify_checksum();
  EXPECT_EQ(ends_of(both), (std::vector<Index>{3, 3, 9, 12, 12, 18}));
  EXPECT_EQ(mask_of(both), (std::vector<std::uint8_t>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1}));
  expect_error(ExitCode::data, {"loss mask would be lost", "masked"}, [&] {
    convert_tokens({plain, masked}, directory / "megatron", {.format = TokenFormat::megatron});
  });
  EXPECT_FALSE(std::filesystem::exists(directory / "megatron.bin"));
  write_values<std::uint16_t>(directory / "nano.bin", {5, 6, 0, 7, 0, 8});
  convert_tokens({directory / "nano.bin"}, directory / "joined", {});
  EXPECT_FALSE(TokenFile(directory / "joined").states_documents());
  convert_tokens({directory / "nano.bin"}, directory / "split", {.document_end = 0});
  EXPECT_EQ(ends_of(TokenFile(directory / "split")), (std::vector<Index>{3, 5, 6}));
}

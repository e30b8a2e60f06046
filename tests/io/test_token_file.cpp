// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <numeric>

#include "core/float16.hpp"
#include "io/tokens/token_file.hpp"
#include "io/tokens/token_statistics.hpp"
#include "tests/io/support.hpp"

using namespace espalier;
using namespace espalier::test;

namespace {

std::vector<TokenId> all_tokens(const TokenFile& file) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(file.num_tokens()));
  file.read(0, tokens);
  return tokens;
}

Path write_tokens(const Path& path, const std::vector<TokenId>& tokens, Index vocab_size) {
  TokenFileWriter writer(path, "byte", vocab_size);
  writer.append(tokens);
  writer.finish();
  return path;
}

std::string llmc_file(std::int32_t magic, std::int32_t version, std::int32_t count, const std::string& payload) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return std::string(reinterpret_cast<const char*>(header.data()), 1024) + payload;
}

}  // namespace

// By hand: of a constant 0, of k tokens in turn ln(k), of three quarters and a quarter 0.562; over all files together.
TEST(TokenFile, frequencies_are_those_of_all_files) {
  const TemporaryDirectory directory;
  const auto file = [&](const char* name, std::size_t count, auto token) {
    std::vector<TokenId> tokens(count);
    for (std::size_t i = 0; i < count; ++i)
      tokens[i] = static_cast<TokenId>(token(i));
    return write_tokens(directory / name, tokens, 256).string();
  };
  const std::string zeros = file("zeros", 30000, [](std::size_t) { return 0; });
  const std::string ones = file("ones", 10000, [](std::size_t) { return 1; });
  const std::string turns = file("turns", 5000000, [](std::size_t i) { return i % 7; });
  EXPECT_EQ(sample_frequencies({zeros}).unigram_loss, 0);
  EXPECT_NEAR(sample_frequencies({turns}).unigram_loss, std::log(7), 1e-3);
  EXPECT_NEAR(sample_frequencies({zeros, ones}).unigram_loss, 0.5623, 1e-3);
  EXPECT_EQ(sample_frequencies({zeros, ones, turns}).num_tokens, 5040000);
  const std::string halves = file("halves", 8192, [](std::size_t i) { return i / 4096; });
  const std::vector<std::string> many(300, halves);
  EXPECT_NEAR(sample_frequencies(many).unigram_loss, std::log(2), 1e-2) << "not of the beginning of each";
}

// Not even the header fits.
TEST(TokenFile, a_full_disk_leaves_no_temporary_file) {
  const TemporaryDirectory directory;
  const auto write = [&] { write_tokens(directory / "t.bin", {1, 2, 3}, 256); };
  {
    const FileSizeLimit limit(0);
    expect_error(ExitCode::write, {"t.bin"}, write);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(TokenFile, written_tokens_come_back_in_both_widths) {
  const TemporaryDirectory directory;
  for (const Index vocab_size : {256, 65536, 65537, 128256}) {
    std::vector<TokenId> tokens(700000);
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = static_cast<TokenId>((i * 7919) % static_cast<std::size_t>(vocab_size));
    const TokenFile file(write_tokens(directory / "t.tokens", tokens, vocab_size));
    EXPECT_EQ(file.info().bytes_per_token, vocab_size <= 65536 ? 2 : 4);
    EXPECT_EQ(file.info().tokenizer, "byte");
    EXPECT_EQ(file.info().vocab_size, vocab_size);
    EXPECT_EQ(all_tokens(file), tokens);
    file.check_vocabulary(vocab_size);
    file.verify_checksum();
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
}

TEST(TokenFile, unfinished_writer_leaves_nothing) {
  const TemporaryDirectory directory;
  write_tokens(directory / "t", {1, 2, 3}, 256);
  {
    TokenFileWriter writer(directory / "t", "byte", 256);
    writer.append(std::vector<TokenId>{9, 9});
  }
  EXPECT_EQ(all_tokens(TokenFile(directory / "t")), (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()), {}), 1);
  expect_error(ExitCode::data, {"id 256"}, [&] { write_tokens(directory / "u", {256}, 256); });
}

// Behind the end of a mapping would be SIGBUS; a file that takes the place of the mapped one does it no harm.
TEST(TokenFile, a_file_that_is_cut_while_it_is_open_is_told) {
  const TemporaryDirectory directory;
  const Path path = directory / "cut.bin";
  write_values<std::uint16_t>(path, std::vector<std::uint16_t>(10000, 7));
  const TokenFile file(path);
  write_values<std::uint16_t>(directory / "other.bin", {1, 2});
  std::filesystem::create_hard_link(path, directory / "kept.bin");
  std::filesystem::rename(directory / "other.bin", path);
  EXPECT_EQ(all_tokens(file).size(), 10000u) << "replaced, not cut";
  std::filesystem::rename(directory / "kept.bin", path);
  std::filesystem::resize_file(path, 100);
  std::vector<TokenId> last(1);
  expect_error(ExitCode::data, {"became shorter while it was read", "cut.bin", "100 bytes", "20000 bytes"},
               [&] { file.read(9999, last); });
  expect_error(ExitCode::data, {"became shorter while it was read", "100 bytes"}, [&] { file.check_vocabulary(8); });
  const TokenFile ours(write_tokens(directory / "t", std::vector<TokenId>(5000, 7), 256));
  std::filesystem::resize_file(directory / "t", 0);
  expect_error(ExitCode::data, {"became shorter while it was read", "0 bytes"}, [&] { ours.verify_checksum(); });
}

TEST(TokenFile, reads_nanogpt) {
  const TemporaryDirectory directory;
  write_values<std::uint16_t>(directory / "train.bin", {1, 50256, 65535});
  const TokenFile file(directory / "train.bin");
  EXPECT_EQ(file.info().format, TokenFormat::nanogpt);
  EXPECT_EQ(all_tokens(file), (std::vector<TokenId>{1, 50256, 65535}));
  write_bytes(directory / "odd.bin", "abcde");
  expect_error(ExitCode::data, {"odd.bin", "5 bytes", "even"}, [&] { TokenFile(directory / "odd.bin"); });
}

TEST(TokenFile, reads_llmc) {
  const TemporaryDirectory directory;
  const std::string payload("\1\0\0\0\xff\xff\0\0", 8);
  write_bytes(directory / "gpt2.bin", llmc_file(20240520, 1, 4, payload));
  EXPECT_EQ(all_tokens(TokenFile(directory / "gpt2.bin")), (std::vector<TokenId>{1, 0, 65535, 0}));
  write_bytes(directory / "llama.bin", llmc_file(20240801, 7, 2, payload));
  EXPECT_EQ(all_tokens(TokenFile(directory / "llama.bin")), (std::vector<TokenId>{1, 65535}));
  write_bytes(directory / "v2.bin", llmc_file(20240520, 2, 4, payload));
  expect_error(ExitCode::data, {"version 2"}, [&] { TokenFile(directory / "v2.bin"); });
  write_bytes(directory / "short.bin", llmc_file(20240520, 1, 5, payload));
  expect_error(ExitCode::data, {"truncated", "1032 bytes", "1034 bytes"}, [&] { TokenFile(directory / "short.bin"); });
  write_bytes(directory / "negative.bin", llmc_file(20240520, 1, -4, payload));
  expect_error(ExitCode::data, {"promises -4 tokens"}, [&] { TokenFile(directory / "negative.bin"); });
  write_bytes(directory / "magic.bin", llmc_file(20240521, 1, 4, payload));  // must not pass for nanoGPT's
  expect_error(ExitCode::data, {"magic number 20240521"}, [&] { TokenFile(directory / "magic.bin"); });
}

TEST(TokenFile, bad_files_are_refused) {
  const TemporaryDirectory directory;
  expect_error(ExitCode::data, {"file not found", "absent"}, [&] { TokenFile(directory / "absent"); });
  write_bytes(directory / "empty", "");
  expect_error(ExitCode::data, {"empty token file", "empty"}, [&] { TokenFile(directory / "empty"); });
  write_bytes(directory / "text.txt", "It was the best of times");
  expect_error(ExitCode::data, {"not a token file", "data pack"}, [&] { TokenFile(directory / "text.txt"); });
  TokenFileWriter(directory / "none", "byte", 256).finish();
  expect_error(ExitCode::data, {"empty token file", "0 tokens"}, [&] { TokenFile(directory / "none"); });
}

// A file without a mark is uint16 only when it looks like that.
TEST(TokenFile, what_is_marked_or_shaped_otherwise_is_not_believed) {
  const TemporaryDirectory directory;
  const auto refused = [&](const std::string& bytes, const std::string& part) {
    write_bytes(directory / "x.bin", bytes);
    expect_error(ExitCode::data, {"not a token file", part}, [&] { TokenFile(directory / "x.bin"); });
  };
  const auto bytes_of = [](const auto& values) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
  };
  const auto swapped = [](std::string bytes, std::size_t width) {
    for (std::size_t i = 0; i + width <= bytes.size(); i += width)
      std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                   bytes.begin() + static_cast<std::ptrdiff_t>(i + width));
    return bytes;
  };
  for (const std::size_t count : {40, 3000, 150000}) {
    std::vector<std::int32_t> narrow(count), wide(count), small(count);
    std::vector<std::int64_t> long_ones(count);
    std::vector<std::uint16_t> good(count), bytes(count);
    for (std::size_t i = 0; i < count; ++i) {
      narrow[i] = static_cast<std::int32_t>(i * 7919 % 50257);
      wide[i] = static_cast<std::int32_t>(i * 7919 % 128256);
      small[i] = static_cast<std::int32_t>(i * 31 % 65);
      long_ones[i] = narrow[i];
      good[i] = static_cast<std::uint16_t>(narrow[i]);
      bytes[i] = static_cast<std::uint16_t>(i * 31 % 256);
    }
    refused(bytes_of(narrow), "32 bits: every second uint16 is 0");
    refused(bytes_of(small), "32 bits: every second uint16 is 0");
    refused(bytes_of(wide), "32 bits: every second uint16 is at most 1");
    refused(bytes_of(long_ones), "64 bits: three of four");
    refused(swapped(bytes_of(narrow), 4), "32 bits, high byte first");
    refused(swapped(bytes_of(wide), 4), "32 bits, high byte first");
    refused(swapped(bytes_of(long_ones), 8), "64 bits, high byte first");
    refused(swapped(bytes_of(bytes), 2), "high byte first");
    refused(std::string(2 * count, '\0'), "nothing but zeros");
    refused(std::string(2 * count, '\xff'), "nothing but 65535");
    for (std::size_t i = 0; i < count; i += 20) {  // labels that are ignored
      narrow[i] = -1;
      wide[i] = -100;
      long_ones[i] = -100;
    }
    refused(bytes_of(narrow), "32 bits: every second uint16 is 0 or 65535");
    refused(bytes_of(wide), "32 bits: every second uint16 is at most 1 or 65535");
    refused(bytes_of(long_ones), "64 bits: three of four uint16 are 0 or 65535");
    refused(swapped(bytes_of(narrow), 4), "32 bits, high byte first: every second uint16 is 0 or 65535");
    refused(swapped(bytes_of(wide), 4), "32 bits, high byte first: every second uint16 is at most 1 or 65535");
    refused(swapped(bytes_of(long_ones), 8), "64 bits, high byte first: three of four uint16 are 0 or 65535");
    std::string padding(2 * count, '\0');
    std::fill(padding.begin() + static_cast<std::ptrdiff_t>(count / 2 * 2), padding.end(), '\xff');
    refused(padding, "nothing but 0 and 65535");
    std::string text;
    while (text.size() < 2 * count)
      text += "It was the best of times, it was \xe2\x80\x9cthe worst\xe2\x80\x9d of times.\n";
    text.resize(text.size() / 2 * 2);
    refused(text, "text");
    std::string latin1, with_controls = text;
    while (latin1.size() < 2 * count)
      latin1 +=
          "Gr\xfc\xdf Gott, sch\xf6ne M\xe4"
          "rchen f\xfcr \xfc"
          "brige Tage; \xe0 bient\xf4t.\n";
    refused(latin1.substr(0, latin1.size() / 2 * 2), "text");
    for (std::size_t i = 70; i < with_controls.size(); i += 100)
      with_controls[i] = i % 200 == 70 ? '\x1b' : '\0';
    refused(with_controls, "text");
    if (count >= 3000) {
      std::vector<float> singles(count);
      std::vector<double> doubles(count);
      std::vector<std::uint16_t> brains(count), halves(count);
      for (std::size_t i = 0; i < count; ++i) {
        doubles[i] = std::sin(static_cast<double>(i) * 0.7319) * (i % 13 == 0 ? 20 : 0.02);
        singles[i] = static_cast<float>(doubles[i]);
        std::uint32_t bits = 0;
        std::memcpy(&bits, &singles[i], sizeof(bits));
        brains[i] = static_cast<std::uint16_t>(bits >> 16);
        halves[i] = float16(singles[i]).bits;
      }
      refused(bytes_of(singles), "fp32");
      refused(bytes_of(doubles), "fp64");
      refused(bytes_of(brains), "bf16");
      refused(bytes_of(halves), "fp16");
      refused(swapped(bytes_of(singles), 4), "(fp32), high byte first");
      refused(swapped(bytes_of(doubles), 8), "(fp64), high byte first");
      refused(swapped(bytes_of(brains), 2), "(bf16), high byte first");
      refused(swapped(bytes_of(halves), 2), "(fp16), high byte first");
      std::string characters(2 * count, '\0');  // of a vocabulary of 65, as nanoGPT's shakespeare_char numbers them
      for (std::size_t i = 0; i < characters.size(); ++i)
        characters[i] = static_cast<char>(i * 31 % 65);
      refused(characters, "bytes (uint8)");
    }
    std::vector<std::uint16_t> letters(count), tens(count);  // with GPT-2's end of a text after 1000, and after 10
    for (std::size_t i = 0; i < count; ++i) {
      letters[i] = static_cast<std::uint16_t>(i % 1000 == 999 ? 50256 : 32 + i * 31 % 95);
      tens[i] = static_cast<std::uint16_t>(i % 10 == 9 ? 50256 : 32 + i * 31 % 95);
    }
    for (const auto& values : {good, bytes, letters, tens}) {
      write_values(directory / "good.bin", values);
      EXPECT_EQ(TokenFile(directory / "good.bin").num_tokens(), static_cast<Index>(count));
    }
  }
  const std::string filling(1000, '\x7f');
  refused(std::string("MMIDIDX\0\0", 9) + filling, "Megatron");
  refused("\x93NUMPY\1" + filling, "NumPy");
  refused("PK\3\4" + filling, "zip");
  refused("\x1f\x8b\x08" + filling, "gzip");
  refused("\x28\xb5\x2f\xfd" + filling, "zstd");
  refused("PAR1" + filling, "Parquet");
  refused(std::string("II*\0", 4) + filling, "picture");
  refused("GIF89a" + filling, "picture");
  refused("RIFF\x7f\x7f\x7f\x7fWAVE" + filling, "audio");
  refused("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + filling, "Office");
  refused("ARROW1" + filling, "Arrow");
  refused("\x89HDF\r\n\x1a\n" + filling, "HDF5");
  refused(std::string("\x40\0\0\0\0\0\0\0{\"a\"", 12) + filling, "safetensors");
  refused("\x80\4\x95" + filling, "pickle");
  refused("{\"text\": \"a\", \"id\": 1234567890}\n{\"text\"", "text");
}

TEST(TokenFile, fingerprints_tell_files_apart) {
  const TemporaryDirectory directory;
  std::vector<std::uint16_t> tokens(3000000);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<std::uint16_t>(i * 7919 % 50257);
  const auto fingerprint = [&](bool whole) {
    write_values(directory / "t.bin", tokens);
    return TokenFile(directory / "t.bin").fingerprint(whole);
  };
  const auto before = fingerprint(true);
  EXPECT_EQ(fingerprint(false), before) << "what is not read counts for nothing";
  for (const std::size_t changed : {std::size_t{0}, tokens.size() - 1}) {
    tokens[changed] ^= 1;
    EXPECT_FALSE(fingerprint(false) == before) << changed;
    tokens[changed] ^= 1;
  }
  tokens[20000] ^= 1;  // between two pieces
  EXPECT_FALSE(fingerprint(true) == before);
  tokens[20000] ^= 1;
  tokens.push_back(1);
  EXPECT_FALSE(fingerprint(false) == before);
  write_bytes(directory / "few.bin", "\1\2");
  EXPECT_EQ(TokenFile(directory / "few.bin").fingerprint(true).bytes, 2);
}

TEST(TokenFile, truncation_anywhere_is_seen) {
  const TemporaryDirectory directory;
  const std::string good = read_bytes(write_tokens(directory / "good", {1, 2, 3, 4, 5, 6, 7, 8}, 256));
  for (std::size_t size = 0; size < good.size(); ++size)
    for (const char* const name : {"cut", "cut.bin"}) {
      write_bytes(directory / name, good.substr(0, size));
      if (std::string(name) == "cut.bin" && size > 0 && size < 8)
        continue;  // a few raw tokens, as far as anybody can tell
      EXPECT_EQ(caught([&] { TokenFile(directory / name); }).code(), ExitCode::data) << size;
    }
  write_bytes(directory / "cut", good.substr(0, 260));
  expect_error(ExitCode::data, {"truncated", "260 bytes", "272 bytes: a header of 256 and 8 tokens of 2"},
               [&] { TokenFile(directory / "cut"); });
  write_bytes(directory / "long", good + "x");
  expect_error(ExitCode::data, {"bytes after its last token"}, [&] { TokenFile(directory / "long"); });
}

TEST(TokenFile, every_flipped_bit_is_seen) {
  const TemporaryDirectory directory;
  const std::string good = read_bytes(write_tokens(directory / "good", {1, 2, 3, 4, 5, 6, 7, 8}, 256));
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    write_bytes(directory / "bad.bin", bad);
    EXPECT_EQ(caught([&] { TokenFile(directory / "bad.bin").verify_checksum(); }).code(), ExitCode::data) << bit;
  }
}

TEST(TokenFile, a_vocabulary_that_its_tokens_contradict_is_refused) {
  const TemporaryDirectory directory;
  const Path path = write_tokens(directory / "t.bin", {1, 2, 9}, 10);
  const std::string sound = read_bytes(path);
  const auto state = [&](std::uint64_t vocab_size) {
    TokenFileHeader header;
    std::memcpy(&header, sound.data(), sizeof(header));
    header.vocab_size = vocab_size;
    header.header_hash = xxh3_64(&header, offsetof(TokenFileHeader, header_hash));
    write_bytes(path, std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + sound.substr(256));
  };
  state(8);
  expect_error(ExitCode::data, {"vocabulary that its file states", "id 9", "below 8"},
               [&] { TokenFile(path).check_vocabulary(256); });
  state(std::uint64_t{1} << 63);
  expect_error(ExitCode::data, {"impossible vocabulary"}, [&] { const TokenFile file(path); });
}

TEST(TokenFile, token_beyond_the_vocabulary_is_named) {
  const TemporaryDirectory directory;
  std::vector<std::uint16_t> tokens(10000, 7);
  tokens[9000] = 300;
  tokens[9001] = 400;
  write_values(directory / "t.bin", tokens);
  const TokenFile file(directory / "t.bin");
  file.check_vocabulary(401);
  expect_error(ExitCode::data, {"t.bin: token 9000 of 10000", "id 300", "below 256"},
               [&] { file.check_vocabulary(256); });
  std::vector<std::int32_t> header(256, 0);
  header[0] = 20240801;
  header[1] = 1;
  header[2] = 2;
  header.insert(header.end(), {5, -1});  // 4294967295 as stored
  write_values(directory / "u.bin", header);
  const TokenFile wide(directory / "u.bin");
  EXPECT_GT(all_tokens(wide)[1], 0);  // never an ignored token
  expect_error(ExitCode::data, {"token 1 of 2", "id 4294967295"}, [&] { wide.check_vocabulary(256); });
}

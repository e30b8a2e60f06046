// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/token_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

namespace espalier {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little endian and read as they are");

constexpr std::int32_t llmc_magic_uint16 = 20240520;
constexpr std::int32_t llmc_magic_uint32 = 20240801;
constexpr std::int32_t llmc_version_uint32 = 7;  // dev/data/data_common.py: the first one, of llama-3
constexpr std::size_t llmc_header_bytes = 256 * sizeof(std::int32_t);

[[noreturn]] void refuse(const Path& path, std::string what, std::string got, std::string wanted,
                         std::string todo = {}) {
  throw Error(ExitCode::data, {std::move(what), path.string(), std::move(got), std::move(wanted), std::move(todo)});
}

const char* const pack_again = "copy the file again, or make it again with `espalier data pack`";

void check_size(const TokenFileInfo& info, std::size_t file_bytes) {
  const auto payload = static_cast<Index>(file_bytes) - info.payload_offset;
  if (payload / info.bytes_per_token != info.num_tokens || payload % info.bytes_per_token != 0) {
    const bool absurd = info.num_tokens < 0 || info.num_tokens > (std::numeric_limits<Index>::max() >> 4);
    const Index wanted = absurd ? 0 : info.payload_offset + info.num_tokens * info.bytes_per_token;
    const bool truncated = absurd || wanted > static_cast<Index>(file_bytes);
    refuse(info.path, truncated ? "truncated token file" : "token file with bytes after its last token",
           fmt::format("{} bytes", file_bytes),
           absurd ? fmt::format("the header promises {} tokens", info.num_tokens)
                  : fmt::format("{} bytes: a header of {} and {} tokens of {}", wanted, info.payload_offset,
                                info.num_tokens, info.bytes_per_token),
           pack_again);
  }
  if (info.num_tokens == 0)
    refuse(info.path, "empty token file", "0 tokens", "at least one sequence of tokens");
}

TokenFileInfo parse_espalier(const Path& path, const MappedFile& file) {
  if (file.size() < sizeof(TokenFileHeader))
    refuse(path, "truncated token file", fmt::format("{} bytes", file.size()), "a header of 256 bytes, then tokens",
           pack_again);
  TokenFileHeader header;
  std::memcpy(&header, file.data(), sizeof(header));
  if (header.header_hash != xxh3_64(&header, offsetof(TokenFileHeader, header_hash)))
    refuse(path, "token file with a damaged header", fmt::format("checksum {:016x}", header.header_hash),
           fmt::format("{:016x}", xxh3_64(&header, offsetof(TokenFileHeader, header_hash))), pack_again);
  if (header.version != 1)
    refuse(path, "token file of another format version", fmt::format("version {}", header.version), "version 1",
           "use the Espalier that wrote it, or pack the text again");
  if (header.bytes_per_token != 2 && header.bytes_per_token != 4)
    refuse(path, "token file with an unknown token type", fmt::format("{} bytes per token", header.bytes_per_token),
           "2 or 4");
  TokenFileInfo info;
  info.path = path;
  info.bytes_per_token = header.bytes_per_token;
  info.num_tokens = static_cast<Index>(header.num_tokens);
  info.vocab_size = static_cast<Index>(header.vocab_size);
  info.tokenizer.assign(header.tokenizer, ::strnlen(header.tokenizer, sizeof(header.tokenizer)));
  info.payload_offset = sizeof(header);
  info.payload_hash = header.payload_hash;
  return info;
}

TokenFileInfo parse_llmc(const Path& path, const MappedFile& file, std::int32_t magic) {
  std::int32_t header[3];
  if (file.size() < llmc_header_bytes)
    refuse(path, "truncated llm.c token file", fmt::format("{} bytes", file.size()),
           "a header of 1024 bytes, then tokens", pack_again);
  std::memcpy(header, file.data(), sizeof(header));
  const bool is_wide = magic == llmc_magic_uint32;
  if (header[1] != 1 && !(is_wide && header[1] == llmc_version_uint32))
    refuse(path, "llm.c token file of another format version", fmt::format("version {}", header[1]),
           is_wide ? fmt::format("version {}", llmc_version_uint32) : "version 1",
           "make it again with llm.c's dev/data");
  TokenFileInfo info;
  info.path = path;
  info.format = TokenFormat::llmc;
  info.bytes_per_token = is_wide ? 4 : 2;
  info.num_tokens = header[2];
  info.payload_offset = llmc_header_bytes;
  return info;
}

// Raw uint16 files have no mark of their own, so a damaged header of another format must not pass for one.
bool looks_like_damaged_header(const MappedFile& file) {
  const TokenFileHeader ours;
  int wrong_bits = 0;
  for (std::size_t i = 0; i < sizeof(ours.magic); ++i)
    wrong_bits += std::popcount(static_cast<unsigned>(static_cast<unsigned char>(ours.magic[i]) ^ file.data()[i]));
  if (wrong_bits <= 8)
    return true;
  if (file.size() < llmc_header_bytes)
    return false;
  std::uint32_t header[3];
  std::memcpy(header, file.data(), sizeof(header));
  const std::size_t payload = file.size() - llmc_header_bytes;
  return (header[1] == 1 || header[1] == llmc_version_uint32) &&
         (payload == 2 * std::size_t{header[2]} || payload == 4 * std::size_t{header[2]});
}

TokenFileInfo parse(const Path& path, const MappedFile& file) {
  if (file.size() == 0)
    refuse(path, "empty token file", "0 bytes", "at least one sequence of tokens", pack_again);
  const TokenFileHeader ours;
  std::int32_t magic = 0;
  std::memcpy(&magic, file.data(), std::min(sizeof(magic), file.size()));
  if (std::memcmp(file.data(), ours.magic, std::min(sizeof(ours.magic), file.size())) == 0)
    return parse_espalier(path, file);
  if (magic == llmc_magic_uint16 || magic == llmc_magic_uint32)
    return parse_llmc(path, file, magic);
  if (path.extension() != ".bin" || (file.size() >= 8 && looks_like_damaged_header(file)))
    refuse(path, "not a token file",
           fmt::format("magic number {} (0x{:08x})", magic, static_cast<std::uint32_t>(magic)),
           "\"ESPTOKEN\", or llm.c's 20240520 or 20240801, or raw uint16 tokens in a file named *.bin (nanoGPT)",
           "make one from text with `espalier data pack`");
  TokenFileInfo info;
  info.path = path;
  info.format = TokenFormat::nanogpt;
  info.num_tokens = static_cast<Index>(file.size()) / 2;
  if (file.size() % 2 != 0)
    refuse(path, "truncated token file", fmt::format("{} bytes", file.size()),
           "an even number of bytes, as raw tokens (nanoGPT's format) have two each", pack_again);
  return info;
}

template <class Stored>
void widen(const unsigned char* bytes, std::span<TokenId> tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Stored token;  // llm.c's payload is aligned, but a mapping of another format need not be
    std::memcpy(&token, bytes + i * sizeof(Stored), sizeof(Stored));
    tokens[i] = static_cast<TokenId>(std::min<std::uint32_t>(token, std::numeric_limits<TokenId>::max()));
  }
}

// The first token that is not below vocab_size, or -1. Maxima of blocks vectorise, a search with an exit does
// not.
template <class Stored>
Index find_beyond(const unsigned char* bytes, Index count, Index vocab_size) {
  constexpr Index block = 4096;
  Stored buffer[block];
  for (Index first = 0; first < count; first += block) {
    const Index size = std::min(block, count - first);
    std::memcpy(buffer, bytes + static_cast<std::size_t>(first) * sizeof(Stored),
                static_cast<std::size_t>(size) * sizeof(Stored));
    Stored largest = 0;
    for (Index i = 0; i < size; ++i)
      largest = std::max(largest, buffer[i]);
    if (static_cast<Index>(largest) < vocab_size)
      continue;
    for (Index i = 0; i < size; ++i)
      if (static_cast<Index>(buffer[i]) >= vocab_size)
        return first + i;
  }
  return -1;
}

}  // namespace

bool is_own_token_file(const Path& path) {
  const TokenFileHeader ours;
  const MappedFile file(path, ExitCode::data);
  return file.size() == 0 || std::memcmp(file.data(), ours.magic, std::min(sizeof(ours.magic), file.size())) == 0;
}

const char* to_string(TokenFormat format) {
  switch (format) {
    case TokenFormat::espalier: return "espalier";
    case TokenFormat::nanogpt: return "nanogpt";
    case TokenFormat::llmc: return "llm.c";
  }
  return "unknown";
}

TokenFile::TokenFile(const Path& path) : file_(path, ExitCode::data), info_(parse(path, file_)) {
  check_size(info_, file_.size());
}

void TokenFile::read(Index first, std::span<TokenId> tokens) const {
  ESPALIER_ASSERT(
      first >= 0 && first + static_cast<Index>(tokens.size()) <= info_.num_tokens,
      fmt::format("{} tokens from {} on are asked of a file of {}", tokens.size(), first, info_.num_tokens));
  file_.require_whole();
  const unsigned char* const bytes = file_.data() + info_.payload_offset + first * info_.bytes_per_token;
  if (info_.bytes_per_token == 2)
    widen<std::uint16_t>(bytes, tokens);
  else
    widen<std::uint32_t>(bytes, tokens);
}

void TokenFile::check_vocabulary(Index vocab_size) const {
  const unsigned char* const bytes = file_.data() + info_.payload_offset;
  const Index position = info_.bytes_per_token == 2 ? find_beyond<std::uint16_t>(bytes, info_.num_tokens, vocab_size)
                                                    : find_beyond<std::uint32_t>(bytes, info_.num_tokens, vocab_size);
  if (position < 0)
    return;
  std::uint32_t token = 0;
  std::memcpy(&token, bytes + position * info_.bytes_per_token, static_cast<std::size_t>(info_.bytes_per_token));
  throw Error(ExitCode::data,
              {.what = "a token is beyond the model's vocabulary",
               .where = fmt::format("{}: token {} of {}", info_.path.string(), position, info_.num_tokens),
               .got = fmt::format("id {}", token),
               .wanted = fmt::format("ids below {}, the model's vocab_size", vocab_size),
               .todo = "raise model.vocab_size, or use data packed with the model's tokenizer"});
}

void TokenFile::verify_checksum() const {
  if (info_.format != TokenFormat::espalier)
    return;
  const std::uint64_t hash = xxh3_64(file_.data() + info_.payload_offset, file_.size() - sizeof(TokenFileHeader));
  if (hash != info_.payload_hash)
    refuse(info_.path, "damaged token file", fmt::format("XXH3-64 of the tokens {:016x}", hash),
           fmt::format("{:016x}", info_.payload_hash), pack_again);
}

}  // namespace espalier

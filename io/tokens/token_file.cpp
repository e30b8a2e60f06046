// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/token_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "io/pack/file_kind.hpp"
#include "io/units.hpp"

namespace espalier {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little endian and read as they are");

constexpr std::int32_t llmc_magic_uint16 = 20240520;
constexpr std::int32_t llmc_magic_uint32 = 20240801;
constexpr std::int32_t llmc_version_uint32 = 7;  // dev/data/data_common.py: the first one, of llama-3
constexpr std::size_t llmc_header_bytes = 256 * sizeof(std::int32_t);
constexpr std::size_t piece_of_tokens = 1 << 20;  // bytes that are read at once where all are

[[noreturn]] void refuse_token_file(const Path& path, std::string what, std::string got, std::string wanted,
                                    std::string todo = {}) {
  throw Error(ExitCode::data, {std::move(what), path.string(), std::move(got), std::move(wanted), std::move(todo)});
}

// What a format is known by: the bytes up to the first token.
struct FileHead {
  std::string bytes;
  std::size_t file_bytes = 0;
};

FileHead read_head(const InputFile& file) {
  FileHead head{std::string(std::min(file.size(), llmc_header_bytes), '\0'), file.size()};
  file.read_at(0, head.bytes.data(), head.bytes.size());
  return head;
}

void check_size(const TokenFileInfo& info, std::size_t file_bytes) {
  constexpr Index most = std::numeric_limits<Index>::max() >> 4;  // what file_bytes() can count
  const bool absurd = info.num_tokens < 0 || info.num_tokens > most || info.num_stated_documents < 0 ||
                      info.num_stated_documents > most;
  const Index wanted = absurd ? 0 : info.file_bytes();
  if (absurd || wanted != static_cast<Index>(file_bytes)) {
    const bool truncated = absurd || wanted > static_cast<Index>(file_bytes);
    refuse_token_file(info.path, truncated ? "truncated token file" : "token file with bytes after its last token",
                      fmt::format("{} bytes", file_bytes),
                      absurd ? fmt::format("the header promises {} tokens and {} documents", info.num_tokens,
                                           info.num_stated_documents)
                             : fmt::format("{} bytes: a header of {} and {} tokens of {}{}{}", wanted,
                                           info.payload_offset, info.num_tokens, info.bytes_per_token,
                                           info.num_stated_documents == 0
                                               ? ""
                                               : fmt::format(", {} ends of documents", info.num_stated_documents),
                                           info.has_loss_mask ? ", a loss mask" : ""),
                      pack_again);
  }
  if (info.num_tokens == 0)
    refuse_token_file(info.path, "empty token file", "0 tokens", "at least one sequence of tokens");
}

TokenFileInfo parse_espalier(const Path& path, const FileHead& head) {
  if (head.file_bytes < sizeof(TokenFileHeader))
    refuse_token_file(path, "truncated token file", fmt::format("{} bytes", head.file_bytes),
                      "a header of 256 bytes, then tokens", pack_again);
  TokenFileHeader header;
  std::memcpy(&header, head.bytes.data(), sizeof(header));
  if (header.header_hash == 0 && header.num_tokens == 0)
    refuse_token_file(path, "token file that was never finished", "what a killed `espalier data pack` leaves",
                      "a finished one", "remove it; pack the text again if it has not been since");
  if (header.header_hash != xxh3_64(&header, offsetof(TokenFileHeader, header_hash)))
    refuse_token_file(path, "token file with a damaged header", fmt::format("checksum {:016x}", header.header_hash),
                      fmt::format("{:016x}", xxh3_64(&header, offsetof(TokenFileHeader, header_hash))), pack_again);
  if (header.version != 1 && header.version != 2)
    refuse_token_file(path, "token file of another format version", fmt::format("version {}", header.version),
                      "version 1 or 2", "use the version of Espalier that wrote it, or pack the text again");
  if (header.bytes_per_token != 2 && header.bytes_per_token != 4)
    refuse_token_file(path, "token file with an unknown token type",
                      fmt::format("{} bytes per token", header.bytes_per_token), "2 or 4");
  if (header.vocab_size > std::uint64_t{1} << 32)
    refuse_token_file(path, "token file with an impossible vocabulary", fmt::format("{} ids", header.vocab_size),
                      "at most 2^32: ids have 4 bytes", pack_again);
  TokenFileInfo info;
  info.path = path;
  info.bytes_per_token = header.bytes_per_token;
  info.num_tokens = static_cast<Index>(header.num_tokens);
  info.vocab_size = static_cast<Index>(header.vocab_size);
  info.tokenizer.assign(header.tokenizer, ::strnlen(header.tokenizer, sizeof(header.tokenizer)));
  info.payload_offset = sizeof(header);
  info.payload_hash = header.payload_hash;
  if (header.version == 1)
    return info;
  info.num_stated_documents = static_cast<Index>(header.num_documents);
  info.documents_hash = header.documents_hash;
  info.has_loss_mask = header.has_loss_mask != 0;
  info.row_length = static_cast<Index>(header.row_length);
  info.loss_mask_hash = header.loss_mask_hash;
  return info;
}

TokenFileInfo parse_llmc(const Path& path, const FileHead& head, std::int32_t magic) {
  std::int32_t header[3];
  if (head.file_bytes < llmc_header_bytes)
    refuse_token_file(path, "truncated llm.c token file", fmt::format("{} bytes", head.file_bytes),
                      "a header of 1024 bytes, then tokens", pack_again);
  std::memcpy(header, head.bytes.data(), sizeof(header));
  const bool is_wide = magic == llmc_magic_uint32;
  if (header[1] != 1 && !(is_wide && header[1] == llmc_version_uint32))
    refuse_token_file(path, "llm.c token file of another format version", fmt::format("version {}", header[1]),
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
bool looks_like_damaged_header(const FileHead& head) {
  const TokenFileHeader ours;
  int wrong_bits = 0;
  for (std::size_t i = 0; i < sizeof(ours.magic); ++i)
    wrong_bits += std::popcount(
        static_cast<unsigned>(static_cast<unsigned char>(ours.magic[i]) ^ static_cast<unsigned char>(head.bytes[i])));
  if (wrong_bits <= 8)
    return true;
  if (head.file_bytes < llmc_header_bytes)
    return false;
  std::uint32_t header[3];
  std::memcpy(header, head.bytes.data(), sizeof(header));
  const std::size_t payload = head.file_bytes - llmc_header_bytes;
  return (header[1] == 1 || header[1] == llmc_version_uint32) &&
         (payload == 2 * std::size_t{header[2]} || payload == 4 * std::size_t{header[2]});
}

// Ours and llm.c's: then a Megatron .idx beside it is another file's.
bool has_own_mark(const Path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    return false;
  const InputFile file(path, ExitCode::data);
  char bytes[sizeof(TokenFileHeader::magic)] = {};
  file.read_at(0, bytes, std::min(sizeof(bytes), file.size()));
  std::int32_t magic = 0;
  std::memcpy(&magic, bytes, sizeof(magic));
  const TokenFileHeader ours;
  return std::memcmp(bytes, ours.magic, sizeof(bytes)) == 0 || magic == llmc_magic_uint16 || magic == llmc_magic_uint32;
}

MegatronPair find_files(const Path& path) {
  return has_own_mark(path) ? MegatronPair{path, {}} : find_megatron_pair(path);
}

TokenFileInfo megatron_info(const InputFile& file, const MegatronIndex& index) {
  TokenFileInfo info;
  info.path = file.path();
  info.format = TokenFormat::megatron;
  info.bytes_per_token = index.bytes_per_token();
  info.has_sign = index.has_sign();
  info.num_tokens = index.num_tokens();
  return info;
}

TokenFileInfo parse(const InputFile& file) {
  const Path& path = file.path();
  const FileHead head = read_head(file);
  if (file.size() == 0)
    refuse_token_file(path, "empty token file", "0 bytes", "at least one sequence of tokens", pack_again);
  const TokenFileHeader ours;
  std::int32_t magic = 0;
  std::memcpy(&magic, head.bytes.data(), std::min(sizeof(magic), file.size()));
  if (std::memcmp(head.bytes.data(), ours.magic, std::min(sizeof(ours.magic), file.size())) == 0)
    return parse_espalier(path, head);
  if (magic == llmc_magic_uint16 || magic == llmc_magic_uint32)
    return parse_llmc(path, head, magic);
  const std::string formats = fmt::format(
      "\"{}\", or llm.c's {} or {}, or *{} with an {} (Megatron) or raw uint16 tokens (nanoGPT)", token_file_mark.begin,
      llmc_magic_uint16, llmc_magic_uint32, megatron_tokens_extension, megatron_index_extension);
  if (const auto kind = marked_kind(head.bytes))
    refuse_token_file(path, "not a token file", kind->name, formats, kind->todo);
  if (path.extension() != ".bin" || (file.size() >= 8 && looks_like_damaged_header(head)))
    refuse_token_file(path, "not a token file",
                      fmt::format("magic number {} (0x{:08x})", magic, static_cast<std::uint32_t>(magic)), formats,
                      "make one from text with `espalier data pack`");
  if (const auto kind = kind_beside_uint16(file))
    refuse_token_file(path, "not a token file", kind->name,
                      "uint16, which a file named *.bin without a mark is taken for (nanoGPT)", kind->todo);
  TokenFileInfo info;
  info.path = path;
  info.format = TokenFormat::nanogpt;
  info.num_tokens = static_cast<Index>(file.size()) / 2;
  if (file.size() % 2 != 0)
    refuse_token_file(path, "truncated token file", fmt::format("{} bytes", file.size()),
                      "an even number of bytes, as raw tokens (nanoGPT's format) have two each", pack_again);
  return info;
}

template <class Stored>
void widen(const unsigned char* bytes, std::span<TokenId> tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Stored token;  // the bytes need not be aligned
    std::memcpy(&token, bytes + i * sizeof(Stored), sizeof(Stored));
    tokens[i] = static_cast<TokenId>(std::min<std::uint64_t>(token, std::numeric_limits<TokenId>::max()));
  }
}

// Calls `use` with a zero of the type that a token is stored as. A negative one counts as a very large one.
template <class Use>
auto with_stored_type(Index bytes_per_token, const Use& use) {
  switch (bytes_per_token) {
    case 1: return use(std::uint8_t{});
    case 2: return use(std::uint16_t{});
    case 4: return use(std::uint32_t{});
    default: return use(std::uint64_t{});
  }
}

// The first token that is not below vocab_size, or -1. Maxima of blocks vectorise, a search with an exit does not.
template <class Stored>
Index find_beyond(std::string_view bytes, Index vocab_size) {
  constexpr std::size_t block = 4096;
  const std::size_t count = bytes.size() / sizeof(Stored);
  Stored buffer[block];
  for (std::size_t first = 0; first < count; first += block) {
    const std::size_t size = std::min(block, count - first);
    std::memcpy(buffer, bytes.data() + first * sizeof(Stored), size * sizeof(Stored));
    const Stored* const found = *std::max_element(buffer, buffer + size) < static_cast<std::uint64_t>(vocab_size)
                                    ? buffer + size
                                    : std::find_if(buffer, buffer + size, [=](Stored token) {
                                        return token >= static_cast<std::uint64_t>(vocab_size);
                                      });
    if (found != buffer + size)
      return static_cast<Index>(first) + (found - buffer);
  }
  return -1;
}

}  // namespace

void require_same_tokenizer(const TokenFileInfo& info, std::string& tokenizer, const std::string& todo) {
  if (!tokenizer.empty() && !info.tokenizer.empty() && info.tokenizer != tokenizer)
    throw Error(ExitCode::data, {.what = "token files of different tokenizers cannot be mixed",
                                 .where = info.path.string(),
                                 .got = info.tokenizer,
                                 .wanted = tokenizer,
                                 .todo = todo});
  if (tokenizer.empty())
    tokenizer = info.tokenizer;
}

static_assert(std::ranges::equal(TokenFileHeader().magic, token_file_mark.begin));

const char* to_string(TokenFormat format) {
  switch (format) {
    case TokenFormat::espalier: return "espalier";
    case TokenFormat::nanogpt: return "nanogpt";
    case TokenFormat::llmc: return "llm.c";
    case TokenFormat::megatron: return "megatron";
  }
  return "unknown";
}

std::string to_text(const TokenFileInfo& info) {
  const char* const format = info.format == TokenFormat::espalier  ? "espalier's format"
                             : info.format == TokenFormat::nanogpt ? "raw without a header (nanoGPT)"
                             : info.format == TokenFormat::llmc    ? "llm.c's format"
                                                                   : "Megatron's format";
  return fmt::format("{}: {} of {} bytes, {}, tokenizer {}", info.path.string(), counted(info.num_tokens, "token"),
                     info.bytes_per_token, format, info.tokenizer.empty() ? "not stated" : info.tokenizer);
}

std::string type_text(const TokenFileInfo& info) {
  return fmt::format("{}int{}", info.has_sign ? "" : "u", 8 * info.bytes_per_token);
}

TokenFile::TokenFile(const Path& path) : TokenFile(find_files(path)) {}

TokenFile::TokenFile(const MegatronPair& pair) : file_(pair.tokens, ExitCode::data) {
  if (!pair.index.empty())
    index_.emplace(pair, file_.size());
  info_ = index_ ? megatron_info(file_, *index_) : parse(file_);
  check_size(info_, file_.size());
  if (info_.num_stated_documents > 0 && document_end(info_.num_stated_documents - 1) != info_.num_tokens)
    refuse_token_file(
        info_.path, "token file whose documents do not fit its tokens",
        fmt::format("a last document that ends with token {}", document_end(info_.num_stated_documents - 1)),
        fmt::format("token {}", info_.num_tokens), pack_again);
}

void TokenFile::read(Index first, std::span<TokenId> tokens) const {
  ESPALIER_ASSERT(
      first >= 0 && first + static_cast<Index>(tokens.size()) <= info_.num_tokens,
      fmt::format("{} tokens from {} on are asked of a file of {}", tokens.size(), first, info_.num_tokens));
  const auto width = static_cast<std::size_t>(info_.bytes_per_token);
  std::vector<unsigned char> bytes(tokens.size() * width);
  file_.read_at(static_cast<std::size_t>(info_.payload_offset) + static_cast<std::size_t>(first) * width, bytes.data(),
                bytes.size());
  with_stored_type(info_.bytes_per_token, [&](auto stored) { widen<decltype(stored)>(bytes.data(), tokens); });
}

void TokenFile::read_payload(const std::function<void(std::string_view)>& visit) const {
  file_.read_pieces(static_cast<std::size_t>(info_.payload_offset), static_cast<std::size_t>(info_.payload_end()),
                    piece_of_tokens, visit);
}

TokenFile::Fingerprint TokenFile::fingerprint(bool whole) const {
  constexpr std::size_t num_pieces = 64;
  constexpr std::size_t piece_bytes = std::size_t{16} << 10;
  const auto begin = static_cast<std::size_t>(info_.payload_offset);
  const std::size_t size = file_.size() - begin;
  Hasher sample;
  std::string piece(std::min(piece_bytes, size), '\0');
  for (std::size_t i = 0; i < num_pieces; ++i) {  // the first of them at the beginning, the last at the end
    file_.read_at(begin + (size - piece.size()) * i / (num_pieces - 1), piece.data(), piece.size());
    sample.update(piece.data(), piece.size());
  }
  Fingerprint result{static_cast<Index>(file_.size()), fmt::format("{:016x}", sample.xxh3_64()), "",
                     index_ ? index_->checksum() : ""};
  if (info_.format == TokenFormat::espalier) {
    const std::uint64_t hashes[] = {info_.payload_hash, info_.documents_hash, info_.loss_mask_hash};
    const bool is_plain = info_.num_stated_documents == 0 && !info_.has_loss_mask;
    result.whole = fmt::format("{:016x}", is_plain ? info_.payload_hash : xxh3_64(hashes, sizeof(hashes)));
  } else if (whole) {
    Hasher all;
    read_payload([&](std::string_view text) { all.update(text.data(), text.size()); });
    result.whole = fmt::format("{:016x}", all.xxh3_64());
  }
  return result;
}

void TokenFile::check_vocabulary(Index limit, const std::string& limit_name) const {
  const bool is_of_model = limit_name.empty();
  const bool is_of_file = info_.vocab_size > 0 && info_.vocab_size < limit;
  const Index vocab_size = is_of_file ? info_.vocab_size : limit;
  Index position = 0;  // of the piece
  read_payload([&](std::string_view piece) {
    const Index beyond = with_stored_type(
        info_.bytes_per_token, [&](auto stored) { return find_beyond<decltype(stored)>(piece, vocab_size); });
    if (beyond >= 0) {
      const std::string token = with_stored_type(info_.bytes_per_token, [&](auto stored) {
        std::memcpy(&stored, piece.data() + beyond * info_.bytes_per_token, sizeof(stored));
        const auto signed_token = static_cast<std::make_signed_t<decltype(stored)>>(stored);
        return info_.has_sign ? std::to_string(signed_token) : std::to_string(stored);
      });
      throw Error(ExitCode::data,
                  {.what = is_of_file ? "a token is beyond the vocabulary that its file states"
                                      : "a token is beyond " + (is_of_model ? "the model's vocabulary" : limit_name),
                   .where = fmt::format("{}: token {} of {}", info_.path.string(), position + beyond, info_.num_tokens),
                   .got = fmt::format("id {}", token),
                   .wanted = fmt::format("ids below {}{}", vocab_size,
                                         is_of_file    ? ""
                                         : is_of_model ? ", the model's vocab_size"
                                                       : ", " + limit_name),
                   .todo = is_of_file    ? pack_again
                           : is_of_model ? "raise model.vocab_size, or use data packed with the model's tokenizer"
                                         : "correct " + limit_name});
    }
    position += static_cast<Index>(piece.size()) / info_.bytes_per_token;
  });
}

void TokenFile::verify_checksum() const {
  if (info_.format != TokenFormat::espalier)
    return;
  verify_hash("tokens", info_.payload_offset, info_.payload_end(), info_.payload_hash);
  if (info_.num_stated_documents > 0)
    verify_hash("documents", info_.payload_end(), info_.loss_mask_offset(), info_.documents_hash);
  if (info_.has_loss_mask)
    verify_hash("loss mask", info_.loss_mask_offset(), info_.file_bytes(), info_.loss_mask_hash);
}

void TokenFile::verify_hash(const char* of_what, Index begin, Index end, std::uint64_t wanted) const {
  Hasher hasher;
  file_.read_pieces(static_cast<std::size_t>(begin), static_cast<std::size_t>(end), piece_of_tokens,
                    [&](std::string_view piece) { hasher.update(piece.data(), piece.size()); });
  if (hasher.xxh3_64() != wanted)
    refuse_token_file(info_.path, "damaged token file",
                      fmt::format("XXH3-64 of the {} {:016x}", of_what, hasher.xxh3_64()),
                      fmt::format("{:016x}", wanted), pack_again);
}

void TokenFile::verify_index() const {
  for_each_document([](Index) {});
}

}  // namespace espalier

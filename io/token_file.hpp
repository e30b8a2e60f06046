// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/scalars.hpp"
#include "io/file.hpp"
#include "io/hash.hpp"
#include "io/megatron_index.hpp"
#include "io/own_output.hpp"
#include "io/partial_file.hpp"

namespace espalier {

/// The header of our token files, 256 bytes, little endian; the tokens follow as uint16 or uint32.
///
///   offset  bytes  content
///        0      8  "ESPTOKEN"
///        8      4  format version, 1
///       12      4  bytes per token, 2 or 4
///       16      8  vocabulary size: every token is below it
///       24      8  number of tokens
///       32      8  XXH3-64 of the tokens' bytes
///       40     64  tokenizer name, filled up with zeros
///      104    144  zeros
///      248      8  XXH3-64 of bytes 0 to 247
struct TokenFileHeader {
  char magic[8] = {'E', 'S', 'P', 'T', 'O', 'K', 'E', 'N'};
  std::uint32_t version = 1;
  std::uint32_t bytes_per_token = 2;
  std::uint64_t vocab_size = 0;
  std::uint64_t num_tokens = 0;
  std::uint64_t payload_hash = 0;
  char tokenizer[64] = {};
  char reserved[144] = {};
  std::uint64_t header_hash = 0;
};
static_assert(sizeof(TokenFileHeader) == 256);

enum class TokenFormat { espalier, nanogpt, llmc, megatron };
const char* to_string(TokenFormat format);

struct TokenFileInfo {
  Path path;
  TokenFormat format = TokenFormat::espalier;
  Index bytes_per_token = 2;
  bool has_sign = false;  ///< Megatron's int32 and int64
  Index num_tokens = 0;
  Index vocab_size = 0;            ///< 0 where the format does not say
  std::string tokenizer;           ///< empty where the format does not say
  Index payload_offset = 0;        ///< bytes before the first token
  std::uint64_t payload_hash = 0;  ///< of our own format

  Index file_bytes() const { return payload_offset + num_tokens * bytes_per_token; }
};

/// How a file is read: "train.bin: 5000 tokens of 2 bytes, espalier's format, tokenizer byte".
std::string to_text(const TokenFileInfo& info);

/// "uint16", "int32".
std::string type_text(const TokenFileInfo& info);

/// A token file, which stays open. Four formats: ours; llm.c's with 256 int32 of header (magic 20240520: uint16,
/// 20240801: uint32); Megatron's PREFIX.bin with PREFIX.idx (io/megatron_index.hpp), either of them or PREFIX;
/// nanoGPT's headerless uint16, which a file named *.bin is taken for that has no .idx, no mark, not even of another
/// program, and not the shape of anything else (io/file_kind.hpp). Every error is Error(data).
class TokenFile {
 public:
  explicit TokenFile(const Path& path);
  const TokenFileInfo& info() const { return info_; }
  Index num_tokens() const { return info_.num_tokens; }

  /// Where the documents are; only Megatron's format says it.
  const std::optional<MegatronIndex>& index() const { return index_; }

  /// Copies `tokens.size()` tokens from position `first` on. An id that does not fit in TokenId becomes the
  /// largest one, never a negative (ignored) one.
  void read(Index first, std::span<TokenId> tokens) const;

  /// What tells this file from others without keeping it.
  struct Fingerprint {
    Index bytes = 0;
    std::string sample;  ///< XXH3-64 of 64 pieces of 16 KiB: the first, the last, and others at equal distances
    std::string whole;   ///< of all tokens; empty where they have not been read
    /// By all tokens, where both have them.
    bool operator==(const Fingerprint& other) const {
      const bool both = !whole.empty() && !other.whole.empty();
      return bytes == other.bytes && sample == other.sample && (!both || whole == other.whole);
    }
  };
  /// @param whole reads the file; ours has the checksum of all tokens in its header, where it is taken from
  Fingerprint fingerprint(bool whole) const;

  /// Reads the whole file. @throws Error (data) at the first token that is not below the vocabulary of the model or of
  /// the file itself.
  void check_vocabulary(Index model_size) const;

  /// Reads the whole file against the checksum of our own format; the others have none.
  void verify_checksum() const;

  /// Reads the whole index of a Megatron file against its tokens.
  void verify_index() const;

 private:
  explicit TokenFile(const MegatronPair& pair);
  void read_payload(const std::function<void(std::string_view)>& visit) const;

  InputFile file_;
  std::optional<MegatronIndex> index_;
  TokenFileInfo info_;
};

/// How a token file of ours begins.
inline constexpr OutputMark token_file_mark{.kind = "a token file", .begin = "ESPTOKEN"};

/// Writes our format piece by piece; the file appears under its name only by finish() (io/partial_file.hpp).
class TokenFileWriter {
 public:
  /// @param bytes_per_token 2 or 4; 0: as few as the vocabulary needs
  TokenFileWriter(const Path& path, const std::string& tokenizer, Index vocab_size, Index bytes_per_token = 0);
  TokenFileWriter(const TokenFileWriter&) = delete;
  void append(std::span<const TokenId> tokens);
  void finish();
  Index num_tokens() const { return static_cast<Index>(header_.num_tokens); }

 private:
  void flush();

  PartialFile file_;
  TokenFileHeader header_;
  Hasher hasher_;
  std::vector<unsigned char> buffer_;
  bool has_header_ = false;
};

}  // namespace espalier

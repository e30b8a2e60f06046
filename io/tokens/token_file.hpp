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
#include "io/own_output.hpp"
#include "io/partial_file.hpp"
#include "io/tokens/megatron_index.hpp"

namespace espalier {

/// The header of our token files, 256 bytes, little endian. Behind it follow the tokens as uint16 or uint32, then the
/// ends of the documents as uint64, in tokens, then the loss mask: a bit a token, the lowest of a byte first, 1 for a
/// token that counts as a target.
///
///   offset  bytes  content
///        0      8  "ESPTOKEN"
///        8      4  format version: 2, or 1 for a file without documents and mask
///       12      4  bytes per token, 2 or 4
///       16      8  vocabulary size: every token is below it
///       24      8  number of tokens
///       32      8  XXH3-64 of the tokens' bytes
///       40     64  tokenizer name, filled up with zeros
///      104      8  number of documents; 0: the file does not state them
///      112      8  XXH3-64 of the documents' bytes
///      120      8  1: a loss mask follows, 0: none
///      128      8  XXH3-64 of the mask's bytes
///      136      8  tokens of a row; 0: the file has no rows
///      144    104  zeros
///      248      8  XXH3-64 of bytes 0 to 247
struct TokenFileHeader {
  char magic[8] = {'E', 'S', 'P', 'T', 'O', 'K', 'E', 'N'};
  std::uint32_t version = 1;
  std::uint32_t bytes_per_token = 2;
  std::uint64_t vocab_size = 0;
  std::uint64_t num_tokens = 0;
  std::uint64_t payload_hash = 0;
  char tokenizer[64] = {};
  std::uint64_t num_documents = 0;
  std::uint64_t documents_hash = 0;
  std::uint64_t has_loss_mask = 0;
  std::uint64_t loss_mask_hash = 0;
  std::uint64_t row_length = 0;
  char reserved[104] = {};
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
  Index vocab_size = 0;      ///< 0 where the format does not say
  std::string tokenizer;     ///< empty where the format does not say
  Index payload_offset = 0;  ///< bytes before the first token
  // Of our own format:
  std::uint64_t payload_hash = 0;
  Index num_stated_documents = 0;
  std::uint64_t documents_hash = 0;
  bool has_loss_mask = false;
  std::uint64_t loss_mask_hash = 0;
  Index row_length = 0;  ///< of whole documents in rows of so many tokens, one token behind the last; 0: no rows

  Index payload_end() const { return payload_offset + num_tokens * bytes_per_token; }
  Index loss_mask_offset() const { return payload_end() + num_stated_documents * Index{sizeof(std::uint64_t)}; }
  Index file_bytes() const { return loss_mask_offset() + (has_loss_mask ? (num_tokens + 7) / 8 : 0); }
};

/// How a file is read: "train.bin: 5000 tokens of 2 bytes, espalier's format, tokenizer byte".
std::string to_text(const TokenFileInfo& info);

/// "uint16", "int32".
std::string type_text(const TokenFileInfo& info);

/// A token file, which stays open. Four formats: ours; llm.c's with 256 int32 of header (magic 20240520: uint16,
/// 20240801: uint32); Megatron's PREFIX.bin with PREFIX.idx (io/tokens/megatron_index.hpp), either of them or PREFIX;
/// nanoGPT's headerless uint16, which a file named *.bin is taken for that has no .idx, no mark, not even of another
/// program, and not the shape of anything else (io/pack/file_kind.hpp). Every error is Error(data).
class TokenFile {
 public:
  explicit TokenFile(const Path& path);
  const TokenFileInfo& info() const { return info_; }
  Index num_tokens() const { return info_.num_tokens; }

  /// Copies `tokens.size()` tokens from position `first` on. An id that does not fit in TokenId becomes the
  /// largest one, never a negative (ignored) one.
  void read(Index first, std::span<TokenId> tokens) const;

  /// Does the file say where its documents are? Megatron's do, and ours may.
  bool states_documents() const { return index_ || info_.num_stated_documents > 0; }
  Index num_documents() const { return index_ ? index_->num_documents() : info_.num_stated_documents; }

  /// The tokens at which a document starts, with first < start < first + count: ascending, each once. Looked up in the
  /// file; none where it states no documents.
  std::vector<Index> document_starts(Index first, Index count) const;

  /// Calls `visit` with the number of tokens of each stated document in order. Reads and checks all of them.
  void for_each_document(const std::function<void(Index num_tokens)>& visit) const;

  /// Does token first + i count as a target? 1 or 0; 1 for all where the file has no loss mask.
  void read_loss_mask(Index first, std::span<std::uint8_t> loss_mask) const;
  bool has_loss_mask() const { return info_.has_loss_mask; }

  /// What distinguishes this file from others, without a copy of it.
  struct Fingerprint {
    Index bytes = 0;
    std::string sample;  ///< XXH3-64 of 64 pieces of 16 KiB: the first, the last, and others at equal distances
    std::string whole;   ///< of all tokens; empty where they have not been read
    std::string index;   ///< of Megatron's .idx

    /// Of all tokens where they have been read, else of the samples.
    const std::string& checksum() const { return whole.empty() ? sample : whole; }
    /// "0123456789abcdef of samples".
    std::string checksum_text() const { return checksum() + (whole.empty() ? " of samples" : ""); }

    /// By all tokens and the index, where both have them.
    bool operator==(const Fingerprint& other) const {
      const auto agree = [](const std::string& a, const std::string& b) { return a.empty() || b.empty() || a == b; };
      return bytes == other.bytes && sample == other.sample && agree(whole, other.whole) && agree(index, other.index);
    }
  };
  /// @param whole reads the file; ours has the checksum of all tokens in its header, where it is taken from
  Fingerprint fingerprint(bool whole) const;

  /// Reads the whole file. @throws Error (data) at the first token that is not below the vocabulary of the model or of
  /// the file itself.
  /// @param limit that of the model, unless `limit_name` says what else it is
  void check_vocabulary(Index limit, const std::string& limit_name = "") const;

  /// Reads the whole file against the checksums of our own format; the others have none.
  void verify_checksum() const;

  /// Reads where all documents are, and checks it.
  void verify_index() const;

 private:
  explicit TokenFile(const MegatronPair& pair);
  void read_payload(const std::function<void(std::string_view)>& visit) const;
  void verify_hash(const char* of_what, Index begin, Index end, std::uint64_t wanted) const;
  Index document_end(Index document) const;

  InputFile file_;
  std::optional<MegatronIndex> index_;
  TokenFileInfo info_;
};

/// All files of a set come from one tokenizer, as far as they name one.
/// @param tokenizer the name so far; set by the first file that has one  @param todo the remedy
/// @throws Error (data) for a file of another tokenizer
void require_same_tokenizer(const TokenFileInfo& info, std::string& tokenizer, const std::string& todo);

/// The remedy for a damaged token file.
inline constexpr const char* pack_again = "copy the file again, or make it again with `espalier data pack`";

/// How a token file of ours begins.
inline constexpr OutputMark token_file_mark{.kind = "a token file", .begin = "ESPTOKEN"};

/// Writes our format piece by piece; the file appears under its name only by finish() (io/partial_file.hpp). Keeps a
/// bit a token where there is a loss mask; where documents end stands in a second file meanwhile.
class TokenFileWriter {
 public:
  /// @param bytes_per_token 2 or 4; 0: as few as the vocabulary needs
  TokenFileWriter(const Path& path, const std::string& tokenizer, Index vocab_size, Index bytes_per_token = 0);

  /// What is on disk, so that another process can continue.
  struct Progress {
    std::uint64_t num_tokens = 0;
    std::uint64_t num_documents = 0;
    std::uint64_t payload_hash = 0;
  };
  /// Continues what a killed process has left. @throws Error (write) where that is not there, or damaged
  TokenFileWriter(const Path& path, const std::string& tokenizer, Index vocab_size, const Progress& progress);
  TokenFileWriter(const TokenFileWriter&) = delete;
  void append(std::span<const TokenId> tokens);
  /// @param loss_mask of each token 1 or 0; tokens without a loss mask have 1
  void append(std::span<const TokenId> tokens, std::span<const std::uint8_t> loss_mask);
  /// The tokens since the one before are a document. A file has no documents, or ends with the last one.
  void end_document();
  /// Are there tokens behind the last document?
  bool has_open_document() const { return header_.num_tokens > last_end_; }
  /// Not with a loss mask. All of it is in the files, and with sync() on disk.
  Progress progress();
  Progress sync();
  /// What is written stays, for another process to continue.
  void keep();
  /// The file is in rows: sequences of that length, and no other, have whole documents.
  void set_row_length(Index tokens) { header_.row_length = static_cast<std::uint64_t>(tokens); }
  /// Writes all that is missing, under the partial path: finish() then has the name to give alone.
  void complete();
  void finish();
  Index num_tokens() const { return static_cast<Index>(header_.num_tokens); }

 private:
  void flush();
  void flush_ends();
  void write_sections();  // behind the tokens

  PartialFile file_;
  TokenFileHeader header_;
  Hasher hasher_;
  std::vector<unsigned char> buffer_;
  std::optional<PartialFile> ends_;  // of documents: a mark, then as in the file; it never finishes
  std::vector<std::uint64_t> ends_buffer_;
  std::uint64_t last_end_ = 0;   // in tokens
  std::vector<bool> loss_mask_;  // empty, or of all tokens
  bool has_header_ = false;
  bool is_complete_ = false;
};

}  // namespace espalier

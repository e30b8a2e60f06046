// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/printable_text.hpp"
#include "core/scalars.hpp"
#include "io/input_limits.hpp"
#include "io/text/protobuf_reader.hpp"
#include "io/text/tokenizer_files.hpp"
#include "io/text/vocabulary.hpp"

#ifdef ESPALIER_HAVE_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

namespace espalier {

bool is_sentencepiece_file(std::string_view begin) {
  // field 1 of the model: a piece, whose field 1 is its text
  return begin.size() > 3 && begin[0] == '\n' && begin[2] == '\n' && begin[3] != '\n';
}

#ifdef ESPALIER_HAVE_SENTENCEPIECE

namespace {

[[noreturn]] void damaged(const std::string& what) { throw std::runtime_error(what); }

// ModelProto.SentencePiece.Type
enum PieceType : std::uint64_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

struct Piece {
  std::string_view text;
  std::uint64_t type = normal;
};

void require_wire_type(const ProtobufReader& reader, std::uint64_t type, const char* what) {
  if (reader.wire_type != type)
    damaged(fmt::format("{} is of another type", what));
}

Piece read_piece(std::string_view message) {
  Piece piece;
  for (ProtobufReader reader(message); reader.next();) {
    if (reader.field == 1) {
      require_wire_type(reader, 2, "the text of a piece");
      piece.text = reader.bytes;
    } else if (reader.field == 2) {
      require_wire_type(reader, 5, "the score of a piece");
      float score = 0;
      std::memcpy(&score, reader.bytes.data(), sizeof score);
      if (!std::isfinite(score))
        damaged("the score of a piece is not finite");
    } else if (reader.field == 3) {
      require_wire_type(reader, 0, "the type of a piece");
      piece.type = reader.value;
    }
  }
  if (piece.text.empty() || piece.text.size() > 65536 || !is_utf8(piece.text) ||
      piece.text.find('\0') != piece.text.npos)
    damaged(fmt::format("the piece {:.60} is empty, too long or no UTF-8", printable_line(piece.text)));
  if (piece.type < normal || piece.type > byte)
    damaged(fmt::format("the piece {:.60} is of the type {}", printable_line(piece.text), piece.type));
  return piece;
}

std::uint32_t word_at(std::string_view bytes, std::size_t i) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + 4 * i, 4);
  return word;
}

// A trie of Darts-clone (its darts.h has the layout of a unit): all units that can be reached lie in the array, and all
// values in the texts that follow it, which end with a zero.
void check_trie(std::string_view units, std::string_view texts) {
  if (units.empty() || units.size() % 1024 != 0 || texts.empty() || texts.back() != '\0')
    damaged("the table of normalized characters is cut");
  const std::size_t num_units = units.size() / 4;
  std::vector<bool> seen(num_units);
  std::vector<std::size_t> open = {0};
  seen[0] = true;
  while (!open.empty()) {
    const std::size_t at = open.back();
    open.pop_back();
    const std::uint32_t unit = word_at(units, at);
    const std::size_t children = at ^ (unit >> 10 << ((unit & 1U << 9) >> 6));
    if ((children | 0xFF) >= num_units)
      damaged("the table of normalized characters points beyond its end");
    if ((unit >> 8 & 1) != 0 && (word_at(units, children) & 0x7FFFFFFF) >= texts.size())
      damaged("the table of normalized characters has a text beyond its end");
    for (std::size_t label = 1; label < 256; ++label) {
      const std::size_t child = children ^ label;
      if ((word_at(units, child) & (1U << 31 | 0xFF)) == label && !seen[child]) {
        seen[child] = true;
        open.push_back(child);
      }
    }
  }
}

// NormalizerSpec: 2 is the precompiled table: bytes of the trie, the trie, texts.
void check_normalizer(std::string_view message) {
  for (ProtobufReader reader(message); reader.next();) {
    if (reader.field != 2)
      continue;
    require_wire_type(reader, 2, "the table of normalized characters");
    if (reader.bytes.empty())
      continue;
    if (reader.bytes.size() < 4 || word_at(reader.bytes, 0) > reader.bytes.size() - 4)
      damaged("the table of normalized characters is cut");
    const std::uint32_t trie_bytes = word_at(reader.bytes, 0);
    check_trie(reader.bytes.substr(4, trie_bytes), reader.bytes.substr(4 + std::size_t{trie_bytes}));
  }
}

// TrainerSpec: 3 is the type of the model.
void check_trainer(std::string_view message) {
  for (ProtobufReader reader(message); reader.next();)
    if (reader.field == 3 && reader.value != 1 && reader.value != 2)
      damaged(fmt::format("the model is of the type {}, wanted 1 (unigram) or 2 (BPE)", reader.value));
}

// Looks through a model of SentencePiece before its library does, which believes what it reads: the library ends the
// process for some damaged models, and reads beyond its memory for others.
// @returns the ids of the pieces that a user has defined: they are found in every text
// @throws std::runtime_error: says what is damaged
std::vector<TokenId> check_sentencepiece_model(std::string_view model) {
  std::vector<TokenId> defined;
  std::set<std::string_view> texts;
  Index num_unknown = 0;
  for (ProtobufReader reader(model); reader.next();) {
    if (reader.field > 5)
      continue;
    require_wire_type(reader, 2, "a part of the model");
    if (reader.field == 1) {
      const Piece piece = read_piece(reader.bytes);
      if (!texts.insert(piece.text).second)
        damaged(fmt::format("the piece {:.60} is there twice", printable_line(piece.text)));
      num_unknown += piece.type == unknown ? 1 : 0;
      if (piece.type == user_defined)
        defined.push_back(static_cast<TokenId>(texts.size() - 1));
      if (std::ssize(texts) > Vocabulary::max_tokens)
        damaged(fmt::format("more than {} pieces", Vocabulary::max_tokens));
    } else if (reader.field == 2) {
      check_trainer(reader.bytes);
    } else if (reader.field == 3 || reader.field == 5) {
      check_normalizer(reader.bytes);
    }
  }
  if (texts.empty() || num_unknown != 1)
    damaged(fmt::format("{} pieces, {} of them for what is unknown, wanted 1", texts.size(), num_unknown));
  return defined;
}

[[noreturn]] void refuse_sentencepiece(const std::string& where, const std::string& reason) {
  throw Error(ExitCode::data, {.what = "a SentencePiece model cannot be read",
                               .where = where,
                               .got = reason,
                               .wanted = "a model that SentencePiece has trained",
                               .todo = "download the file from the model's repository again"});
}

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(const std::string& model, std::vector<TokenId> user_defined, const std::string& where)
      : user_defined_(std::move(user_defined)), where_(where) {
    if (const auto status = processor_.LoadFromSerializedProto(model); !status.ok())
      refuse_sentencepiece(where, status.ToString());
    name_ = fingerprint_name("sentencepiece", vocab_size(), model);
  }

  std::string name() const override { return name_; }
  Index vocab_size() const override { return processor_.GetPieceSize(); }

  void encode(std::string_view text, std::vector<TokenId>& tokens, EncodeOptions options) const override {
    if (options.add_special_tokens && options.is_begin && processor_.bos_id() >= 0)
      tokens.push_back(processor_.bos_id());
    std::vector<int> ids;
    if (const auto status = processor_.Encode(text, &ids); !status.ok())
      refuse_sentencepiece(where_, status.ToString());
    tokens.insert(tokens.end(), ids.begin(), ids.end());
  }

  std::string decode(std::span<const TokenId> tokens, bool) const override {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] < 0 || tokens[i] >= vocab_size())
        refuse_token(tokens[i], i, name_, vocab_size());
    std::string text;
    if (const auto status = processor_.Decode(std::vector<int>(tokens.begin(), tokens.end()), &text); !status.ok())
      refuse_sentencepiece(where_, status.ToString());
    return text;
  }

  TokenId special_token(std::string_view text) const override {
    const int id = processor_.PieceToId(text);
    return id >= 0 && id < vocab_size() && is_special(id) && processor_.IdToPiece(id) == text ? id : -1;
  }

 private:
  bool is_special(int id) const {
    return processor_.IsControl(id) || std::ranges::find(user_defined_, id) != user_defined_.end();
  }

  sentencepiece::SentencePieceProcessor processor_;
  std::vector<TokenId> user_defined_;
  std::string where_;
  std::string name_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_sentencepiece_model(const Path& path) {
  const std::string model = read_file(path, ExitCode::data, LargestFile::tokenizer);
  std::vector<TokenId> user_defined;
  try {
    user_defined = check_sentencepiece_model(model);
  } catch (const std::runtime_error& error) {
    refuse_sentencepiece(path.string(), error.what());
  }
  return std::make_unique<SentencePieceTokenizer>(model, std::move(user_defined), path.string());
}

#else

std::unique_ptr<Tokenizer> read_sentencepiece_model(const Path& path) {
  throw Error(ExitCode::usage, {.what = "this build of Espalier has no SentencePiece",
                                .where = path.string(),
                                .got = "a model of SentencePiece",
                                .wanted = "its library when Espalier is built (Debian: libsentencepiece-dev)",
                                .todo = "build Espalier with it, or use the model's tokenizer.json"});
}

#endif

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/text/sentencepiece_model.hpp"

#ifdef ESPALIER_HAVE_SENTENCEPIECE
#include <sentencepiece_processor.h>
#endif

#include <algorithm>
#include <utility>

#include "io/input_limits.hpp"
#include "io/text/sentencepiece_check.hpp"

namespace espalier {

bool is_sentencepiece_file(std::string_view begin) {
  // field 1 of the model: a piece, whose field 1 is its text
  return begin.size() > 3 && begin[0] == '\n' && begin[2] == '\n' && begin[3] != '\n';
}

#ifdef ESPALIER_HAVE_SENTENCEPIECE

namespace {

[[noreturn]] void refuse_sentencepiece(const std::string& where, const std::string& reason) {
  throw Error(ExitCode::data, {.what = "a SentencePiece model cannot be read",
                               .where = where,
                               .got = reason,
                               .wanted = "a model that SentencePiece has trained",
                               .todo = "take the file from the model's repository again"});
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
  throw Error(ExitCode::usage, {.what = "this Espalier was built without SentencePiece",
                                .where = path.string(),
                                .got = "a model of SentencePiece",
                                .wanted = "its library when Espalier is built (Debian: libsentencepiece-dev)",
                                .todo = "build Espalier with it, or take the model's tokenizer.json"});
}

#endif

}  // namespace espalier

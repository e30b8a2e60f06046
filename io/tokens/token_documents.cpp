// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include "io/tokens/token_documents.hpp"

#include <algorithm>

namespace espalier {
namespace {

constexpr Index tokens_at_once = Index{1} << 18;

using VisitPiece = std::function<void(std::span<const TokenId>, bool)>;

// Reads tokens in order; many documents share a read.
class TokenStream {
 public:
  explicit TokenStream(const TokenFile& file) : file_(file) {}
  // So many tokens, or fewer but one at least.
  std::span<const TokenId> next(Index most) {
    if (at_ == end_) {
      const Index count = std::min(tokens_at_once, file_.num_tokens() - end_);
      tokens_.resize(static_cast<std::size_t>(count));
      file_.read(end_, tokens_);
      end_ += count;
    }
    const Index count = std::min(most, end_ - at_);
    const auto piece = std::span<const TokenId>(tokens_).last(static_cast<std::size_t>(end_ - at_));
    at_ += count;
    return piece.first(static_cast<std::size_t>(count));
  }
  Index left() const { return file_.num_tokens() - at_; }

 private:
  const TokenFile& file_;
  std::vector<TokenId> tokens_;
  Index at_ = 0;
  Index end_ = 0;  // of tokens_
};

void split_at(TokenId document_end, std::span<const TokenId> piece, bool ends_file, const VisitPiece& visit) {
  while (!piece.empty()) {
    const auto found = std::find(piece.begin(), piece.end(), document_end);
    const bool is_found = found != piece.end();
    const auto size = static_cast<std::size_t>(found - piece.begin()) + (is_found ? 1 : 0);
    visit(piece.first(size), is_found || ends_file);
    piece = piece.subspan(size);
  }
}

}  // namespace

void read_documents(const TokenFile& file, std::optional<TokenId> document_end, const VisitPiece& visit) {
  TokenStream stream(file);
  if (file.states_documents()) {
    file.for_each_document([&](Index num_tokens) {
      if (num_tokens == 0)
        visit({}, true);
      while (num_tokens > 0) {
        const auto piece = stream.next(num_tokens);
        num_tokens -= static_cast<Index>(piece.size());
        visit(piece, num_tokens == 0);
      }
    });
    return;
  }
  while (stream.left() > 0) {
    const auto piece = stream.next(tokens_at_once);
    if (document_end)
      split_at(*document_end, piece, stream.left() == 0, visit);
    else
      visit(piece, stream.left() == 0);
  }
}

}  // namespace espalier

// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "io/tokens/token_file.hpp"

namespace espalier {
namespace {

constexpr Index end_bytes = sizeof(std::uint64_t);
constexpr std::size_t ends_piece_bytes = std::size_t{1} << 16;

}  // namespace

Index TokenFile::document_end(Index document) const {
  std::uint64_t end = 0;
  file_.read_at(static_cast<std::size_t>(info_.payload_end() + document * end_bytes), &end, sizeof(end));
  return static_cast<Index>(end);
}

std::vector<Index> TokenFile::document_starts(Index first, Index count) const {
  if (index_)
    return index_->document_starts(first, count);
  Index document = 0;  // the first that ends behind `first`
  for (Index end = info_.num_stated_documents; document < end;) {
    const Index middle = document + (end - document) / 2;
    if (document_end(middle) <= first)
      document = middle + 1;
    else
      end = middle;
  }
  std::vector<Index> starts;
  const Index end = std::min(first + count, info_.num_tokens);  // where the last document ends, none starts
  std::vector<std::uint64_t> ends;
  for (; document < info_.num_stated_documents; document += static_cast<Index>(ends.size())) {
    ends.resize(static_cast<std::size_t>(std::min(info_.num_stated_documents - document, Index{64})));
    file_.read_at(static_cast<std::size_t>(info_.payload_end() + document * end_bytes), ends.data(),
                  ends.size() * sizeof(ends[0]));
    for (const std::uint64_t word : ends) {
      const auto start = static_cast<Index>(word);
      if (start >= end)
        return starts;
      if (start > (starts.empty() ? first : starts.back()))
        starts.push_back(start);
    }
  }
  return starts;
}

void TokenFile::for_each_document(const std::function<void(Index num_tokens)>& visit) const {
  if (index_) {
    index_->for_each_document(visit);
    return;
  }
  Index begin = 0;
  Index document = 0;
  file_.read_pieces(static_cast<std::size_t>(info_.payload_end()), static_cast<std::size_t>(info_.loss_mask_offset()),
                    ends_piece_bytes, [&](std::string_view piece) {
                      for (std::size_t at = 0; at < piece.size(); at += sizeof(std::uint64_t), ++document) {
                        std::uint64_t word = 0;
                        std::memcpy(&word, piece.data() + at, sizeof(word));
                        const auto end = static_cast<Index>(word);
                        if (end < begin || end > info_.num_tokens)
                          throw Error(ExitCode::data,
                                      {.what = "token file whose documents do not fit its tokens",
                                       .where = info_.path.string(),
                                       .got = fmt::format("a document {} that ends with token {}", document, end),
                                       .wanted = fmt::format("{} to {}", begin, info_.num_tokens),
                                       .todo = pack_again});
                        visit(end - begin);
                        begin = end;
                      }
                    });
}

void TokenFile::read_loss_mask(Index first, std::span<std::uint8_t> loss_mask) const {
  const auto size = static_cast<Index>(loss_mask.size());
  ESPALIER_ASSERT(
      first >= 0 && first + size <= info_.num_tokens,
      fmt::format("the mask of {} tokens from {} on is asked of a file of {}", size, first, info_.num_tokens));
  if (!info_.has_loss_mask || loss_mask.empty()) {
    std::ranges::fill(loss_mask, std::uint8_t{1});
    return;
  }
  const Index begin = first / 8;  // bytes
  std::vector<unsigned char> bytes(static_cast<std::size_t>((first + size + 7) / 8 - begin));
  file_.read_at(static_cast<std::size_t>(info_.loss_mask_offset() + begin), bytes.data(), bytes.size());
  for (std::size_t i = 0; i < loss_mask.size(); ++i) {
    const std::size_t bit = static_cast<std::size_t>(first % 8) + i;
    loss_mask[i] = (bytes[bit / 8] >> (bit % 8)) & 1;
  }
}

}  // namespace espalier

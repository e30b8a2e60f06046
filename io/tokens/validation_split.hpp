// SPDX-FileCopyrightText: The Espalier authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "core/random.hpp"
#include "io/pack/documents.hpp"

namespace espalier {

/// Which documents validate: a share of the text, not of the documents. Each has a random number made of the seed and
/// its text, and those with the smallest go, so that copies of a document go to the same side, and the order of the
/// files does not matter. The numbers below the wanted share take about that share of the text: where that is close
/// enough, another file moves no document. Else documents are taken by their numbers until the share is met; one that
/// is too large, or has too many copies, is passed over. Where whole documents do not meet the share, the first of
/// those is cut in two: its tail validates.
///
/// What is kept of the documents is a histogram, the same for any number of them.
class ValidationSplit {
 public:
  /// @param fraction of the text that validates, in [0, 1)
  ValidationSplit(std::uint64_t seed, double fraction);

  void add(const Document& document);  ///< called with each document, before settle()
  void settle();                       ///< called once

  /// What was settled, for a later process that continues.
  struct Settled {
    std::vector<std::size_t> bins = {};  ///< that validate; is_by_number: all below the fraction do
    bool is_by_number = true;
    std::size_t cut_bin = 0;
    double share_of_cut = 0;
    double slack_of_cut = 0;
  };
  Settled settled() const;
  void settle(const Settled& settled);

  /// The end of a document that validates.
  struct Tail {
    Index wanted = 0;  ///< bytes: all of it, none, or a part
    Index slack = 0;   ///< so much more or less does no harm
  };
  Tail tail(const Document& document) const;

 private:
  double random_number(const Document& document) const { return random_.uniform(document.hash); }

  RandomStream random_;
  double fraction_;
  std::vector<double> bytes_;    // of documents, by the bin of their random number
  double bytes_below_ = 0;       // of documents whose number is below fraction_
  std::vector<bool> validates_;  // by the bin; empty: documents whose number is below fraction_ validate
  std::size_t cut_bin_;          // whose documents are cut
  double share_of_cut_ = 0;      // of each that validates
  double slack_of_cut_ = 0;
};

/// Where a tail of about `tail.wanted` bytes begins: at a line, else at a word, else at a character within the slack,
/// with text on both sides of it.
/// @param read the text that the document lies in
Index tail_begin(const ReadAt& read, const Document& document, const ValidationSplit::Tail& tail);

}  // namespace espalier
